// MoeCombine: gathers each token's k expert rows and sums them in the order of slots, so the result does not
// depend on where the rows lie. The rows are described in moe_placement.h.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"
#include "ops/moe_placement.h"

namespace wych::ops {

// rows F[C,d], row_of_route i32[T,k], route_of_row i32[C], offsets i32[E+1], weights F[T,k] if `weighted`
// -> out F[T,d]: out[t] = sum_j weights[t,j] rows[row_of_route[t,j]]; without weights they are one.
// vjp: drows[r] = weights[route] dout[token] with route = route_of_row[r], zeros for pad rows, nothing past
//      the segments (MoeCombineDrows; without weights MoePermute);
//      dweights[t,j] = <dout[t], rows[row_of_route[t,j]]> (MoeCombineDweights).
class MoeCombine final : public ir::Op {
 public:
  explicit MoeCombine(bool weighted) : weighted_(weighted) {}
  [[nodiscard]] std::string_view name() const override { return "moe_combine"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override {
    visitor.visit("weighted", i64{weighted_});
  }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  bool weighted_;
};

// dout F[T,d], weights F[T,k], route_of_row i32[C], offsets i32[E+1] -> drows F[C,d].
class MoeCombineDrows final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "moe_combine_drows"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

// dout F[T,d], rows F[C,d], row_of_route i32[T,k] -> dweights F[T,k].
class MoeCombineDweights final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "moe_combine_dweights"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

// `weights` F[T,k], or kNoValue for a plain sum.
ir::ValueId moe_combine(ir::Builder& builder, ir::ValueId rows, const Placement& placement,
                        ir::ValueId weights = ir::kNoValue);

void register_moe_combine(ir::Registry& registry);

}  // namespace wych::ops
