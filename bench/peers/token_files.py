#!/usr/bin/env python3
"""Text to token ids: `wych data tokenize` beside the package `tokenizers`, in turns on the same cores.

    taskset -c 0,1 python3 bench/peers/token_files.py --wych build/release/wych --texts corpus.jsonl \
        --tokenizer dolma2.json --threads 2 --json result.json

wych reads the JSON lines, encodes, and writes and syncs a data folder, start of the process included;
`tokenizers` gets the texts as strings in memory and encodes them (encode_batch_fast). MB of text a second, the best
of several rounds: a rate is what other work on the machine does not take away.
"""
import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time

import measure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wych", default="build/release/wych")
    parser.add_argument("--texts", required=True, help="JSON lines with a field text")
    parser.add_argument("--tokenizer", required=True, nargs="+", help="tokenizer.json files")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="file for the result")
    arguments = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)
    import tokenizers

    texts = [json.loads(line)["text"] for line in open(arguments.texts, encoding="utf-8")]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    results = []
    for path in arguments.tokenizer:
        peer = tokenizers.Tokenizer.from_file(path)
        ours, theirs, tokens = [], [], 0
        for _ in range(arguments.rounds):
            out = os.path.join(tempfile.mkdtemp(), "data")
            start = time.perf_counter()
            subprocess.run([arguments.wych, "data", "tokenize", "--tokenizer", path, "--out", out, "--threads",
                            str(arguments.threads), arguments.texts], check=True, capture_output=True)
            ours.append(megabytes / (time.perf_counter() - start))
            tokens = sum(entry["tokens"] for entry in json.load(open(out + "/dataset.json"))["files"])
            shutil.rmtree(os.path.dirname(out))
            start = time.perf_counter()
            encoded = peer.encode_batch_fast(texts, add_special_tokens=False)
            theirs.append(megabytes / (time.perf_counter() - start))
        expected = sum(len(encoding.ids) for encoding in encoded) + len(texts)  # an end of text each
        results.append({"threads": arguments.threads, "tokenizer": os.path.basename(path), "megabytes": megabytes, "tokens": tokens,
                        "tokens_expected": expected, "wych_mb_per_second": max(ours),
                        "wych_tokens_per_second": max(ours) / megabytes * tokens,
                        "peer_mb_per_second": max(theirs), "ratio": max(ours) / max(theirs)})
        print(f"{os.path.basename(path)}, {arguments.threads} threads: wych {max(ours):.1f} MB/s, tokenizers "
              f"{max(theirs):.1f}, {max(ours) / max(theirs):.1f} times; {tokens} tokens, expected {expected}", flush=True)
    measure.write_record(arguments.json, {
        "kind": "tokenize", "what": "text to token files, wych beside tokenizers", **measure.origin(),
        "machine": measure.machine(), "tokenizers": tokenizers.__version__,
        "data": f"{megabytes:.1f} MB in {len(texts)} documents, {sum(not text for text in texts)} of them empty",
        "conditions": f"best of {arguments.rounds} rounds; wych from JSON lines to a synced data folder, start included",
        "results": results})


if __name__ == "__main__":
    main()
