// Embedding: y[t, :] = scale * weight[tokens[t], :].
//   dweight[v, :] = scale * sum of dy[t, :] over the t with tokens[t] = v, in the order of t.
// Token ids are in [0, V): the data layer validates them, the kernels only DCHECK.
#pragma once

#include <algorithm>
#include <bit>

#include "ir/builder.h"
#include "ir/registry.h"

namespace wych::ops {

// weight F[V, d], tokens i32[T] -> y F[T, d].
class Embed final : public ir::Op {
 public:
  explicit Embed(double scale) : scale_(scale) {}
  [[nodiscard]] std::string_view name() const override { return "embed"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  double scale_;
};

// Workspace of embed_dw on CUDA: keys u64[num_keys], starts i32[V + 1], sums f32[num_pieces, d]; embed.cu
// says what they are. Offsets in bytes.
struct EmbedDwScratch {
  static constexpr i64 kSortTile = 2048;  // keys that one block sorts
  static constexpr i64 kPiece = 256;      // keys whose rows may be summed apart

  constexpr EmbedDwScratch(i64 tokens, i64 vocabulary, i64 width)
      : num_keys(std::max(kSortTile, static_cast<i64>(std::bit_ceil(static_cast<u64>(tokens))))),
        num_pieces(tokens / kPiece),
        starts(num_keys * static_cast<i64>(sizeof(u64))),
        sums(round_up(starts + (vocabulary + 1) * static_cast<i64>(sizeof(i32)), 256)),
        bytes(sums + num_pieces * width * static_cast<i64>(sizeof(float))) {}

  i64 num_keys;  // a power of two
  i64 num_pieces;
  i64 starts;
  i64 sums;
  i64 bytes;
};

// tokens i32[T], dy F[T, d] -> dweight F[V, d]; rows of absent tokens are zero, or untouched if accumulating.
class EmbedDw final : public ir::Op {
 public:
  EmbedDw(double scale, i64 vocabulary) : scale_(scale), vocabulary_(vocabulary) {}
  [[nodiscard]] std::string_view name() const override { return "embed_dw"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] int accumulates() const override { return 0; }
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  double scale_;
  i64 vocabulary_;
};

ir::ValueId embed(ir::Builder& builder, ir::ValueId weight, ir::ValueId tokens, double scale = 1.0);

void register_embed(ir::Registry& registry);

}  // namespace wych::ops
