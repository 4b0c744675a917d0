#!/usr/bin/env python3
"""Training steps on the CPU: wych beside transformers on PyTorch, in one run, on the same cores.

    taskset -c 0,1 python3 bench/peers/cpu_step.py --wych build/release/wych --json result.json

A step is forward, backward, clipping to norm 1 and AdamW, in float32, on random tokens. Each side runs as a
process of its own with the same number of threads; the sides take turns, so that a drift of the machine's
speed meets both. transformers runs every implementation of its experts for a few steps, the fastest of them
compiled as well; the fastest of all competes. The models have the same sizes:

- olmoe-512: OlmoeForCausalLM with the sizes of bench/configs/olmoe-512.toml.
- laptop: transformers has no class with a shared expert and per-head QK norms; Qwen2MoeForCausalLM has the
  shared expert, a gate before it and biases on q, k, v in place of the norms.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import measure

WYCH_CONFIGS = {"laptop": "configs/laptop.toml", "olmoe-512": "bench/configs/olmoe-512.toml"}
SHAPES = {"laptop": (16, 128), "olmoe-512": (4, 512)}  # sequences, tokens of a sequence
EXPERTS = ["eager", "batched_mm", "grouped_mm"]


def build_model(name, experts):
    import transformers

    if name == "laptop":
        config = transformers.Qwen2MoeConfig(
            vocab_size=2048, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
            moe_intermediate_size=160, shared_expert_intermediate_size=160, num_experts=8, num_experts_per_tok=2,
            norm_topk_prob=True, decoder_sparse_step=1, output_router_logits=True, router_aux_loss_coef=0.01,
            max_position_embeddings=128, tie_word_embeddings=False, head_dim=32)
        kind = transformers.Qwen2MoeForCausalLM
    else:
        config = transformers.OlmoeConfig(
            vocab_size=8192, hidden_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=8,
            intermediate_size=512, num_experts=16, num_experts_per_tok=4, output_router_logits=True,
            router_aux_loss_coef=0.01, max_position_embeddings=512, tie_word_embeddings=False)
        kind = transformers.OlmoeForCausalLM
    config._attn_implementation = "sdpa"
    config._experts_implementation = experts
    return kind(config)


def peer_steps(name, threads, steps, experts, compiled):
    """Seconds of each step, after two that warm up."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = build_model(name, experts).float().train()
    parameters = sum(p.numel() for p in model.parameters())
    forward = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    sequences, length = SHAPES[name]
    vocabulary = model.config.vocab_size
    seconds = []
    for step in range(steps + 2):
        tokens = torch.randint(0, vocabulary, (sequences, length))
        start = time.perf_counter()
        loss = forward(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        loss.item()
        if step >= 2:
            seconds.append(time.perf_counter() - start)
    return {"seconds": seconds, "parameters": parameters}


def run_peer(name, threads, steps, experts, compiled, timeout):
    """In a process of its own; None where this version of the library cannot."""
    command = [sys.executable, __file__, "--peer", name, "--threads", str(threads), "--steps", str(steps),
               "--experts", experts] + (["--compiled"] if compiled else [])
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads), CUDA_VISIBLE_DEVICES="")
    try:
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        print(f"  {name} {experts} compiled={compiled}: more than {timeout} s", flush=True)
        return None
    if run.returncode != 0:
        reason = run.stderr.strip().splitlines()[-1:] or ["?"]
        print(f"  {name} {experts} compiled={compiled}: {reason[0][:200]}", flush=True)
        return None
    return json.loads(run.stdout.strip().splitlines()[-1])


def run_wych(binary, name, threads, steps):
    run = subprocess.run([binary, "bench", "step", WYCH_CONFIGS[name], f"--run.threads={threads}", "--steps",
                          str(steps), "--json"], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def compare(name, arguments):
    sequences, length = SHAPES[name]
    tokens = sequences * length
    tried = {}

    def attempt(experts, compiled):
        result = run_peer(name, arguments.threads, 5, experts, compiled, arguments.timeout)
        if result:
            tried[(experts, compiled)] = statistics.median(result["seconds"])
            rate = tokens / tried[(experts, compiled)]
            print(f"  {name} {experts} compiled={compiled}: {rate:.0f} tokens/s", flush=True)

    for experts in EXPERTS:
        attempt(experts, False)
    attempt(min(tried, key=tried.get)[0], True)
    experts, compiled = min(tried, key=tried.get)
    rounds = []
    for _ in range(arguments.rounds):
        ours = run_wych(arguments.wych, name, arguments.threads, arguments.steps)
        theirs = run_peer(name, arguments.threads, arguments.steps, experts, compiled, arguments.timeout)
        rounds.append((ours["tokens_per_second"], tokens / statistics.median(theirs["seconds"]), ours, theirs))
    result = {
        "model": name,
        "batch_tokens": tokens,
        "threads": arguments.threads,
        "wych_tokens_per_second": statistics.median(r[0] for r in rounds),
        "peer_tokens_per_second": statistics.median(r[1] for r in rounds),
        "ratio": statistics.median(r[0] / r[1] for r in rounds),
        "rounds": [[r[0], r[1]] for r in rounds],
        "peer": {"experts": experts, "compiled": compiled, "parameters": rounds[0][3]["parameters"],
                 "tried_tokens_per_second": {f"{e}{' compiled' if c else ''}": tokens / s
                                             for (e, c), s in tried.items()}},
        "wych": {key: rounds[0][2][key] for key in
                 ("floor_seconds", "step_seconds", "peak_flops_per_second", "copy_bytes_per_second")},
    }
    print(f"{name}: wych {result['wych_tokens_per_second']:.0f} tokens/s, transformers "
          f"{result['peer_tokens_per_second']:.0f} ({experts}{', compiled' if compiled else ''}): "
          f"{result['ratio']:.2f}x", flush=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wych", default="build/release/wych")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for a run of the peer")
    parser.add_argument("--models", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--json", help="file for the result")
    parser.add_argument("--peer", choices=list(SHAPES), help=argparse.SUPPRESS)
    parser.add_argument("--experts", choices=EXPERTS, default="eager", help=argparse.SUPPRESS)
    parser.add_argument("--compiled", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        print(json.dumps(peer_steps(arguments.peer, arguments.threads, arguments.steps, arguments.experts,
                                    arguments.compiled)))
        return
    import torch

    results = [compare(name, arguments) for name in arguments.models]
    measure.write_record(arguments.json, {
        "kind": "cpu-step", "what": "training steps on the CPU, wych beside transformers",
        **measure.provenance(torch, "cpu"), "data": "uniform random tokens",
        "conditions": f"medians of {arguments.rounds} rounds, the sides in turns", "results": results})


if __name__ == "__main__":
    main()
