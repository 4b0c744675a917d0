"""The peers' models on PyTorch: plain_moe.py, and OlmoeForCausalLM of transformers with grouped experts.

Both are used through `Peer`: a loss of tokens and targets, and what can be compiled of it. `check` compares the two,
and wych beside them, at a size for that.
"""
import contextlib
import dataclasses
import functools
import os
import tempfile

import torch
from torch.nn import functional

import measure
import plain_moe


def causal_attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, expand=False, **rest):
    """[batch, heads, tokens, head_dim] each; `expand`: keys and values repeated to the heads of queries."""
    if expand:
        key, value = (t.repeat_interleave(query.shape[1] // t.shape[1], dim=1) for t in (key, value))
    output = functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling,
                                                     enable_gqa=key.shape[1] != query.shape[1])
    return output.transpose(1, 2).contiguous(), None


def only_cudnn(device):
    """Attention by cuDNN and by nothing else; on the CPU by what there is."""
    if device == "cpu":
        return contextlib.nullcontext()
    return torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION)


def choose_attention(device, case):
    """(whether keys and values must be repeated at these shapes, what computes attention)."""
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
        library = "cuDNN" if device == "cuda" else "PyTorch on the CPU"
        return expand, library + (", keys and values repeated to all heads" if expand else "")
    raise RuntimeError(f"cuDNN has no attention for {case.heads} heads of {case.head_dim}: {refused}")


def build_olmoe(case, device, expand, dtype=torch.bfloat16):
    import transformers

    # A name of its own: for "sdpa" transformers builds a mask [S, S] while the whole model is traced, and with a
    # mask there is no causal kernel.
    transformers.AttentionInterface.register("causal", functools.partial(causal_attention, expand=expand))
    config = transformers.OlmoeConfig(
        vocab_size=case.vocabulary, hidden_size=case.hidden, intermediate_size=case.expert_hidden,
        num_hidden_layers=case.layers, num_attention_heads=case.heads, num_key_value_heads=case.kv_heads,
        num_experts=case.experts, num_experts_per_tok=case.top_k, max_position_embeddings=case.sequence,
        rms_norm_eps=1e-5, use_cache=False, pad_token_id=None, eos_token_id=None, tie_word_embeddings=False)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation="causal", experts_implementation="grouped_mm")
    chosen = (model.config._attn_implementation, model.config._experts_implementation)
    if chosen != ("causal", "grouped_mm"):
        raise RuntimeError(f"this transformers chose {chosen} in place of causal attention and grouped products")
    return model.train()


class Peer:
    """A model with random weights in bfloat16 on a device."""

    def __init__(self, case, device):
        self.case, self.kind = case, case.peer
        expand, self.attention = choose_attention(device, case)
        if self.kind == "plain":
            with torch.device(device):
                self.model = plain_moe.PlainMoe(case, expand).to(torch.bfloat16)
        else:
            self.model = build_olmoe(case, device, expand)
        self.forward = self.model

    def loss(self, tokens, targets):
        """The mean loss; transformers' takes the tokens themselves, moved by one, as targets."""
        if self.kind == "plain":
            return self.forward(tokens, targets)
        return self.forward(input_ids=tokens, labels=tokens).loss

    def compile(self, unit):
        """Unit "layers" compiles the layer once for all layers, and the loss, where they are; "model" the whole."""
        if unit == "model":
            self.forward = torch.compile(self.model, dynamic=False)
        elif self.kind == "plain":
            for block in self.model.blocks:
                block.compile(dynamic=False)
            self.model.loss = torch.compile(self.model.loss, dynamic=False)
        else:
            for layer in self.model.model.layers:
                layer.compile(dynamic=False)
            self.model.loss_function = torch.compile(self.model.loss_function, dynamic=False)

    def num_parameters(self):
        return sum(parameter.numel() for parameter in self.model.parameters())

    def routing(self, tokens):
        """Loads of the experts: the fullest over the mean, in the median and the worst layer."""
        uneven = []

        def note(experts):
            counts = torch.bincount(experts.reshape(-1), minlength=self.case.experts).float()
            uneven.append((counts.max() / counts.mean()).item())

        if self.kind == "plain":
            hooks = [block.moe.register_forward_pre_hook(lambda moe, inputs: note(moe.route(inputs[0])[1]))
                     for block in self.model.blocks]
        else:
            hooks = [layer.mlp.gate.register_forward_hook(lambda gate, inputs, outputs: note(outputs[2]))
                     for layer in self.model.model.layers]
        with torch.no_grad():
            self.loss(tokens, tokens)
        for hook in hooks:
            hook.remove()
        uneven.sort()
        return {"mode": "the router's own at random initial weights, dropless", "dropped": 0,
                "fullest_over_mean_median_layer": uneven[len(uneven) // 2],
                "fullest_over_mean_worst_layer": uneven[-1]}


def largest_difference(mine, theirs):
    """Of the entries, as a share of the largest one."""
    return ((mine.float() - theirs.float()).abs().max() / theirs.float().abs().max()).item()


def distance(mine, theirs):
    """Of the tensors as vectors, as a share of the length."""
    return ((mine.float() - theirs.float()).norm() / theirs.float().norm()).item()


def wych_loss(binary, model, tokens):
    """Mean cross-entropy of each sequence's tokens but the first by `wych eval`, from a Hugging Face folder."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(os.path.join(folder, "model"))
        with open(os.path.join(folder, "ids"), "wb") as file:
            file.write(b"".join(int(token).to_bytes(2, "little") for token in tokens.flatten()))
        result = measure.run_wych(binary, ["eval", "--model", os.path.join(folder, "model"), "--data",
                                           os.path.join(folder, "ids"), "--seq", str(tokens.shape[1]), "--json"], 120)
    if "error" in result:
        raise RuntimeError(f"wych eval: {result['error']}")
    return result["CE loss"]


class Truth:
    """transformers' model of a tiny case in float32 on the CPU: tokens, the loss, every gradient."""

    def __init__(self, case):
        # A token more than the plain model sees: `wych eval` takes every token but a sequence's first as a target.
        whole = dataclasses.replace(case, sequence=case.sequence + 1)
        torch.manual_seed(1)
        self.case = case
        self.model = build_olmoe(whole, "cpu", expand=False, dtype=torch.float32)
        with torch.no_grad():  # large enough that every part has a say; norms that are not one
            for parameter in self.model.parameters():
                parameter.normal_(float(parameter.dim() == 1), 0.1)
        self.tokens = torch.randint(0, case.vocabulary, (case.sequences, whole.sequence))
        logits = self.model(input_ids=self.tokens).logits[:, :-1]
        loss = functional.cross_entropy(logits.flatten(0, 1), self.tokens[:, 1:].flatten())
        loss.backward()
        self.loss = loss.item()
        self.tensors = dict(self.model.named_parameters())

    def compare(self, what, chunks, device, dtype, compiled, loss_tolerance, gradient_tolerance, difference):
        """Prints a line on the plain model; whether its loss and gradients are within the tolerances."""
        mine = plain_moe.PlainMoe(dataclasses.replace(self.case, loss_chunks=chunks))
        left = dict(self.tensors)
        with torch.no_grad():
            for name, parameter, rows in mine.by_olmoe_name():
                parameter[rows] = left.pop(name)
        if left:
            raise RuntimeError(f"the plain model has no {sorted(left)}")
        mine = mine.to(device, dtype)
        if compiled:
            torch._dynamo.reset()  # a limit counts compilations of a function, whatever model they were for
        forward = torch.compile(mine, dynamic=False) if compiled else mine
        tokens = self.tokens.to(device)
        loss = forward(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        worst, where = 0.0, ""
        for name, parameter, rows in mine.by_olmoe_name():
            off = difference(parameter.grad[rows].cpu(), self.tensors[name].grad)
            if not off <= worst:  # a NaN is the worst
                worst, where = off, name
        off = abs(loss.item() - self.loss) / self.loss
        good = off <= loss_tolerance and worst <= gradient_tolerance
        print(f"{what}: loss {loss.item():.6f}, differs by {off:.1e}, gradients by {worst:.1e} ({where}): "
              f"{'ok' if good else 'DIFFERS'}", flush=True)
        return good


def check(cases, device, binary, compiled):
    """The plain model against transformers and `wych eval`, on tiny models; False where one differs.

    Losses and every gradient. In float32 on the CPU up to rounding: that decides what is computed. In bfloat16 on
    `device`, eager and compiled, roughly: a token whose router is undecided may go to another expert there.
    """
    if not binary or not os.path.exists(binary):
        print(f"wych: {binary} is not there, its loss is not compared")
        binary = None
    good = True
    for name, case in cases.items():
        truth = Truth(case.tiny())
        if binary:
            off = abs(wych_loss(binary, truth.model, truth.tokens) - truth.loss) / truth.loss
            good = good and off <= 1e-5
            verdict = "ok" if off <= 1e-5 else "DIFFERS"
            print(f"{name}, wych on transformers' folder: loss differs by {off:.1e}: {verdict}")
        for chunks in (1, 3):
            good &= truth.compare(f"{name}, plain in float32, {chunks} chunks", chunks, "cpu", torch.float32, False,
                                  1e-5, 1e-4, largest_difference)
            good &= truth.compare(f"{name}, plain in bfloat16 on {device}, {chunks} chunks", chunks, device,
                                  torch.bfloat16, False, 1e-2, 0.25, distance)
            if compiled:
                good &= truth.compare(f"{name}, the same compiled", chunks, device, torch.bfloat16, True, 1e-2, 0.25,
                                      distance)
    return good
