// What cuDNN computes of attention (cuda_attention.h), as host code plans it without a device or the library:
// which problems, in which pieces, with how much scratch. The numbers bound what the library asks for; a
// library that asks for more is refused when its plans are built.
#pragma once

#include <compare>

#include "base/cuda_target.h"
#include "base/types.h"

namespace wych::device {

// Causal attention in bfloat16 over qkv[sequences * sequence, (query_heads + 2 kv_heads) head_dim] (queries,
// keys, values side by side), without documents. Key j is visible to query i of its sequence iff j <= i and,
// if window > 0, i - j < window.
struct FusedAttention {
  i64 sequences = 1;
  i64 sequence = 0;
  i64 query_heads = 0;
  i64 kv_heads = 0;
  i64 head_dim = 0;
  i64 window = 0;
  double scale = 1;
  bool deterministic = true;  // the gradient's sums in one order: more scratch, less speed
  auto operator<=>(const FusedAttention&) const = default;

  [[nodiscard]] i64 group() const { return query_heads / kv_heads; }
  [[nodiscard]] i64 width() const { return (query_heads + 2 * kv_heads) * head_dim; }
};

// Whether cuDNN is to compute it: Hopper, head_dim a multiple of 8 up to 128, sequences of whole tiles of 128
// (older libraries read lengths from the host otherwise), scratch within bounds.
bool fused_attention_takes(const FusedAttention& problem, const CudaTarget& target);

// The gradient goes piece by piece, each of the same shape, so that one plan serves all: some whole
// sequences, or some key heads of one sequence with their query heads.
FusedAttention gradient_piece(const FusedAttention& problem);

// Bytes of scratch: of the forward, and of one piece of the gradient, which pieces use in turn.
i64 fused_forward_workspace(const FusedAttention& problem);
i64 fused_gradient_workspace(const FusedAttention& problem);

}  // namespace wych::device
