// RandomNormal: initial weights. Element i is draw i of the stream (seed, step 0, hash of the parameter's
// name), so it depends on name and global index alone, never on the layout (base/philox.h).
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// seed i64[1] -> F[shape], mean + std z[i]; z are the same float32 draws for f32 and f64.
class RandomNormal final : public ir::Op {
 public:
  RandomNormal(u64 name_hash, double mean, double std, const ir::TensorType& type)
      : name_hash_(name_hash), mean_(mean), std_(std), type_(type) {}
  [[nodiscard]] std::string_view name() const override { return "random_normal"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kNever; }
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  u64 name_hash_;
  double mean_;
  double std_;
  ir::TensorType type_;
};

ir::ValueId random_normal(ir::Builder& builder, ir::ValueId seed, u64 name_hash, double mean, double std,
                          const ir::TensorType& type);

void register_random_normal(ir::Registry& registry);

}  // namespace wych::ops
