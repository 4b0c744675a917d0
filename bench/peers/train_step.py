#!/usr/bin/env python3
"""Whole training steps of OLMoE-1B-7B on one GPU: wych beside transformers with PyTorch's AdamW, in one run.

    python3 bench/peers/train_step.py --wych build/cuda/wych --json result.json
    python3 bench/peers/train_step.py --states bfloat16 --microbatches 4 --compile model
    python3 bench/peers/train_step.py --device cpu --tiny     # every line but the CUDA events

A step is 131,072 tokens: forward and backward of microbatches whose gradients add up, clipping to norm 1, AdamW.
Random tokens, random initial weights, routing as the router decides, nothing dropped. The peer is
OlmoeForCausalLM with grouped products and cuDNN attention, its weights and gradients in bfloat16, since float32
ones with their moments and activations do not fit beside each other. --states says what its optimizer holds:

- bfloat16: AdamW(fused=True) on the bfloat16 weights, moments in bfloat16, 8 bytes a parameter. What is left out:
  master weights, float32 moments and float32 gradients; small updates are lost in rounding.
- float32: master weights and moments in float32, 16 bytes a parameter, as wych has them but for its float32
  gradients (18). Each weight has an optimizer of its own, so that only one gradient at a time is float32.

For each of them the microbatch is the first of --microbatches that fits, and a mode (eager, compiled) for which
none does is reported as out of memory. wych runs at --wych-microbatch with --wych-recompute: fp32 master weights,
gradients and moments, whole steps captured. Its losses include the balance loss and the router's z loss.
"""
import argparse
import dataclasses
import math
import sys
import time

import measure
import shapes

BATCH_TOKENS = 131072
ADAMW = {"lr": 4e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "fused": True}


class Bfloat16State:
    """AdamW on the weights as they are."""

    def __init__(self, torch, model):
        self.torch, self.parameters = torch, list(model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, **ADAMW)

    def update(self):
        self.torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class Float32State:
    """AdamW on float32 copies, one weight after the other; the weights are rounded from them."""

    def __init__(self, torch, model):
        self.torch, self.parameters = torch, list(model.parameters())
        self.masters = [torch.nn.Parameter(p.detach().float()) for p in self.parameters]
        self.optimizers = [torch.optim.AdamW([master], **ADAMW) for master in self.masters]

    def update(self):
        torch = self.torch
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        with torch.no_grad():
            for parameter, master, optimizer in zip(self.parameters, self.masters, self.optimizers):
                master.grad = parameter.grad.float()
                optimizer.step()
                master.grad = parameter.grad = None
                parameter.copy_(master)


STATES = {"bfloat16": Bfloat16State, "float32": Float32State}


def time_mode(torch, device, case, state, compiled, arguments):
    """Steps of one mode with a fresh model, timed."""
    import models

    microbatches = arguments.batch_tokens // case.tokens
    with models.only_cudnn(device):
        torch.manual_seed(0)
        peer = models.Peer(case, device)
        optimizer = STATES[state](torch, peer.model)
        batches = [torch.randint(0, case.vocabulary, (microbatches, case.sequences, case.sequence), device=device)
                   for _ in range(2)]
        result = {"microbatch_sequences": case.sequences, "microbatches": microbatches, "attention": peer.attention,
                  "parameters": peer.num_parameters(), "routing": peer.routing(batches[0][0])}
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        if compiled:
            torch._dynamo.utils.counters.clear()
            peer.compile(arguments.compile)
        turn = iter(range(10**9))
        losses = []

        def step():
            batch = batches[next(turn) % len(batches)]
            total = torch.zeros((), device=device)
            for tokens in batch:
                loss = peer.loss(tokens, tokens) / microbatches
                loss.backward()
                total += loss.detach()
            optimizer.update()
            losses.append(total)

        start = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        result["first_step_seconds"] = time.perf_counter() - start
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        timing = measure.time_calls(torch, device, step, arguments.steps, warm_up=1)
        if compiled and torch._dynamo.utils.counters["stats"]["unique_graphs"] != graphs:
            raise RuntimeError("compiled again while the clock ran")
    losses = [loss.item() for loss in losses]
    if not all(math.isfinite(loss) for loss in losses):
        raise RuntimeError(f"the losses are {losses}")
    if losses[-1] == losses[-3]:  # of the same batch
        raise RuntimeError(f"the loss stands still at {losses[-1]}: nothing was trained")
    rate = arguments.batch_tokens / timing.median()
    result |= {**timing.record(), "tokens_per_second": rate, "tflops": 1e-12 * rate * case.flops_per_token(),
               "first_loss": losses[0], "last_loss": losses[-1], **measure.memory(torch, device)}
    return result | ({"unit": arguments.compile} if compiled else {})


def measure_mode(torch, case, state, compiled, arguments):
    """With the largest microbatch that fits; what did not fit is named."""
    tried = []
    for sequences in arguments.microbatches:
        result = {}
        try:
            result = time_mode(torch, arguments.device, dataclasses.replace(case, sequences=sequences), state,
                               compiled, arguments)
        except Exception as error:  # noqa: BLE001: a mode that fails is a result, the others still count
            result = {"error": f"{type(error).__name__}: {error}"[:400],
                      "out_of_memory": measure.out_of_memory(torch, error)}
        # Past the handler, whose error held the frames and with them the tensors.
        measure.release(torch, arguments.device, result)
        if not result.get("out_of_memory"):
            break
        tried.append(sequences)
    return result | {"state": state, "mode": "compiled" if compiled else "eager", "too_large_microbatches": tried}


def measure_wych(configuration, arguments):
    return measure.run_wych(arguments.wych, ["bench", "step", *configuration, "--steps", str(arguments.steps), "--json"],
                            arguments.timeout)


def print_row(row, ratio):
    head = f"  {row['state']:<9} {row['mode']:<9}"
    if "error" in row:
        print(f"{head} {row['error']}")
        return
    text = (f"{head} {row['tokens_per_second']:>8,.0f} tokens/s {row['tflops']:>7.4g} TFLOP/s, "
            f"{row['microbatch_sequences']} sequences a microbatch, loss {row['first_loss']:.3f} -> {row['last_loss']:.3f}")
    if "peak_allocated_gib" in row:
        text += f", {row['peak_allocated_gib']:.1f} GiB ({row['peak_reserved_gib']:.1f} taken)"
    print(text + (f"; wych {ratio:.2f}x" if ratio else "") + (", launch-bound" if row["launch_bound"] else ""))
    sys.stdout.flush()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wych", default="build/cuda/wych", help="the binary; where it is missing the peer runs alone")
    parser.add_argument("--wych-argument", action="append", default=[], metavar="--A.B=V",
                        help="one more override for wych, as --wych-argument=--a.b=v; can be repeated")
    parser.add_argument("--wych-microbatch", type=int, default=2, help="sequences of wych's microbatch")
    parser.add_argument("--wych-recompute", default="none", choices=["none", "selective", "block"])
    parser.add_argument("--states", nargs="+", choices=list(STATES), default=list(STATES))
    parser.add_argument("--modes", nargs="+", choices=["eager", "compiled"], default=["eager", "compiled"])
    parser.add_argument("--microbatches", nargs="+", type=int, default=[4, 2, 1], metavar="SEQUENCES",
                        help="of the peer's microbatch, the first that fits")
    parser.add_argument("--steps", type=int, default=10, help="timed steps of each mode and of wych")
    parser.add_argument("--turns", type=int, choices=[1, 2], default=2, help="runs of wych")
    parser.add_argument("--compile", choices=["layers", "model"], default="layers")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="the same model at a size for tests of this script")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one run of wych")
    parser.add_argument("--commit", help="what the record says where git does not know")
    parser.add_argument("--json", help="file for the result")
    arguments = parser.parse_args()
    arguments.batch_tokens = BATCH_TOKENS
    if arguments.tiny:
        arguments.batch_tokens = 8 * shapes.OLMOE.tiny().sequence
    elif arguments.steps < 5:
        parser.error(f"--steps {arguments.steps}: a median of whole steps needs 5")
    if arguments.device == "cpu" and not arguments.tiny:
        parser.error("--device cpu: this model needs a GPU; add --tiny to test the script")
    sequences = arguments.batch_tokens // (shapes.OLMOE.tiny() if arguments.tiny else shapes.OLMOE).sequence
    for microbatch in [*arguments.microbatches, arguments.wych_microbatch]:
        if microbatch < 1 or sequences % microbatch:
            parser.error(f"a microbatch of {microbatch} sequences: a step has {sequences}, not a multiple of it")
    return arguments


def main():
    arguments = parse_arguments()
    import torch
    import torch._dynamo

    torch._dynamo.config.fail_on_recompile_limit_hit = True
    started = time.perf_counter()
    case = shapes.OLMOE.tiny() if arguments.tiny else shapes.OLMOE
    anchor_size = 256 if arguments.tiny else 8192
    configuration = shapes.wych_configuration(
        dataclasses.replace(case, sequences=arguments.wych_microbatch), arguments.device, arguments.tiny,
        batch_sequences=arguments.batch_tokens // case.sequence, recompute=arguments.wych_recompute,
        more=arguments.wych_argument)
    record = {"kind": "train-step", "what": "whole steps of OLMoE-1B-7B with AdamW, wych beside transformers",
              **measure.provenance(torch, arguments.device, arguments.commit), "flops": shapes.FLOPS,
              "data": "uniform random tokens, random normal weights, the router's own routing of them",
              "conditions": f"medians of {arguments.steps} after 2 that warm up; {arguments.turns} runs of wych around "
                            "the peer's; wych: fp32 master weights, gradients and moments; the peer: bf16 weights and "
                            "gradients, no balance or z loss, its optimizer's state in the dtype named",
              "batch_tokens": arguments.batch_tokens, "sizes": dataclasses.asdict(case),
              "gflop_per_token": 1e-9 * case.flops_per_token(), "wych_arguments": configuration,
              "anchor_size": anchor_size,
              "anchor_tflops_before": measure.product_tflops(torch, arguments.device, anchor_size)}
    turns = [measure_wych(configuration, arguments)]
    rows = record["results"] = []
    for state in arguments.states:
        for mode in arguments.modes:
            rows.append(measure_mode(torch, case, state, mode == "compiled", arguments))
            measure.write_record(arguments.json, record)
    if arguments.turns == 2 and "error" not in turns[0]:
        turns.append(measure_wych(configuration, arguments))
    record["wych_turns"] = turns
    ours = measure.mean_of_turns(turns)
    if ours:
        record["wych"] = ours | {"tflops": 1e-12 * ours["tokens_per_second"] * case.flops_per_token(),
                                 "microbatch_sequences": arguments.wych_microbatch,
                                 "recompute": arguments.wych_recompute}
    print(f"OLMoE-1B-7B, steps of {arguments.batch_tokens} tokens, {record['gflop_per_token']:.3f} GFLOP a token")
    for row in rows:
        if ours and "tokens_per_second" in row:
            row["ratio"] = ours["tokens_per_second"] / row["tokens_per_second"]
        print_row(row, row.get("ratio"))
    if ours:
        print(f"  wych {record['wych']['tokens_per_second']:,.0f} tokens/s {record['wych']['tflops']:.4g} TFLOP/s, "
              f"{arguments.wych_microbatch} sequences a microbatch, recompute {arguments.wych_recompute}, "
              f"{ours['planned_gib']:.1f} GiB planned, {ours['device_gib']:.1f} in use")
    for turn in turns:
        if "error" in turn:
            print(f"  wych: {turn['error']}")
    record["anchor_tflops_after"] = measure.product_tflops(torch, arguments.device, anchor_size)
    record["run_seconds"] = time.perf_counter() - started
    print(f"anchor: bfloat16 {anchor_size}^3 by PyTorch {record['anchor_tflops_before']:.4g} TFLOP/s before, "
          f"{record['anchor_tflops_after']:.4g} after; {record['run_seconds']:.0f} s in all")
    measure.write_record(arguments.json, record)
    # Too little memory is a result; anything else that failed is a fault.
    return any("error" in row and not row["out_of_memory"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
