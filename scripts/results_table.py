#!/usr/bin/env python3
"""Tables of measured results in README.md and docs/, written from bench/results/*.json.

    scripts/results_table.py            writes the tables into the pages
    scripts/results_table.py --check    says what differs, writes nothing; exits with 1 if anything does

A table stands between `<!-- results: bench/results/NAME.json -->` and `<!-- end of results -->`; its form follows
from the record's `kind`. The check also holds the records to bench/results/README.md: the fields every record has,
numbers that are finite, ratios that are those of the rates beside them, and no record of a kind that has a table
without a page that shows it.
"""
import argparse
import json
import math
import re
import sys
from pathlib import Path

BLOCK = re.compile(r"<!-- results: (\S+) -->\n(.*?)<!-- end of results -->\n", re.DOTALL)
OPENING, CLOSING = "<!-- results:", "<!-- end of results -->"
EVERY = ("kind", "what", "command", "commit", "data", "conditions")
GPU = ("gpu", "driver", "cuda", "torch")
MODELS = {"laptop": "the laptop recipe", "olmoe-512": "OLMoE of d 512, 16 experts, top-4"}


def table(header, rows):
    lines = ["| " + " | ".join(cells) + " |\n" for cells in (header, *rows)]
    return "".join([lines[0], "|---" * len(header) + "|\n", *lines[1:]])


def cpu_step(record):
    rows = []
    for result in record["results"]:
        ratios = [ours / theirs for ours, theirs in result["rounds"]]
        rows.append([MODELS.get(result["model"], result["model"]), f"{result['wych_tokens_per_second']:,.0f}",
                     f"{result['peer_tokens_per_second']:,.0f}",
                     f"{result['ratio']:.1f} ({min(ratios):.1f} to {max(ratios):.1f})"])
    return table(["model", "wych, tokens/s", "transformers, its fastest", "ratio"], rows)


def grouped(record):
    def cell(rates):
        return f"{rates['wych']:.0f} / {rates['torch']:.0f} = {rates['ratio']:.2f}x"

    rows = [[str(result["experts"]), str(result["routes"]), f"{result['k']} -> {result['n']}",
             *(cell(result[f"{name}_tflops"]) for name in ("forward", "dx", "dw"))] for result in record["results"]]
    return table(["experts", "routes", "shape", "forward", "dx", "dw"], rows)


def tokenize(record):
    rows = [[str(result["threads"]), result["tokenizer"], f"{result['wych_mb_per_second']:.1f}",
             f"{result['peer_mb_per_second']:.1f}", f"{result['ratio']:.1f}x"] for result in record["results"]]
    return table(["threads", "tokenizer", "wych, MB/s", "tokenizers, MB/s", "ratio"], rows)


def rate_cell(row, missing):
    return f"{row['tokens_per_second']:,.0f} ({row['tflops']:.0f})" if row else missing


def ratio_cell(ratio):
    return f"{ratio:.2f}x" if ratio else "-"


def moe_step(record):
    """A row for a case and a peer; what did not fit or failed is named where its rate would be."""
    rows = []
    for result in record["results"]:
        for peer in result["peers"]:
            failed = "out of memory" if peer.get("out_of_memory") else "failed"
            eager = "out of memory" if "eager_out_of_memory" in peer else failed if "error" in peer else "-"
            ratio = peer.get("ratio", {})
            memory = [f"{peer['compiled']['peak_reserved_gib']:.0f}" if "peak_reserved_gib" in peer.get("compiled", {})
                      else "-", f"{result['wych']['planned_gib']:.0f}" if "wych" in result else "-"]
            rows.append([result["case"], f"{result['batch_tokens']:,}", peer.get("model", "-"),
                         rate_cell(peer.get("eager"), eager),
                         rate_cell(peer.get("compiled"), failed if "error" in peer else "-"),
                         rate_cell(result.get("wych"), "failed"),
                         ratio_cell(ratio.get("eager")), ratio_cell(ratio.get("compiled")), " / ".join(memory)])
    text = table(["case", "tokens", "PyTorch", "eager, tokens/s (TFLOP/s)", "compiled", "wych", "wych / eager",
                  "wych / compiled", "GiB, compiled / wych"], rows)
    for lost in record.get("ladder_lost", []):
        sides = ", ".join(f"{side} {100 * lost[side]:.1f} %" for side in ("eager", "compiled", "wych") if side in lost)
        text += (f"\nLost from {lost['experts'][0]} to {lost['experts'][1]} experts at {lost['tokens']:,} tokens: "
                 f"{sides}.\n")
    return text


def train_step(record):
    rows = []
    for row in record["results"]:
        name = f"transformers {row['mode']}, optimizer in {row['state']}"
        if "tokens_per_second" in row:
            rows.append([name, str(row["microbatch_sequences"]), f"{row['tokens_per_second']:,.0f}",
                         f"{row['tflops']:.0f}",
                         f"{row['peak_reserved_gib']:.0f}" if "peak_reserved_gib" in row else "-",
                         ratio_cell(row.get("ratio"))])
        else:
            rows.append([name, "-", "out of memory" if row.get("out_of_memory") else "failed", "-", "-", "-"])
    if "wych" in record:
        ours = record["wych"]
        rows.append([f"wych, recompute {ours['recompute']}", str(ours["microbatch_sequences"]),
                     f"{ours['tokens_per_second']:,.0f}", f"{ours['tflops']:.0f}", f"{ours['planned_gib']:.0f}", ""])
    return table(["", "sequences of a microbatch", "tokens/s", "TFLOP/s", "GiB", "wych / it"], rows)


def rates_and_ratios(record):
    """(where, wych's rate, the peer's, the ratio that the record gives) of all its ratios."""
    for i, result in enumerate(record.get("results", [])):
        where = f"results[{i}]"
        if record["kind"] == "grouped":
            for name in ("forward_tflops", "dx_tflops", "dw_tflops"):
                yield f"{where}.{name}", result[name]["wych"], result[name]["torch"], result[name]["ratio"]
        elif record["kind"] == "moe-step":
            for peer in result["peers"]:
                for mode, ratio in peer.get("ratio", {}).items():
                    yield (f"{where}.{mode}", result["wych"]["tokens_per_second"], peer[mode]["tokens_per_second"],
                           ratio)
        elif record["kind"] == "train-step" and "ratio" in result:
            yield where, record["wych"]["tokens_per_second"], result["tokens_per_second"], result["ratio"]
        elif record["kind"] == "tokenize":
            yield where, result["wych_mb_per_second"], result["peer_mb_per_second"], result["ratio"]


# Kind -> its table and the fields beyond EVERY. No table: the page that quotes it is written by hand.
KINDS = {"cpu-step": (cpu_step, ("machine", "torch", "transformers")), "grouped": (grouped, GPU),
         "laptop": (None, ("machine",)), "moe-step": (moe_step, (*GPU, "cudnn", "nccl", "transformers")),
         "tokenize": (tokenize, ("machine", "tokenizers")),
         "train-step": (train_step, (*GPU, "cudnn", "nccl", "transformers"))}


def not_finite(value, where=""):
    if isinstance(value, float) and not math.isfinite(value):
        yield where
    elif isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from not_finite(inner, f"{where}.{key}".lstrip("."))


def faults_of(record):
    kind = record.get("kind")
    if kind not in KINDS:
        return [f"kind {kind!r}, expected one of {', '.join(sorted(KINDS))}"]
    faults = [f"{field}: {'is empty' if field in record else 'missing'}" for field in EVERY + KINDS[kind][1]
              if not record.get(field)]
    if not re.fullmatch(r"[0-9a-f]{7,40}", str(record.get("commit"))):
        faults.append(f"commit {record.get('commit')!r}, expected 7 to 40 hexadecimal digits")
    faults += [f"{where}: not finite" for where in not_finite(record)]
    faults += [f"{where}: ratio {ratio}, and the rates give {ours / theirs}"
               for where, ours, theirs, ratio in rates_and_ratios(record) if abs(ours / theirs / ratio - 1) > 1e-6]
    return faults


def load_records(root):
    """(name relative to the root -> record, faults)."""
    records, faults = {}, []
    for path in sorted((root / "bench" / "results").glob("*.json")):
        name = path.relative_to(root).as_posix()
        try:
            record = json.loads(path.read_text())
        except json.JSONDecodeError as error:
            faults.append(f"{name}: no JSON: {error}")
            continue
        wrong = faults_of(record)
        faults += [f"{name}: {fault}" for fault in wrong]
        if not wrong:
            records[name] = record
    return records, faults


def render_page(name, text, records, shown, faults):
    """The page with its tables as the records give them."""
    if not text.count(OPENING) == text.count(CLOSING) == len(BLOCK.findall(text)):
        faults.append(f"{name}: a table is not between '{OPENING} FILE -->' and '{CLOSING}' on lines of their own")
        return text

    def render(match):
        source = match[1]
        make = KINDS[records[source]["kind"]][0] if source in records else None
        if make is None:
            faults.append(f"{name}: {source} is not a good record of a kind that has a table")
            return match[0]
        shown.add(source)
        return f"{OPENING} {source} -->\n{make(records[source])}{CLOSING}\n"

    return BLOCK.sub(render, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page or record is wrong")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    root = arguments.root
    records, faults = load_records(root)
    shown, written = set(), 0
    for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        name, text = path.relative_to(root).as_posix(), path.read_text()
        rendered = render_page(name, text, records, shown, faults)
        if rendered == text:
            continue
        if arguments.check:
            faults.append(f"{name}: a table differs from its record; run scripts/results_table.py")
        else:
            path.write_text(rendered)
            written += 1
    faults += [f"{name}: no page shows it; give it a place between '{OPENING} {name} -->' and '{CLOSING}'"
               for name, record in records.items() if KINDS[record["kind"]][0] and name not in shown]
    for fault in faults:
        print(fault)
    print(f"{len(records)} records, {len(shown)} tables, {written} pages written, {len(faults)} faults")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
