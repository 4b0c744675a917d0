// Add: the one op that the graph layer itself needs, since the reverse sweep sums cotangents with it.
#pragma once

#include "ir/op.h"

namespace wych::ir {

// y = a + b, elementwise, equal types of any numeric dtype.
class Add final : public Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "add"; }
  [[nodiscard]] Expected<std::vector<TensorType>> infer(std::span<const TensorType> inputs) const override;
  // da = db = dy.
  [[nodiscard]] std::vector<ValueId> vjp(Builder& builder, const NodeValues& node,
                                         std::span<const ValueId> cotangents) const override;
  [[nodiscard]] std::vector<Alias> aliases() const override;
  void run_cpu(const ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

ValueId add(Builder& builder, ValueId a, ValueId b);

}  // namespace wych::ir
