#!/usr/bin/env python3
"""Ops that move memory and compute little: wych beside PyTorch, eager and compiled, in one run on the same shapes.

    python3 bench/peers/elementwise.py --wych build/cuda/wych --json result.json

wych measures first and says its shapes; then PyTorch, then wych again: the ratio takes wych's mean, so a drift of the
clock meets both. Random normal data, medians, caches overwritten before every run on both sides. PyTorch gets what
it does best: q and k as tensors of their own (wych also copies v), rows of real routes without padding, gradients by
autograd of the same function, compiled where the forward is. A ratio above 1 says how many times faster wych is.
"""
import argparse
import json
import statistics
import subprocess

EPSILON = 1e-5


def wych_rows(binary):
    run = subprocess.run([binary, "bench", "elementwise", "--json"], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def median_seconds(torch, flush, work, repeats=20):
    times = []
    for repeat in range(repeats + 3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        flush.zero_()
        start.record()
        work()
        end.record()
        end.synchronize()
        if repeat >= 3:
            times.append(start.elapsed_time(end) * 1e-3)
    return statistics.median(times)


class Peer:
    """PyTorch's functions and their data for the shapes of one wych row."""

    def __init__(self, torch, row):
        self.torch, self.row = torch, row
        self.generator = torch.Generator("cuda").manual_seed(1)
        tokens, k = row["tokens"], row["k"]
        order = torch.argsort(torch.rand(tokens * k, device="cuda", generator=self.generator))
        self.token_of_row = order // k
        self.row_of_route = torch.argsort(order)

    def normal(self, *shape, dtype=None, gradient=False):
        data = self.torch.randn(*shape, device="cuda", dtype=dtype or self.torch.bfloat16, generator=self.generator)
        return data.requires_grad_(gradient)

    def rotated(self, x, cosine, sine):
        first, second = x.float().chunk(2, -1)
        return self.torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1).to(x.dtype)

    def normed(self, x, weight):
        return self.torch.nn.functional.rms_norm(x.float(), (x.shape[-1],), weight, EPSILON).to(x.dtype)

    def case(self, op):
        """A function and its arguments; with a gradient, `op` names the backward."""
        torch, row = self.torch, self.row
        backward = op.endswith(("_backward", "_dx"))
        tokens, d, f = row["tokens"], row["d"], row["hidden"]
        matrix = lambda *shape: self.normal(*shape, gradient=backward)
        weight = lambda size: self.normal(size, dtype=torch.float32, gradient=backward)
        routes = tokens * row["k"]
        name = op.removesuffix("_backward").removesuffix("_dx")
        if name == "add":
            return lambda a, b: a + b, [matrix(tokens, d), matrix(tokens, d)]
        if name == "rms_norm":
            return self.normed, [matrix(tokens, d), weight(d)]
        if name == "add_rms_norm":

            def add_rms_norm(a, b, w):
                x = a + b
                return x, self.normed(x, w)

            return add_rms_norm, [matrix(tokens, d), matrix(tokens, d), weight(d)]
        if name in ("rope", "qk_norm_rope"):
            heads = [row["query_heads"], row["kv_heads"]]
            angle = torch.arange(tokens, device="cuda").remainder(row["sequence"])[:, None, None] * 10000.0 ** (
                -torch.arange(row["head_dim"] // 2, device="cuda") / (row["head_dim"] // 2))
            cosine, sine = angle.cos(), angle.sin()
            qk = [matrix(tokens, count * row["head_dim"]) for count in heads]
            split = lambda x, count: x.view(tokens, count, row["head_dim"])

            def rope(q, k):
                return tuple(self.rotated(split(x, count), cosine, sine) for x, count in zip((q, k), heads))

            def qk_norm_rope(q, k, *weights):
                if row["per_head"]:
                    pairs = [self.normed(split(x, n), w) for x, n, w in zip((q, k), heads, weights)]
                else:
                    pairs = [split(self.normed(x, w), n) for x, n, w in zip((q, k), heads, weights)]
                return tuple(self.rotated(x, cosine, sine) for x in pairs)

            if name == "rope":
                return rope, qk
            return qk_norm_rope, qk + [weight(row["head_dim"] * (1 if row["per_head"] else n)) for n in heads]
        if name == "moe_permute":
            return lambda x: x.index_select(0, self.token_of_row), [matrix(tokens, d)]
        if name == "moe_combine":

            def combine(rows):
                return rows.index_select(0, self.row_of_route).view(tokens, row["k"], d).sum(1)

            return combine, [matrix(routes, d)]

        def swiglu(gu, w=None):
            gate, up = gu.float().chunk(2, -1)
            h = torch.nn.functional.silu(gate) * up
            return (h if w is None else h * w[:, None]).to(gu.dtype)

        if name == "swiglu":
            return swiglu, [matrix(tokens, 2 * f)]
        if name == "moe_swiglu":
            return swiglu, [matrix(routes, 2 * f), weight(routes)]
        raise SystemExit(f"bench/peers/elementwise.py: no PyTorch counterpart of {op}; add one")

    def seconds(self, flush, op, compiled):
        torch = self.torch
        function, arguments = self.case(op)
        if compiled:
            function = torch.compile(function, dynamic=False)
        if not op.endswith(("_backward", "_dx")):
            with torch.no_grad():
                return median_seconds(torch, flush, lambda: function(*arguments))
        results = function(*arguments)
        results = results if isinstance(results, tuple) else (results,)
        cotangents = [torch.randn_like(result) for result in results]
        return median_seconds(
            torch, flush, lambda: torch.autograd.grad(results, arguments, cotangents, retain_graph=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wych", default="build/cuda/wych")
    parser.add_argument("--json", help="file for the result")
    arguments = parser.parse_args()
    import torch
    import torch._functorch.config

    torch._functorch.config.donated_buffer = False  # a backward is run many times

    before = wych_rows(arguments.wych)
    flush = torch.empty(2**28, device="cuda", dtype=torch.uint8)
    theirs = []
    for row in before:
        peer = Peer(torch, row)
        theirs.append({kind: peer.seconds(flush, row["op"], kind == "compiled") for kind in ("eager", "compiled")})
        del peer
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    del flush
    torch.cuda.empty_cache()
    after = wych_rows(arguments.wych)
    results = []
    print(f"{'microseconds':<36} {'wych':>8} {'TB/s':>6} {'of copy':>8} {'eager':>9} {'compiled':>9}   ratios")
    for first, second, peer in zip(before, after, theirs):
        seconds = (first["seconds"] + second["seconds"]) / 2
        ratios = {kind: peer[kind] / seconds for kind in peer}
        result = {**first, "seconds": {"wych": seconds, **peer}, "ratio": ratios}
        result["bytes_per_second"] = first["bytes"] / seconds
        result["share"] = result["bytes_per_second"] / first["copy_bytes_per_second"]
        results.append(result)
        print(f"{first['model']:<13} {first['op']:<22} {seconds * 1e6:>8.1f} {result['bytes_per_second'] * 1e-12:>6.2f}"
              f" {100 * result['share']:>7.0f}% {peer['eager'] * 1e6:>9.1f} {peer['compiled'] * 1e6:>9.1f}"
              f"   {ratios['eager']:.2f}x {ratios['compiled']:.2f}x")
    if arguments.json:
        record = {"what": "ops that move memory, wych beside PyTorch eager and compiled", "torch": torch.__version__,
                  "gpu": torch.cuda.get_device_name(), "data": "random normal, caches overwritten before each run",
                  "results": results}
        with open(arguments.json, "w") as file:
            json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
