#!/usr/bin/env python3
"""Forward and backward of mixtures of experts on one GPU: wych beside PyTorch, in one run.

    python3 bench/peers/moe_step.py --wych build/cuda/wych --json result.json
    python3 bench/peers/moe_step.py --cases olmoe olmoe-2 --compile model
    python3 bench/peers/moe_step.py --check                 # the peer computes the right thing
    python3 bench/peers/moe_step.py --device cpu --tiny     # every line but the CUDA events, in a minute

One microbatch, no optimizer: bfloat16 weights, random tokens, random initial weights, routing as the router
decides, nothing dropped, nothing recomputed. Cases (shapes.py):

- olmoe: OLMoE-1B-7B at 4 x 4096 tokens; olmoe-2: at 2 x 4096.
- ladder-E: 8 layers of d 2048, 16 heads on 4 of keys and values, top-4 of E experts of 2048, 2 x 8192 tokens;
  ladder-E-x8: at 8 x 8192.

The peer of the ladder is plain_moe.py, plain PyTorch on torch._grouped_mm; that of OLMoE is transformers' own
OlmoeForCausalLM with grouped products for its experts (experts_implementation="grouped_mm"). --peers runs the
other one, or both; the ratio is to each. Both have wych's parameters to the last one (checked against `wych
plan`). Attention is PyTorch's with cuDNN and no other kernel allowed. A peer runs eager and compiled. --compile
layers (default) compiles the layer, once for all layers, and the loss; --compile model the whole model: the
compiler then fuses across layers and takes longer. Shapes are static, a compilation while the clock runs is an
error.

Where the sides differ: gradients are bfloat16 in PyTorch and written fresh, float32 in wych; the router is
bfloat16 there, float32 in wych; wych adds the balance loss and the router's z loss, the peer is spared them.

wych measures before and after PyTorch (--turns 1: only before) in a process of its own, and the ratio takes its
mean, so that a drift of the clock meets both. The peer's memory is what PyTorch's allocator had in use at most
and what it had taken from the device; wych's is what it planned and what the device had in use.
"""
import argparse
import dataclasses
import gc
import math
import sys
import time

import measure
import shapes

DEFAULT_CASES = ["olmoe", *shapes.LADDER, *shapes.LARGE_LADDER]


def graphs_compiled(torch):
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def time_steps(torch, device, peer, batches, repeats):
    """Forward and backward, timed; the loss of the first batch is a check of what ran."""
    turn = iter(range(10**9))

    def step(batch=None):
        tokens, targets = batches[next(turn) % len(batches)] if batch is None else batch
        loss = peer.loss(tokens, targets)
        loss.backward()
        peer.model.zero_grad(set_to_none=True)
        return loss.detach()

    peer.model.zero_grad(set_to_none=True)
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    loss = step(batches[0]).item()  # waits for the forward; the backward is queued
    if device == "cuda":
        torch.cuda.synchronize()
    first = time.perf_counter() - start
    if not math.isfinite(loss):
        raise RuntimeError(f"the loss is {loss}")
    step()
    graphs = graphs_compiled(torch)
    timing = measure.time_calls(torch, device, step, repeats)
    if graphs_compiled(torch) != graphs:
        raise RuntimeError("compiled again while the clock ran")
    case = peer.case
    rate = case.tokens / timing.median()
    result = {**timing.record(), "tokens_per_second": rate, "tflops": 1e-12 * rate * case.flops_per_token(),
              "first_step_seconds": first, "loss": loss}
    return result | measure.memory(torch, device)


def run_peer(torch, case, arguments, result):
    """Fills `result`; a failure part of the way leaves what was measured before."""
    import models

    device = arguments.device
    with models.only_cudnn(device):
        torch.manual_seed(0)
        peer = models.Peer(case, device)
        result |= {"model": peer.kind, "attention": peer.attention, "parameters": peer.num_parameters()}
        batches = [[torch.randint(0, case.vocabulary, (case.sequences, case.sequence), device=device)
                    for _ in range(2)] for _ in range(4)]
        result["routing"] = peer.routing(batches[0][0])
        if not arguments.no_eager:
            try:
                result["eager"] = time_steps(torch, device, peer, batches, arguments.steps)
            except RuntimeError as error:  # the compiled model needs less memory
                if not measure.out_of_memory(torch, error):
                    raise
                result["eager_out_of_memory"] = str(error)[:400]
        if arguments.no_compile:
            return
        torch._dynamo.utils.counters.clear()
        peer.compile(arguments.compile)
        compiled = time_steps(torch, device, peer, batches, arguments.steps)
        compiled |= {
            "unit": arguments.compile, "graphs": graphs_compiled(torch),
            "graph_breaks": sum(torch._dynamo.utils.counters["graph_break"].values()),
            # The first step less a later one: caches of compiled kernels are used as found.
            "compile_seconds": compiled["first_step_seconds"] - compiled["seconds"]}
        result["compiled"] = compiled
        if "eager" in result:
            difference = abs(result["eager"]["loss"] - compiled["loss"])
            if not difference <= 0.02 * abs(result["eager"]["loss"]):
                raise RuntimeError(f"the compiled model's loss differs from the eager one's by {difference}")


def measure_peer(torch, case, arguments):
    result = {}
    try:
        run_peer(torch, case, arguments, result)
    except Exception as error:  # noqa: BLE001: a case that fails is a result, the others still count
        result["out_of_memory"] = measure.out_of_memory(torch, error)
        result["error"] = f"{type(error).__name__}: {error}"[:400]
    # Past the handler, whose error held the frames and with them the tensors.
    measure.release(torch, arguments.device, result)
    return result


def measure_wych(configuration, arguments):
    return measure.run_wych(arguments.wych, ["bench", "step", *configuration, "--steps", str(arguments.steps),
                                             "--forward-backward", "--json"], arguments.timeout)


def compare(torch, name, case, arguments):
    configuration = shapes.wych_configuration(case, arguments.device, arguments.tiny, more=arguments.wych_argument)
    turns = [measure_wych(configuration, arguments)]
    peers = []
    for kind in arguments.peers or [case.peer]:
        peers.append(measure_peer(torch, dataclasses.replace(case, peer=kind), arguments))
    if arguments.turns == 2 and "error" not in turns[0]:
        turns.append(measure_wych(configuration, arguments))
    plan = measure.run_wych(arguments.wych, ["plan", *configuration, "--json"], 60)
    result = {"case": name, "sizes": dataclasses.asdict(case), "batch_tokens": case.tokens,
              "gflop_per_token": 1e-9 * case.flops_per_token(), "recompute": "none", "peers": peers,
              "wych_arguments": configuration, "wych_turns": turns}
    for peer in peers:
        if "parameters" in plan and peer.get("parameters", plan["parameters"]) != plan["parameters"]:
            peer.setdefault("error", f"{peer['parameters']} parameters, and wych has {plan['parameters']}")
    ours = measure.mean_of_turns(turns)
    if ours:
        ours["tflops"] = 1e-12 * ours["tokens_per_second"] * case.flops_per_token()
        result["wych"] = ours
        for peer in peers:
            peer["ratio"] = {mode: ours["tokens_per_second"] / peer[mode]["tokens_per_second"]
                             for mode in ("eager", "compiled") if mode in peer}
    print_case(result)
    return result


def print_case(result):
    print(f"{result['case']}: {result['batch_tokens']} tokens, {result['gflop_per_token']:.3f} GFLOP a token")
    for peer in result["peers"]:
        if "parameters" in peer:
            print(f"  {peer['model']}: {peer['parameters']:,} parameters, attention by {peer['attention']}")
        for mode in ("eager", "compiled"):
            if mode not in peer:
                continue
            row = peer[mode]
            text = f"  {mode:<9} {row['tokens_per_second']:>9,.0f} tokens/s {row['tflops']:>7.4g} TFLOP/s"
            if "peak_allocated_gib" in row:
                text += f" {row['peak_allocated_gib']:>6.1f} GiB ({row['peak_reserved_gib']:.1f} taken)"
            if mode == "compiled":
                text += f", {row['graphs']} graphs by {row['unit']}, {row['compile_seconds']:.0f} s to compile"
            if mode in peer.get("ratio", {}):
                text += f"; wych {peer['ratio'][mode]:.2f}x"
            print(text + (", launch-bound" if row["launch_bound"] else ""))
        for key in ("eager_out_of_memory", "error"):
            if key in peer:
                print(f"  peer: {peer[key]}")
    if "wych" in result:
        row = result["wych"]
        print(f"  wych      {row['tokens_per_second']:>9,.0f} tokens/s {row['tflops']:>7.4g} TFLOP/s "
              f"{row['planned_gib']:>6.1f} GiB planned, {row['device_gib']:.1f} in use")
    for turn in result["wych_turns"]:
        if "error" in turn:
            print(f"  wych: {turn['error']}")
    sys.stdout.flush()


def ladder_lost(results, ladder):
    """Share of the speed that is lost from the fewest to the most experts, of each side that has both ends."""
    rungs = sorted((r for r in results if r["case"] in ladder), key=lambda r: r["sizes"]["experts"])
    lost = {}
    if len(rungs) < 2:
        return lost
    for side in ("eager", "compiled", "wych"):
        rates = [(r if side == "wych" else r["peers"][0]).get(side, {}).get("tflops") for r in rungs]
        if rates[0] and rates[-1]:
            lost[side] = 1 - rates[-1] / rates[0]
    ends = [rungs[0]["sizes"]["experts"], rungs[-1]["sizes"]["experts"]]
    if lost:
        print(f"lost from {ends[0]} to {ends[1]} experts at {rungs[0]['batch_tokens']} tokens (TFLOP/s): " +
              ", ".join(f"{side} {100 * share:.1f} %" for side, share in lost.items()))
    return {"experts": ends, "tokens": rungs[0]["batch_tokens"], **lost} if lost else {}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wych", default="build/cuda/wych", help="the binary; where it is missing the peer runs alone")
    parser.add_argument("--wych-argument", action="append", default=[], metavar="--A.B=V",
                        help="one more override for wych, as --wych-argument=--a.b=v; can be repeated")
    parser.add_argument("--cases", nargs="+", choices=list(shapes.CASES), default=DEFAULT_CASES)
    parser.add_argument("--peers", nargs="+", choices=["plain", "transformers"], help="default: by case")
    parser.add_argument("--steps", type=int, default=10, help="timed steps of each mode and of wych")
    parser.add_argument("--turns", type=int, choices=[1, 2], default=2, help="runs of wych for a case")
    parser.add_argument("--compile", choices=["layers", "model"], default="layers")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--no-eager", action="store_true")
    parser.add_argument("--check", action="store_true",
                        help="compare losses and gradients of the plain model with transformers and wych, and end")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="the same shapes at a size for tests of this script")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one run of wych")
    parser.add_argument("--commit", help="what the record says where git does not know")
    parser.add_argument("--json", help="file for the result")
    arguments = parser.parse_args()
    if arguments.steps < 10 and not arguments.tiny:
        parser.error(f"--steps {arguments.steps}: a median needs 10")
    if arguments.device == "cpu" and not (arguments.tiny or arguments.check):
        parser.error("--device cpu: these models need a GPU; add --tiny to test the script")
    return arguments


def main():
    arguments = parse_arguments()
    import torch
    import torch._dynamo

    # Past its limit of recompilations the compiler falls back to eager without a word.
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    if arguments.check:
        import models

        cases = {name: shapes.CASES[name] for name in ("olmoe", "ladder-16")}
        return not models.check(cases, arguments.device, arguments.wych, not arguments.no_compile)
    started = time.perf_counter()
    anchor_size = 256 if arguments.tiny else 8192
    record = {"kind": "moe-step", "what": "forward and backward of one microbatch, wych beside PyTorch",
              **measure.provenance(torch, arguments.device, arguments.commit), "flops": shapes.FLOPS,
              "data": "uniform random tokens, random normal weights, the router's own routing of them",
              "conditions": f"no optimizer; bf16 weights; medians of {arguments.steps} after 4 that warm up; "
                            "gradients bf16 (PyTorch), float32 (wych); "
                            f"{arguments.turns} runs of wych around the peer's",
              "anchor_size": anchor_size,
              "anchor_tflops_before": measure.product_tflops(torch, arguments.device, anchor_size), "results": []}
    for name in arguments.cases:
        case = shapes.CASES[name].tiny() if arguments.tiny else shapes.CASES[name]
        record["results"].append(compare(torch, name, case, arguments))
        measure.write_record(arguments.json, record)  # what there is survives a run that is cut short
    ladders = (shapes.LADDER, shapes.LARGE_LADDER)
    record["ladder_lost"] = [lost for lost in (ladder_lost(record["results"], ladder) for ladder in ladders) if lost]
    record["anchor_tflops_after"] = measure.product_tflops(torch, arguments.device, anchor_size)
    record["run_seconds"] = time.perf_counter() - started
    print(f"anchor: bfloat16 {anchor_size}^3 by PyTorch {record['anchor_tflops_before']:.4g} TFLOP/s before, "
          f"{record['anchor_tflops_after']:.4g} after; {record['run_seconds']:.0f} s in all")
    measure.write_record(arguments.json, record)
    # Too little memory is a result; anything else that failed is a fault.
    return any("error" in peer and not peer.get("out_of_memory") for r in record["results"] for peer in r["peers"])


if __name__ == "__main__":
    sys.exit(main())
