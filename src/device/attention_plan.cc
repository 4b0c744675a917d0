#include "device/attention_plan.h"

namespace wych::device {
namespace {

constexpr i64 kTile = 128;
constexpr i64 kMaxHeadDim = 128;
constexpr i64 kMaxSequence = i64{1} << 20U;
// Pieces use at most this much if they can; one key head with its query heads is the least, and may use more.
constexpr i64 kPieceBytes = i64{1} << 30U;
constexpr i64 kMaxBytes = i64{4} << 30U;
// Alignment between the library's own buffers, and its counters.
constexpr i64 kSlackBytes = i64{4} << 20U;

// The deterministic gradient on Hopper holds ds of every pair of a query and a key in bfloat16. Beside it, or
// without it, each query head has: dout . out, dq summed in float32, and where key heads are shared dk and dv
// of each query head.
i64 gradient_bytes(const FusedAttention& problem) {
  const i64 rows = problem.sequences * problem.query_heads * problem.sequence;
  const i64 pairs = problem.deterministic ? 2 * rows * problem.sequence : 0;
  const i64 sums = problem.deterministic ? 0 : 4 * problem.head_dim;
  const i64 shared = problem.group() > 1 ? 8 * problem.head_dim : 0;
  return pairs + rows * (4 + sums + shared) + kSlackBytes;
}

// The largest divisor of `count` with which `bytes(divisor)` is within a piece, or 1.
template <class Bytes>
i64 largest_piece(i64 count, const Bytes& bytes) {
  i64 piece = count;
  while (piece > 1 && (count % piece != 0 || bytes(piece) > kPieceBytes)) {
    --piece;
  }
  return piece;
}

FusedAttention with_sequences(FusedAttention problem, i64 sequences) {
  problem.sequences = sequences;
  return problem;
}

FusedAttention with_kv_heads(FusedAttention problem, i64 kv_heads) {
  problem.query_heads = problem.group() * kv_heads;
  problem.kv_heads = kv_heads;
  return problem;
}

}  // namespace

bool fused_attention_takes(const FusedAttention& problem, const CudaTarget& target) {
  return target.architecture == 90 && problem.sequences > 0 && problem.sequence % kTile == 0 &&
         problem.sequence > 0 && problem.sequence <= kMaxSequence && problem.head_dim % 8 == 0 &&
         problem.head_dim > 0 && problem.head_dim <= kMaxHeadDim &&
         fused_gradient_workspace(problem) <= kMaxBytes;
}

FusedAttention gradient_piece(const FusedAttention& problem) {
  const FusedAttention piece = with_sequences(problem, largest_piece(problem.sequences, [&](i64 sequences) {
                                                return gradient_bytes(with_sequences(problem, sequences));
                                              }));
  if (piece.sequences > 1) {
    return piece;
  }
  return with_kv_heads(piece, largest_piece(problem.kv_heads, [&](i64 kv_heads) {
                         return gradient_bytes(with_kv_heads(piece, kv_heads));
                       }));
}

i64 fused_forward_workspace(const FusedAttention& /*problem*/) { return kSlackBytes; }

i64 fused_gradient_workspace(const FusedAttention& problem) {
  return gradient_bytes(gradient_piece(problem));
}

}  // namespace wych::device
