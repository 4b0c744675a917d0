#!/usr/bin/env python3
"""Forward and backward of mixtures of experts on one GPU: wych beside transformers on PyTorch, in one run.

    python3 bench/peers/moe_step.py --wych build/cuda/wych --json result.json
    python3 bench/peers/moe_step.py --cases olmoe olmoe-2 --compile model
    python3 bench/peers/moe_step.py --device cpu --tiny     # every line but the CUDA events, in a minute

One microbatch, no optimizer: bfloat16 weights, random tokens, random initial weights, routing as the router
decides, nothing dropped, nothing recomputed. Cases:

- olmoe: OLMoE-1B-7B at 4 x 4096 tokens; olmoe-2: at 2 x 4096.
- ladder-E: 8 layers of d 2048, 16 heads on 4 of keys and values, top-4 of E experts of 2048, 2 x 8192 tokens.

The peer is OlmoeForCausalLM for all of them: it has the norms of queries and keys over all heads that the
presets have, so that both sides hold the same parameters to the last one (checked against `wych plan`). Its
experts are grouped products (experts_implementation="grouped_mm"), its attention is PyTorch's with cuDNN and no
other kernel allowed; attention's scale is head_dim^-0.5 on both sides. It runs eager and compiled. --compile
layers (default) compiles the decoder layer, once for all layers, and the loss; --compile model the whole model:
the compiler then fuses across layers and takes longer. Shapes are static, a compilation while the clock runs is
an error.

Where the two sides differ: gradients are bfloat16 in PyTorch and written fresh, float32 in wych; wych adds the
balance loss and the router's z loss, the peer is spared them.

wych measures before and after PyTorch (--turns 1: only before) in a process of its own, and the ratio takes its
mean, so that a drift of the clock meets both. The peer's memory is what PyTorch's allocator had in use at most
and what it had taken from the device; wych's is what it planned.

FLOPs of a token, forward and backward, with A = heads * head_dim, A_kv = kv heads * head_dim, S the sequence:

    layers * [6 (2 d A + 2 d A_kv) + 12 A (S + 1) / 2 + 6 d E + 18 d H k] + 6 d V

Causal attention counts once what it needs; embeddings, norms and the softmax count nothing.
"""
import argparse
import contextlib
import dataclasses
import functools
import gc
import math
import sys
import time

import measure


@dataclasses.dataclass(frozen=True)
class Case:
    preset: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    experts: int
    expert_hidden: int
    top_k: int
    sequence: int  # tokens
    sequences: int
    vocabulary: int = 50304

    @property
    def head_dim(self):
        return self.hidden // self.heads

    @property
    def tokens(self):
        return self.sequences * self.sequence

    def flops_per_token(self):
        wide, narrow = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = 6 * (2 * self.hidden * wide + 2 * self.hidden * narrow) + 12 * wide * (self.sequence + 1) / 2
        experts = 6 * self.hidden * self.experts + 18 * self.hidden * self.expert_hidden * self.top_k
        return self.layers * (attention + experts) + 6 * self.hidden * self.vocabulary

    def tiny(self):
        return dataclasses.replace(self, layers=2, hidden=64, heads=4, kv_heads=4 * self.kv_heads // self.heads,
                                   experts=min(self.experts, 16), expert_hidden=32, sequence=64, vocabulary=256)


OLMOE = Case("olmoe-1b-7b", 16, 2048, 16, 16, 64, 1024, 8, 4096, 4)
LADDER = {f"ladder-{experts}": Case(f"ladder-2048-e{experts}", 8, 2048, 16, 4, experts, 2048, 4, 8192, 2)
          for experts in (8, 32, 64, 128)}
CASES = {"olmoe": OLMOE, "olmoe-2": dataclasses.replace(OLMOE, sequences=2), **LADDER}
DEFAULT_CASES = ["olmoe", *LADDER]


def causal_attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, expand=False, **rest):
    """[batch, heads, tokens, head_dim] each; `expand`: keys and values repeated to the heads of queries."""
    from torch.nn import functional

    if expand:
        key, value = (t.repeat_interleave(query.shape[1] // t.shape[1], dim=1) for t in (key, value))
    output = functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling,
                                                     enable_gqa=key.shape[1] != query.shape[1])
    return output.transpose(1, 2).contiguous(), None


def only_cudnn(torch, device):
    if device == "cpu":
        return contextlib.nullcontext()
    return torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION)


def choose_attention(torch, device, case):
    """Registers the attention that cuDNN takes at these shapes, and says which it is."""
    import transformers

    def random(heads):
        shape = (1, case.sequence, heads, case.head_dim)
        return torch.randn(shape, device=device, dtype=torch.bfloat16).transpose(1, 2).requires_grad_()

    refused = None
    for expand in [False] if case.heads == case.kv_heads else [False, True]:
        query, key, value = random(case.heads), random(case.kv_heads), random(case.kv_heads)
        try:
            causal_attention(None, query, key, value, None, expand=expand)[0].sum().backward()
        except RuntimeError as error:
            if measure.out_of_memory(torch, error):
                raise
            refused = error
            continue
        # A name of its own: for "sdpa" transformers builds a mask [S, S] while the whole model is traced, and
        # with a mask there is no causal kernel.
        transformers.AttentionInterface.register("causal", functools.partial(causal_attention, expand=expand))
        library = "cuDNN" if device == "cuda" else "PyTorch on the CPU"
        return library + (", keys and values repeated to all heads" if expand else "")
    raise RuntimeError(f"cuDNN has no attention for {case.heads} heads of {case.head_dim}: {refused}")


def build_model(torch, device, case):
    import transformers

    config = transformers.OlmoeConfig(
        vocab_size=case.vocabulary, hidden_size=case.hidden, intermediate_size=case.expert_hidden,
        num_hidden_layers=case.layers, num_attention_heads=case.heads, num_key_value_heads=case.kv_heads,
        num_experts=case.experts, num_experts_per_tok=case.top_k, max_position_embeddings=case.sequence,
        rms_norm_eps=1e-5, use_cache=False, pad_token_id=None, eos_token_id=None, tie_word_embeddings=False)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, attn_implementation="causal", experts_implementation="grouped_mm")
    chosen = (model.config._attn_implementation, model.config._experts_implementation)
    if chosen != ("causal", "grouped_mm"):
        raise RuntimeError(f"this transformers chose {chosen} in place of causal attention and grouped products")
    return model.train()


def routing_of(torch, model, tokens):
    """Loads of the experts: the fullest over the mean, in the median and the worst layer."""
    uneven = []

    def note(module, inputs, outputs):
        counts = torch.bincount(outputs[2].reshape(-1), minlength=module.num_experts).float()
        uneven.append((counts.max() / counts.mean()).item())

    hooks = [layer.mlp.gate.register_forward_hook(note) for layer in model.model.layers]
    with torch.no_grad():
        model.model(input_ids=tokens)
    for hook in hooks:
        hook.remove()
    uneven.sort()
    return {"mode": "the router's own at initial weights, dropless", "dropped": 0,
            "fullest_over_mean_median_layer": uneven[len(uneven) // 2], "fullest_over_mean_worst_layer": uneven[-1]}


def compile_model(torch, model, unit):
    """What to call in the model's place; unit "layers" compiles its parts where they are."""
    if unit == "model":
        return torch.compile(model, dynamic=False)
    for layer in model.model.layers:
        layer.compile(dynamic=False)
    model.loss_function = torch.compile(model.loss_function, dynamic=False)
    return model


def graphs_compiled(torch):
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def time_steps(torch, device, case, model, forward, batches, repeats):
    """Forward and backward, timed; the loss of the first batch is a check of what ran."""
    turn = iter(range(10**9))

    def step(tokens=None):
        tokens = batches[next(turn) % len(batches)] if tokens is None else tokens
        loss = forward(input_ids=tokens, labels=tokens).loss
        loss.backward()
        model.zero_grad(set_to_none=True)
        return loss.detach()

    model.zero_grad(set_to_none=True)
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
    rate = case.tokens / timing.median()
    result = {**timing.record(), "tokens_per_second": rate, "tflops": 1e-12 * rate * case.flops_per_token(),
              "first_step_seconds": first, "loss": loss}
    if device == "cuda":
        result["peak_allocated_gib"] = torch.cuda.max_memory_allocated() / 2**30
        result["peak_reserved_gib"] = torch.cuda.max_memory_reserved() / 2**30
    return result


def run_peer(torch, case, arguments, result):
    """Fills `result`; a failure part of the way leaves what was measured before."""
    device = arguments.device
    with only_cudnn(torch, device):
        result["attention"] = choose_attention(torch, device, case)
        torch.manual_seed(0)
        model = build_model(torch, device, case)
        result["parameters"] = sum(p.numel() for p in model.parameters())
        batches = [torch.randint(0, case.vocabulary, (case.sequences, case.sequence), device=device)
                   for _ in range(4)]
        result["routing"] = routing_of(torch, model, batches[0])
        if not arguments.no_eager:
            result["eager"] = time_steps(torch, device, case, model, model, batches, arguments.steps)
        if arguments.no_compile:
            return
        torch._dynamo.utils.counters.clear()
        forward = compile_model(torch, model, arguments.compile)
        result["compiled"] = time_steps(torch, device, case, model, forward, batches, arguments.steps)
        result["compiled"] |= {
            "unit": arguments.compile, "graphs": graphs_compiled(torch),
            "graph_breaks": sum(torch._dynamo.utils.counters["graph_break"].values()),
            # The first step less a later one: caches of compiled kernels are used as found.
            "compile_seconds": result["compiled"]["first_step_seconds"] - result["compiled"]["seconds"]}
        if "eager" in result:
            difference = abs(result["eager"]["loss"] - result["compiled"]["loss"])
            if difference > 0.02 * abs(result["eager"]["loss"]):
                raise RuntimeError(f"the compiled model's loss differs from the eager one's by {difference}")


def measure_peer(torch, case, arguments):
    result = {}
    try:
        run_peer(torch, case, arguments, result)
    except Exception as error:  # noqa: BLE001: a case that fails is a result, the others still count
        result["out_of_memory"] = measure.out_of_memory(torch, error)
        result["error"] = f"{type(error).__name__}: {error}"[:400]
    # Past the handler, whose error held the frames and with them the tensors.
    torch._dynamo.reset()
    gc.collect()
    if arguments.device == "cuda":
        torch.cuda.empty_cache()
        result["left_allocated_bytes"] = torch.cuda.memory_allocated()
    return result


def wych_configuration(case, arguments):
    overrides = {"data.batch_sequences": case.sequences, "data.microbatch_sequences": case.sequences,
                 "run.device": arguments.device}
    if arguments.device == "cuda":
        overrides["precision.compute"] = "bf16"
    if arguments.tiny:
        overrides |= {"model.vocab_size": case.vocabulary, "model.d_model": case.hidden,
                      "model.n_layers": case.layers, "model.sequence_length": case.sequence,
                      "model.attention.n_heads": case.heads, "model.attention.n_kv_heads": case.kv_heads,
                      "model.attention.head_dim": case.head_dim, "model.moe.experts": case.experts,
                      "model.moe.expert_hidden": case.expert_hidden}
    return [f"preset:{case.preset}", *(f"--{key}={value}" for key, value in overrides.items()),
            *arguments.wych_argument]


def measure_wych(case, arguments):
    return measure.run_wych(arguments.wych, ["bench", "step", *wych_configuration(case, arguments), "--steps",
                                             str(arguments.steps), "--forward-backward", "--json"], arguments.timeout)


def compare(torch, name, case, arguments):
    turns = [measure_wych(case, arguments)]
    peer = measure_peer(torch, case, arguments)
    if arguments.turns == 2 and "error" not in turns[0]:
        turns.append(measure_wych(case, arguments))
    plan = measure.run_wych(arguments.wych, ["plan", *wych_configuration(case, arguments), "--json"], 60)
    result = {"case": name, "sizes": dataclasses.asdict(case), "batch_tokens": case.tokens,
              "gflop_per_token": 1e-9 * case.flops_per_token(), "recompute": "none", "peer": peer, "wych_turns": turns}
    if "parameters" in plan and "parameters" in peer:
        result["wych_parameters"] = plan["parameters"]
        if plan["parameters"] != peer["parameters"]:
            peer.setdefault("error", f"{peer['parameters']} parameters, and wych has {plan['parameters']}")
    rates = [turn["tokens_per_second"] for turn in turns if "error" not in turn]
    if rates:
        rate = sum(rates) / len(rates)
        result["wych"] = {"tokens_per_second": rate, "tflops": 1e-12 * rate * case.flops_per_token(),
                          "planned_gib": turns[0].get("planned_bytes", 0) / 2**30}
        result["ratio"] = {mode: rate / peer[mode]["tokens_per_second"] for mode in ("eager", "compiled")
                           if mode in peer}
    print_case(result)
    return result


def print_case(result):
    peer = result["peer"]
    print(f"{result['case']}: {result['batch_tokens']} tokens, {result['gflop_per_token']:.3f} GFLOP a token, "
          f"{peer.get('parameters', 0):,} parameters, attention by {peer.get('attention', '?')}")
    for mode in ("eager", "compiled"):
        if mode not in peer:
            continue
        row = peer[mode]
        text = f"  {mode:<9} {row['tokens_per_second']:>9,.0f} tokens/s {row['tflops']:>7.4g} TFLOP/s"
        if "peak_allocated_gib" in row:
            text += f" {row['peak_allocated_gib']:>6.1f} GiB ({row['peak_reserved_gib']:.1f} taken)"
        if mode == "compiled":
            text += f", {row['graphs']} graphs by {row['unit']}, {row['compile_seconds']:.0f} s to compile"
        if "ratio" in result:
            text += f"; wych {result['ratio'][mode]:.2f}x"
        print(text + (", launch-bound" if row["launch_bound"] else ""))
    if "wych" in result:
        row = result["wych"]
        print(f"  wych      {row['tokens_per_second']:>9,.0f} tokens/s {row['tflops']:>7.4g} TFLOP/s "
              f"{row['planned_gib']:>6.1f} GiB planned")
    for side, error in [("peer", peer.get("error"))] + [("wych", turn.get("error")) for turn in result["wych_turns"]]:
        if error:
            print(f"  {side}: {error}")
    sys.stdout.flush()


def ladder_lost(results):
    """Share of the speed that is lost from the fewest to the most experts, of each side that has both ends."""
    rungs = sorted((r for r in results if r["case"] in LADDER), key=lambda r: r["sizes"]["experts"])
    lost = {}
    for side in ("eager", "compiled", "wych"):
        rates = [(r if side == "wych" else r["peer"]).get(side, {}).get("tflops") for r in rungs]
        if len(rates) >= 2 and rates[0] and rates[-1]:
            lost[side] = 1 - rates[-1] / rates[0]
    if lost:
        ends = [rungs[0]["sizes"]["experts"], rungs[-1]["sizes"]["experts"]]
        print(f"lost from {ends[0]} to {ends[1]} experts (TFLOP/s): " +
              ", ".join(f"{side} {100 * share:.1f} %" for side, share in lost.items()))
    return lost


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wych", default="build/cuda/wych", help="the binary; where it is missing the peer runs alone")
    parser.add_argument("--wych-argument", action="append", default=[], metavar="--A.B=V",
                        help="one more override for wych, as --wych-argument=--a.b=v; can be repeated")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=DEFAULT_CASES)
    parser.add_argument("--steps", type=int, default=10, help="timed steps of each mode and of wych")
    parser.add_argument("--turns", type=int, choices=[1, 2], default=2, help="runs of wych for a case")
    parser.add_argument("--compile", choices=["layers", "model"], default="layers")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--no-eager", action="store_true")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="the same shapes at a size for tests of this script")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one run of wych")
    parser.add_argument("--commit", help="what the record says where git does not know")
    parser.add_argument("--json", help="file for the result")
    arguments = parser.parse_args()
    if arguments.steps < 10 and not arguments.tiny:
        parser.error(f"--steps {arguments.steps}: a median needs 10")
    if arguments.device == "cpu" and not arguments.tiny:
        parser.error("--device cpu: these models need a GPU; add --tiny to test the script")
    return arguments


def main():
    arguments = parse_arguments()
    import torch
    import torch._dynamo

    # Past its limit of recompilations the compiler falls back to eager without a word.
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    started = time.perf_counter()
    anchor_size = 256 if arguments.tiny else 8192
    record = {"what": "forward and backward of one microbatch, wych beside transformers",
              **measure.provenance(torch, arguments.device, arguments.commit),
              "flops": "layers [6 (2 d A + 2 d A_kv) + 6 A (S + 1) + 6 d E + 18 d H k] + 6 d V, a token",
              "conditions": f"no optimizer; bf16 weights; random tokens and weights; medians of {arguments.steps}; "
                            "gradients bf16 (PyTorch), float32 (wych)",
              "anchor_size": anchor_size,
              "anchor_tflops_before": measure.product_tflops(torch, arguments.device, anchor_size), "results": []}
    for name in arguments.cases:
        case = CASES[name].tiny() if arguments.tiny else CASES[name]
        record["results"].append(compare(torch, name, case, arguments))
        measure.write_record(arguments.json, record)  # what there is survives a run that is cut short
    record["ladder_lost"] = ladder_lost(record["results"])
    record["anchor_tflops_after"] = measure.product_tflops(torch, arguments.device, anchor_size)
    record["run_seconds"] = time.perf_counter() - started
    print(f"anchor: bfloat16 {anchor_size}^3 by PyTorch {record['anchor_tflops_before']:.4g} TFLOP/s before, "
          f"{record['anchor_tflops_after']:.4g} after; {record['run_seconds']:.0f} s in all")
    measure.write_record(arguments.json, record)
    # Too little memory is a result; anything else that failed is a fault.
    return any("error" in r["peer"] and not r["peer"].get("out_of_memory") for r in record["results"])


if __name__ == "__main__":
    sys.exit(main())
