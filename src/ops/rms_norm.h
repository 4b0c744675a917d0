// Root-mean-square normalisation of rows:
//   rstd[r] = 1 / sqrt(mean_j x[r, j]^2 + eps),  y = x * rstd * weight.
// With g = dy * weight and xhat = x * rstd:
//   dx = rstd * (g - xhat * mean_j(g xhat)),  dweight[j] = sum_r dy[r, j] xhat[r, j].
#pragma once

#include "ir/builder.h"
#include "ir/registry.h"

namespace wych::ops {

// x F[R, d], weight F[d] -> y F[R, d], rstd F[R].
class RmsNorm final : public ir::Op {
 public:
  explicit RmsNorm(double eps) : eps_(eps) {}
  [[nodiscard]] std::string_view name() const override { return "rms_norm"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  double eps_;
};

// dy F[R, d], x F[R, d], weight F[d], rstd F[R] -> dx F[R, d].
class RmsNormDx final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "rms_norm_dx"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

// dy F[R, d], x F[R, d], rstd F[R] -> dweight F[d].
class RmsNormDw final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "rms_norm_dw"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] int accumulates() const override { return 0; }
  [[nodiscard]] i64 workspace(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  // Partial sums of kCudaRowsPerChunk rows each.
  static constexpr i64 kCudaRowsPerChunk = 64;
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

// y alone; rstd stays reachable through the node for the backward.
ir::ValueId rms_norm(ir::Builder& builder, ir::ValueId x, ir::ValueId weight, double eps);

void register_rms_norm(ir::Registry& registry);

}  // namespace wych::ops
