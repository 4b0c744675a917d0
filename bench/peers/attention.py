#!/usr/bin/env python3
"""Causal attention in bfloat16: wych beside PyTorch's scaled_dot_product_attention, in one run, on the same shapes.

    python3 bench/peers/attention.py --wych build/cuda/wych --json result.json

wych measures first and says its shapes; then PyTorch by its cuDNN and its flash backend, each as it comes and with
torch.use_deterministic_algorithms; then wych again: ratios take wych's mean, so a drift of the clock meets both.
Queries, keys and values are views of one packed matrix, as in wych; random normal data, medians. FLOPs are wych's: of
pairs that see each other. Where a backend refuses, the reason stands in its place. Shapes with a window are left out:
PyTorch's function has none.
"""
import argparse
import contextlib
import json
import statistics
import subprocess
import warnings

PASSES = ("forward", "backward")
# Each kind of wych's beside the backends it answers: (ours, backend, deterministic).
PAIRS = (("cudnn_deterministic", "flash", True), ("cudnn_deterministic", "cudnn", False),
         ("cudnn_nondeterministic", "cudnn", False), ("own", "flash", True), ("own", "flash", False))


def wych_rows(binary):
    run = subprocess.run([binary, "bench", "attention", "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return [row for row in json.loads(run.stdout) if row["window"] == 0]


def median_seconds(torch, work, repeats=20):
    times = []
    for repeat in range(repeats + 2):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        if repeat >= 2:
            times.append(start.elapsed_time(end) * 1e-3)
    return statistics.median(times)


@contextlib.contextmanager
def algorithms(torch, deterministic):
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(deterministic)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def torch_times(torch, row, backend, deterministic):
    """{"forward_tflops": ..., "backward_tflops": ...}, or {"error": why}."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kind = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[backend]
    sequences, length, head_dim = row["sequences"], row["sequence"], row["head_dim"]
    heads, kv_heads = row["query_heads"], row["kv_heads"]
    generator = torch.Generator("cuda").manual_seed(1)
    normal = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16, generator=generator)
    packed = normal(sequences, length, heads + 2 * kv_heads, head_dim)
    q, k, v = (part.transpose(1, 2).requires_grad_() for part in packed.split((heads, kv_heads, kv_heads), dim=2))
    dout = normal(sequences, length, heads, head_dim).transpose(1, 2)
    attend = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True,
                                                                      enable_gqa=heads != kv_heads)
    try:
        with sdpa_kernel(kind), algorithms(torch, deterministic), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the reasons of a refusal; its error follows
            out = attend()
            forward = median_seconds(torch, attend)
            backward = median_seconds(torch, lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))
    except RuntimeError as error:
        return {"error": str(error).strip().splitlines()[0][:200]}
    return {"forward_tflops": row["forward_flops"] / forward * 1e-12,
            "backward_tflops": row["backward_flops"] / backward * 1e-12}


def mean_of(first, second, kind):
    """wych's rates of both runs, or None where its cuDNN was not available."""
    if first[kind] is None or second[kind] is None:
        return None
    return {name: (first[kind][f"{name}_tflops"] + second[kind][f"{name}_tflops"]) / 2 for name in PASSES}


def peer_name(backend, deterministic):
    return f"{backend}{'_deterministic' if deterministic else ''}"


def compare(first, second, peers):
    """The record of a shape: wych's rates, the peers', and their ratios."""
    result = {key: first[key] for key in ("sequences", "sequence", "query_heads", "kv_heads", "head_dim",
                                          "forward_flops", "backward_flops", "ceiling_flops_per_second")}
    result["wych"] = {kind: mean_of(first, second, kind) for kind in ("cudnn_deterministic",
                                                                      "cudnn_nondeterministic", "own")}
    result["torch"] = peers
    result["ratios"] = {}
    for kind, backend, deterministic in PAIRS:
        ours, theirs = result["wych"][kind], peers[peer_name(backend, deterministic)]
        if ours and "error" not in theirs:
            result["ratios"][f"{kind} / {peer_name(backend, deterministic)}"] = {
                name: ours[name] / theirs[f"{name}_tflops"] for name in PASSES}
    return result


def print_result(result):
    print(f"{result['sequences']} x {result['sequence']}, {result['query_heads']}/{result['kv_heads']} heads of "
          f"{result['head_dim']}, TFLOP/s forward and backward")
    for kind, rates in result["wych"].items():
        print(f"  wych  {kind:<24} " + (" ".join(f"{rates[name]:>6.0f}" for name in PASSES) if rates
                                        else "not available"))
    for kind, rates in result["torch"].items():
        print(f"  torch {kind:<24} " + (rates["error"] if "error" in rates else
                                        " ".join(f"{rates[f'{name}_tflops']:>6.0f}" for name in PASSES)))
    for pair, ratios in result["ratios"].items():
        print(f"  {pair:<45} " + " ".join(f"{ratios[name]:>5.2f}x" for name in PASSES))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wych", default="build/cuda/wych")
    parser.add_argument("--json", help="file for the result")
    arguments = parser.parse_args()
    import torch

    before = wych_rows(arguments.wych)
    peers = [{peer_name(backend, deterministic): torch_times(torch, row, backend, deterministic)
              for backend in ("cudnn", "flash") for deterministic in (False, True)} for row in before]
    torch.cuda.empty_cache()
    after = wych_rows(arguments.wych)
    big = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    anchor = 2.0 * 8192**3 / median_seconds(torch, lambda: big @ big) * 1e-12
    results = [compare(*rows) for rows in zip(before, after, peers)]
    print(f"anchor: bfloat16 8192^3 by PyTorch {anchor:.0f} TFLOP/s; cuDNN: wych {before[0]['cudnn_version']}, "
          f"PyTorch {torch.backends.cudnn.version()}")
    for result in results:
        print_result(result)
    if arguments.json:
        record = {"what": "causal attention, wych beside PyTorch's scaled_dot_product_attention",
                  "torch": torch.__version__, "torch_cudnn": torch.backends.cudnn.version(),
                  "wych_cudnn": before[0]["cudnn_version"], "gpu": torch.cuda.get_device_name(),
                  "anchor_8192_tflops": anchor, "data": "random normal", "results": results}
        with open(arguments.json, "w") as file:
            json.dump(record, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
