"""Makes tokenizer.json and vectors.json with the `tokenizers` package (0.23; pip install tokenizers).

They are the oracle of src/data/tokenizer_test.cc: a file as that package writes it, and the ids it gives for
strings that are hard to cut. Run it here, with the package bible-kjv installed; results are committed.
"""

import json
import subprocess

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

TEXTS = [
    "",
    " ",
    "a",
    "In the beginning God created the heaven and the earth.",
    "And God said, Let there be light: and there was light.\n",
    "it's I'm we're they've you'll he'd don't 'tis 'S 'RE o'clock ''s '",
    " 's 'll' '' ' s",
    "two  spaces   three    four ",
    "   leading and trailing   ",
    "tab\tand\t\ttwo \t mixed\n",
    "line\r\nCRLF\r\n\r\nend\r",
    "\n\n\n  \n x",
    "\x0b\x0c\x1c\x1d\x1e\x1f\x00\x7f",
    "no\u00a0break \u00a0 and\u202fnarrow\u2003em\u3000ideographic\u1680ogham",
    "\u0085next\u2028line\u2029paragraph\u200bzero\ufeffbom\u180evowel\u2060joiner",
    "1234567890123456789012345678901234567890 12 3",
    "x1y22z333 4a55b 3.14159e-10 1,000,000",
    "\u00bd\u00b2\u2167\u3007\u0663\u096a\u2460 half roman arabic",
    "price: $5.99 (50% off!!!) -> ***wow*** #1 @home & \\ / | ~`^_=+[]{}<>;:?\"",
    "na\u00efve caf\u00e9 e\u0301 \u00c5ngstr\u00f6m stra\u00dfe \u0130stanbul \u01c5",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5",
    "\u4f60\u597d\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f\u30c6\u30b9\u30c8 \ud55c\uad6d\uc5b4",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \u05e2\u05d1\u05e8\u05d9\u05ea \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea\u2764\ufe0f \U0001f44d\U0001f3fd!",
    "\U0001d4d0\U0001d7ce\U00020000\U0010ffff\ue000\ufffd\uffff",
    "mixed\u4f60a\u0431 1\u0662\u00bd a\u0301\u0301b",
    "for (int i = 0; i < n; ++i) {\n    sum += x[i] * y[i];  // dot\n}\n",
    "<|endoftext|> is text here <|endoftext|>",
    "a" * 70,
    " " * 33 + "b",
    "ab" * 40 + "the" * 40,
    "=" * 80 + "\n" + "-" * 79,
    "\u2550" * 25,
    "thethe the The THE tHe",
]


def main():
    text = subprocess.run(
        ["bible", "-l", "1000", "gen1:1-gen9:29"], capture_output=True, text=True, check=True
    ).stdout
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text], trainer)
    tokenizer.save("tokenizer.json")
    tokenizer.encode_special_tokens = True  # text never yields the special id
    vectors = [{"text": text, "ids": tokenizer.encode(text).ids} for text in TEXTS]
    with open("vectors.json", "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(v, separators=(",", ":")) for v in vectors) + "\n]\n")


if __name__ == "__main__":
    main()
