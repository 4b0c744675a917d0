"""The models that wych and its peers are measured on, what a token of them costs, and how wych is asked for them.

FLOPs of a token, forward and backward, with A = heads * head_dim, A_kv = kv heads * head_dim, S the sequence:

    layers * [6 (2 d A + 2 d A_kv) + 12 A (S + 1) / 2 + 6 d E + 18 d H k] + 6 d V

Causal attention counts once what it needs; embeddings, norms and the softmax count nothing, recomputation neither.
"""
import dataclasses

FLOPS = "layers [6 (2 d A + 2 d A_kv) + 6 A (S + 1) + 6 d E + 18 d H k] + 6 d V, a token"


@dataclasses.dataclass(frozen=True)
class Case:
    preset: str  # of wych
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    experts: int
    expert_hidden: int
    top_k: int
    sequence: int  # tokens
    sequences: int  # of a microbatch
    peer: str = "plain"  # "plain": plain_moe.py; "transformers": OlmoeForCausalLM
    loss_chunks: int = 1  # of the plain model: logits of so many parts of the microbatch, one after the other
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


RUNGS = (8, 16, 32, 64, 128)
OLMOE = Case("olmoe-1b-7b", 16, 2048, 16, 16, 64, 1024, 8, 4096, 4, peer="transformers")


def ladder(experts, sequences):
    # There is no preset of 16: wych_configuration says the experts.
    preset = f"ladder-2048-e{8 if experts == 16 else experts}"
    # With 8 sequences the logits in float32 and their gradients alone would be 26 GB.
    return Case(preset, 8, 2048, 16, 4, experts, 2048, 4, 8192, sequences, loss_chunks=max(1, sequences // 2))


LADDER = {f"ladder-{experts}": ladder(experts, 2) for experts in RUNGS}
LARGE_LADDER = {f"ladder-{experts}-x8": ladder(experts, 8) for experts in RUNGS}
CASES = {"olmoe": OLMOE, "olmoe-2": dataclasses.replace(OLMOE, sequences=2), **LADDER, **LARGE_LADDER}


def wych_configuration(case, device, tiny, batch_sequences=None, recompute=None, more=()):
    """Arguments that make `wych bench step` and `wych plan` build the case."""
    overrides = {"data.batch_sequences": batch_sequences or case.sequences,
                 "data.microbatch_sequences": case.sequences, "model.moe.experts": case.experts,
                 "run.device": device}
    if device == "cuda":
        overrides["precision.compute"] = "bf16"
    if recompute:
        overrides["memory.recompute"] = recompute
    if tiny:
        overrides |= {"model.vocab_size": case.vocabulary, "model.d_model": case.hidden,
                      "model.n_layers": case.layers, "model.sequence_length": case.sequence,
                      "model.attention.n_heads": case.heads, "model.attention.n_kv_heads": case.kv_heads,
                      "model.attention.head_dim": case.head_dim, "model.moe.expert_hidden": case.expert_hidden}
    return [f"preset:{case.preset}", *(f"--{key}={value}" for key, value in overrides.items()), *more]
