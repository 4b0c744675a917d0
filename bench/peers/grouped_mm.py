#!/usr/bin/env python3
"""Grouped matrix products of experts: wych beside torch._grouped_mm, in one run, on the same uneven groups.

    python3 bench/peers/grouped_mm.py --wych build/cuda/wych --json result.json

wych measures first and says its groups; then PyTorch, then wych again: the ratio takes wych's mean, so a drift of
the clock meets both. Random normal data, medians; FLOPs of real rows, padding not counted.
"""
import argparse
import sys

import measure


def wych_rows(binary):
    rows = measure.run_wych(binary, ["bench", "grouped", "--json"], 120)
    if "error" in rows:
        raise SystemExit(f"wych bench grouped: {rows['error']}")
    return rows


def torch_row(torch, row):
    experts, routes, k, n = row["experts"], row["routes"], row["k"], row["n"]
    generator = torch.Generator("cuda").manual_seed(1)
    normal = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16, generator=generator)
    x, dy, w = normal(routes, k), normal(routes, n), normal(experts, n, k) * 0.02
    offsets = torch.tensor(row["counts"], device="cuda").cumsum(0).to(torch.int32)
    flops = 2.0 * routes * n * k

    def seconds_of(work):
        return measure.time_calls(torch, "cuda", work, 20, calls=4).median()

    forward = seconds_of(lambda: torch._grouped_mm(x, w.transpose(1, 2), offs=offsets))
    dx = seconds_of(lambda: torch._grouped_mm(dy, w, offs=offsets))
    dw = seconds_of(lambda: torch._grouped_mm(dy.t(), x, offs=offsets))
    return {"forward_tflops": flops / forward * 1e-12, "dx_tflops": flops / dx * 1e-12,
            "dw_tflops": flops / dw * 1e-12}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wych", default="build/cuda/wych")
    parser.add_argument("--commit", help="what the record says where git does not know")
    parser.add_argument("--json", help="file for the result")
    arguments = parser.parse_args()
    import torch

    before = wych_rows(arguments.wych)
    theirs = [torch_row(torch, row) for row in before]
    torch.cuda.empty_cache()
    after = wych_rows(arguments.wych)
    anchor = measure.product_tflops(torch, "cuda", 8192)
    results = []
    print(f"anchor: bfloat16 8192^3 by PyTorch {anchor:.0f} TFLOP/s")
    print(f"{'TFLOP/s':<34} {'forward':>16} {'dx':>16} {'dw':>16}   (wych / torch = ratio; torch's dw is bfloat16)")
    for first, second, peer in zip(before, after, theirs):
        result = {key: first[key] for key in ("experts", "routes", "k", "n", "counts")}
        text = f"E {first['experts']:>3} {first['routes']:>6} routes {first['k']} -> {first['n']:<6}"
        for name in ("forward_tflops", "dx_tflops", "dw_tflops"):
            ours = (first[name] + second[name]) / 2
            result[name] = {"wych": ours, "torch": peer[name], "ratio": ours / peer[name]}
            text += f" {ours:>5.0f}/{peer[name]:>4.0f}={ours / peer[name]:>4.2f}x"
        result["dw_accumulate_tflops"] = {"wych": (first["dw_accumulate_tflops"] + second["dw_accumulate_tflops"]) / 2}
        results.append(result)
        print(text)
    measure.write_record(arguments.json, {
        "kind": "grouped", "what": "grouped matrix products, wych beside torch._grouped_mm",
        **measure.provenance(torch, "cuda", arguments.commit), "anchor_8192_tflops": anchor,
        "data": "random normal, uneven", "conditions": "medians of 20 (PyTorch: of 20 means of 4 calls); wych before and after PyTorch in one run; "
        "torch writes dw in bfloat16, wych in float32", "results": results})


if __name__ == "__main__":
    sys.exit(main())
