// Embedding: y[t, :] = scale * weight[tokens[t], :].
//   dweight[v, :] = scale * sum of dy[t, :] over the t with tokens[t] = v, in the order of t.
// Token ids are in [0, V): the data layer validates them, the kernels only DCHECK.
#pragma once

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

 private:
  double scale_;
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
  void run_cpu(const ir::ExecContext& context) const override;

 private:
  double scale_;
  i64 vocabulary_;
};

ir::ValueId embed(ir::Builder& builder, ir::ValueId weight, ir::ValueId tokens, double scale = 1.0);

void register_embed(ir::Registry& registry);

}  // namespace wych::ops
