"""A mixture of experts as one writes it in plain PyTorch today: torch._grouped_mm for the experts, SDPA, fused weights.

The model is wych's ladder and OLMoE: pre-norm, RMS norms of queries and keys over all heads, half-rotation RoPE,
softmax router with the k largest probabilities as they are, SwiGLU experts, nothing dropped. It is written to be
fast as a peer: rows go to the experts and back by gathers in both directions (the backward of an index would add
with atomics), q, k, v and gate, up are one product each, and the head's loss can run in chunks that compute their
gradient at once, so that large batches fit. `by_olmoe_name` maps
its tensors to those of transformers' OLMoE.
"""
import torch
from torch import nn
from torch.nn import functional


class ToExperts(torch.autograd.Function):
    """x[order // k]: rows in the order of their experts. The backward gathers and adds the k rows of a token."""

    @staticmethod
    def forward(ctx, x, order, inverse, k):  # [tokens, d], [tokens k], [tokens k] -> [tokens k, d]
        ctx.save_for_backward(inverse)
        ctx.k = k
        return x[order // k]

    @staticmethod
    def backward(ctx, gradient):
        (inverse,) = ctx.saved_tensors
        return gradient[inverse].view(-1, ctx.k, gradient.shape[-1]).sum(1), None, None, None


class FromExperts(torch.autograd.Function):
    """rows[inverse]: a permutation, so that the backward is a gather by the other one."""

    @staticmethod
    def forward(ctx, rows, order, inverse):
        ctx.save_for_backward(order)
        return rows[inverse]

    @staticmethod
    def backward(ctx, gradient):
        (order,) = ctx.saved_tensors
        return gradient[order], None, None


class ChunkedLoss(torch.autograd.Function):
    """Mean cross-entropy of x weight^T in parts: logits of one part at a time, its gradient taken in the forward."""

    @staticmethod
    def forward(ctx, x, weight, targets, chunks):  # [tokens, d], [V, d], [tokens]
        tokens = x.shape[0]
        loss = torch.zeros((), device=x.device, dtype=torch.float32)
        dx, dw = [], torch.zeros_like(weight)
        for rows, wanted in zip(x.chunk(chunks), targets.chunk(chunks)):
            logits = (rows @ weight.t()).float()
            lse = torch.logsumexp(logits, 1, keepdim=True)
            loss = loss + (lse - logits.gather(1, wanted[:, None])).sum()
            slope = (logits - lse).exp_()
            slope.scatter_add_(1, wanted[:, None], torch.full_like(lse, -1.0))
            slope = (slope / tokens).to(x.dtype)
            dx.append(slope @ weight)
            dw.addmm_(slope.t(), rows)
        ctx.save_for_backward(torch.cat(dx), dw)
        return loss / tokens

    @staticmethod
    def backward(ctx, gradient):
        dx, dw = ctx.saved_tensors
        return (dx * gradient).to(dx.dtype), (dw * gradient).to(dw.dtype), None, None


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return functional.rms_norm(x, self.weight.shape, self.weight, 1e-5)


def rotate(x, cos, sin):  # [batch, heads, tokens, head_dim]
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, case, expand):
        super().__init__()
        self.widths = [case.heads * case.head_dim, case.kv_heads * case.head_dim, case.kv_heads * case.head_dim]
        self.head_dim, self.groups, self.expand = case.head_dim, case.heads // case.kv_heads, expand
        self.wqkv = nn.Linear(case.hidden, sum(self.widths), bias=False)
        self.wo = nn.Linear(self.widths[0], case.hidden, bias=False)
        self.q_norm, self.k_norm = Norm(self.widths[0]), Norm(self.widths[1])

    def forward(self, x, cos, sin):
        def heads(t):
            return t.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

        q, k, v = self.wqkv(x).split(self.widths, dim=-1)
        q, k, v = rotate(heads(self.q_norm(q)), cos, sin), rotate(heads(self.k_norm(k)), cos, sin), heads(v)
        if self.expand:
            k, v = (t.repeat_interleave(self.groups, dim=1) for t in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True,
                                                    enable_gqa=self.groups > 1 and not self.expand)
        return self.wo(y.transpose(1, 2).flatten(2))


class Experts(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.top_k, self.num_experts = case.top_k, case.experts
        self.router = nn.Linear(case.hidden, case.experts, bias=False)
        self.w13 = nn.Parameter(torch.empty(case.experts, 2 * case.expert_hidden, case.hidden))
        self.w2 = nn.Parameter(torch.empty(case.experts, case.hidden, case.expert_hidden))

    def route(self, x):
        """Weights and experts of each token, [tokens, k] both."""
        return torch.topk(functional.softmax(self.router(x), dim=-1, dtype=torch.float32), self.top_k, dim=-1)

    def forward(self, x):  # [tokens, d]
        weights, experts = self.route(x)
        order = torch.argsort(experts.flatten(), stable=True)
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(order.numel(), device=x.device)
        bounds = torch.arange(self.num_experts, device=x.device, dtype=experts.dtype)
        ends = torch.searchsorted(experts.flatten()[order], bounds, right=True, out_int32=True)
        rows = ToExperts.apply(x, order, inverse, self.top_k)
        gate, up = torch._grouped_mm(rows, self.w13.transpose(1, 2), offs=ends).chunk(2, dim=-1)
        rows = torch._grouped_mm(functional.silu(gate) * up, self.w2.transpose(1, 2), offs=ends)
        rows = FromExperts.apply(rows, order, inverse).view(-1, self.top_k, x.shape[-1])
        return (rows * weights[..., None].to(rows.dtype)).sum(1)


class Block(nn.Module):
    def __init__(self, case, expand):
        super().__init__()
        self.attention_norm, self.attention = Norm(case.hidden), Attention(case, expand)
        self.moe_norm, self.moe = Norm(case.hidden), Experts(case)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.moe(self.moe_norm(x).flatten(0, 1)).view_as(x)


class PlainMoe(nn.Module):
    """`expand`: keys and values are repeated to the heads of queries, for attention that has no grouped heads."""

    def __init__(self, case, expand=False):
        super().__init__()
        self.loss_chunks = case.loss_chunks
        self.embed = nn.Embedding(case.vocabulary, case.hidden)
        self.blocks = nn.ModuleList(Block(case, expand) for _ in range(case.layers))
        self.final_norm = Norm(case.hidden)
        self.head = nn.Linear(case.hidden, case.vocabulary, bias=False)
        angles = torch.outer(torch.arange(case.sequence).float(),
                             10000.0 ** (-torch.arange(0, case.head_dim, 2).float() / case.head_dim))
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos(), persistent=False)
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin(), persistent=False)
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0, 0.02)

    def forward(self, tokens, targets):  # [batch, tokens] both; the mean loss
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.loss(self.final_norm(x), targets)

    def loss(self, x, targets):
        if self.loss_chunks > 1:
            return ChunkedLoss.apply(x.flatten(0, 1), self.head.weight, targets.flatten(), self.loss_chunks)
        return functional.cross_entropy(self.head(x).flatten(0, 1).float(), targets.flatten())

    def by_olmoe_name(self):
        """(name in transformers' OLMoE, parameter, slice of its first dimension) of every tensor there."""
        whole = slice(None)
        yield "model.embed_tokens.weight", self.embed.weight, whole
        yield "model.norm.weight", self.final_norm.weight, whole
        yield "lm_head.weight", self.head.weight, whole
        for n, block in enumerate(self.blocks):
            attention, moe, layer = block.attention, block.moe, f"model.layers.{n}"
            first = 0
            for name, width in zip("qkv", attention.widths):
                yield f"{layer}.self_attn.{name}_proj.weight", attention.wqkv.weight, slice(first, first + width)
                first += width
            yield f"{layer}.self_attn.o_proj.weight", attention.wo.weight, whole
            yield f"{layer}.self_attn.q_norm.weight", attention.q_norm.weight, whole
            yield f"{layer}.self_attn.k_norm.weight", attention.k_norm.weight, whole
            yield f"{layer}.input_layernorm.weight", block.attention_norm.weight, whole
            yield f"{layer}.post_attention_layernorm.weight", block.moe_norm.weight, whole
            yield f"{layer}.mlp.gate.weight", moe.router.weight, whole
            yield f"{layer}.mlp.experts.gate_up_proj", moe.w13, whole
            yield f"{layer}.mlp.experts.down_proj", moe.w2, whole
