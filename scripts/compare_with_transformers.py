#!/usr/bin/env python3
"""Compares wych's Hugging Face folders with the transformers library itself (4.57 or later, with torch).

For every reference model: to wych's format and back by `wych convert`; the library must load the written folder
with the same tensors and the same logits as the reference. For models that the references do not cover (YaRN in
every class, other head sizes, window patterns, dense layers by step), made by the library: `wych eval` must give
the library's cross-entropy, and the folder wych writes the library's logits. Prints a line a model; exits with 1
if one differs.

usage: scripts/compare_with_transformers.py build/release/wych
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

GOLDEN = "tests/golden"
LOSS_TOLERANCE = 1e-6  # float32 on both sides
TOKENS = 120
FIFTH = int(transformers.__version__.split(".")[0]) >= 5

SHARED = {
    "vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.2,
    "pad_token_id": None, "bos_token_id": None, "eos_token_id": 0,
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 48}
DENSE = {"intermediate_size": 96}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 32}
SLIDING, FULL = "sliding_attention", "full_attention"
VARIANTS = {
    "olmo2 YaRN": ("olmo2", {**DENSE, "rope_parameters": YARN}),
    "olmo2 head_dim": ("olmo2", {**DENSE, "head_dim": 24, "rope_parameters": PLAIN}),
    "olmo3 all windows": ("olmo3", {**DENSE, "head_dim": 24, "sliding_window": 7, "layer_types": [SLIDING] * 3,
                                    "rope_parameters": {FULL: PLAIN, SLIDING: PLAIN}}),
    "olmo3 YaRN factors": ("olmo3", {**DENSE, "sliding_window": 7, "layer_types": [SLIDING, FULL, FULL],
                                     "rope_parameters": {FULL: {**YARN, "beta_fast": 16.0, "beta_slow": 0.5,
                                                                "attention_factor": 1.1}, SLIDING: PLAIN}}),
    "olmoe YaRN mscale": ("olmoe", {**EXPERTS, "clip_qkv": 1.5, "norm_topk_prob": True,
                                    "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5}}),
    "flex_olmo YaRN": ("flex_olmo", {**EXPERTS, "head_dim": 24, "rope_parameters": YARN}),
    "mixtral YaRN": ("mixtral", {**EXPERTS, "num_local_experts": 6, "head_dim": 24, "rope_parameters": YARN}),
    "qwen3_moe dense step": ("qwen3_moe", {**EXPERTS, "moe_intermediate_size": 48, "head_dim": 24,
                                           "decoder_sparse_step": 2, "norm_topk_prob": True,
                                           "tie_word_embeddings": True, "rope_parameters": YARN}),
}


def wych(*arguments):
    done = subprocess.run([sys.argv[1], *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"wych {' '.join(arguments)}\n{done.stderr}")
    return done.stdout


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


def logits(model, ids):
    with torch.no_grad():
        return model(input_ids=ids).logits.double()


def same_tensors(a, b):
    first, second = a.state_dict(), b.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def reference_folder(name, scratch):
    """A reference model with the config.json of the library's generation."""
    folder = f"{scratch}/{name}.reference"
    os.mkdir(folder)
    shutil.copy(f"{GOLDEN}/{name}/model.safetensors", folder)
    shutil.copy(f"{GOLDEN}/{name}/{'config.json' if FIFTH else 'config.v4.json'}", f"{folder}/config.json")
    return folder


def compare_reference(name, ids, scratch):
    """Largest difference of logits after reference -> wych -> Hugging Face."""
    wych("convert", "--from", f"{GOLDEN}/{name}", "--to", f"{scratch}/{name}.wych", "--format", "wych")
    wych("convert", "--from", f"{scratch}/{name}.wych", "--to", f"{scratch}/{name}", "--format", "hf")
    written, reference = load(f"{scratch}/{name}"), load(reference_folder(name, scratch))
    difference = (logits(written, ids) - logits(reference, ids)).abs().max().item()
    equal = same_tensors(written, reference)
    print(f"{name:22} tensors {'equal' if equal else 'DIFFER'}, logits differ by {difference:.1e}")
    return equal and difference == 0


def compare_variant(name, model_type, keys, ids, scratch):
    """Cross-entropy by wych and by the library, and logits of the folder that wych writes."""
    folder = f"{scratch}/{name.replace(' ', '_')}"
    torch.manual_seed(3)
    config = AutoConfig.for_model(model_type, **SHARED, **keys)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    wych("convert", "--from", folder, "--to", folder + ".out", "--format", "hf", "--verify")
    ours = json.loads(wych("eval", "--model", folder, "--data", f"{scratch}/ids", "--seq", str(TOKENS), "--json"))
    truth = logits(model, ids)
    loss = torch.nn.functional.cross_entropy(truth[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).item()
    difference = (truth - logits(load(folder + ".out"), ids)).abs().max().item()
    error = abs(ours["CE loss"] - loss)
    print(f"{name:22} loss {loss:.6f} differs by {error:.1e}, written folder's logits by {difference:.1e}")
    return error <= LOSS_TOLERANCE and difference == 0


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    transformers.logging.set_verbosity_error()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    ids = torch.randint(0, 320, (4, TOKENS), generator=torch.Generator().manual_seed(1))
    good = True
    with tempfile.TemporaryDirectory() as scratch:
        with open(f"{scratch}/ids", "wb") as file:
            file.write(b"".join(int(token).to_bytes(2, "little") for token in ids.flatten()))
        for name in sorted(os.listdir(GOLDEN)):
            if os.path.isdir(f"{GOLDEN}/{name}") and name != "deepseek_v3":
                good = compare_reference(name, ids, scratch) and good
        if FIFTH:  # the keys above are its own
            for name, (model_type, keys) in VARIANTS.items():
                good = compare_variant(name, model_type, keys, ids, scratch) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
