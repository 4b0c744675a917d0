// Root-mean-square normalisation of rows:
//   rstd[r] = 1 / sqrt(mean_j x[r, j]^2 + eps),  y = x * rstd * weight.
// With g = dy * weight and xhat = x * rstd:
//   dx = rstd * (g - xhat * mean_j(g xhat)),  dweight[j] = sum_r dy[r, j] xhat[r, j].
#pragma once

#include "ir/builder.h"
#include "ir/registry.h"

namespace wych::ops {

// x A[R, d], weight S[d] -> y A[R, d], rstd S[R].
class RmsNorm final : public ir::Op {
 public:
  explicit RmsNorm(double eps) : eps_(eps) {}
  [[nodiscard]] double eps() const { return eps_; }
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

// a A[R, d], b A[R, d], weight S[d] -> x = a + b A[R, d], y and rstd of x as above: the residual and the norm
// of what follows in one pass. x is rounded to A before it is normalised, so y is that of the two ops.
class AddRmsNorm final : public ir::Op {
 public:
  explicit AddRmsNorm(double eps) : eps_(eps) {}
  [[nodiscard]] double eps() const { return eps_; }
  [[nodiscard]] std::string_view name() const override { return "add_rms_norm"; }
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

// dy A[R, d], x A[R, d], weight S[d], rstd S[R] [, dpassing A[R, d] if `passing`] -> dx A[R, d], dweight
// S[d]. dpassing is what else flows into x, and is added to dx. Accumulates dweight.
class RmsNormBackward final : public ir::Op {
 public:
  explicit RmsNormBackward(bool passing) : passing_(passing) {}
  [[nodiscard]] bool passing() const { return passing_; }
  [[nodiscard]] std::string_view name() const override {
    return passing_ ? "add_rms_norm_backward" : "rms_norm_backward";
  }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  [[nodiscard]] int accumulates() const override { return 1; }
  [[nodiscard]] i64 workspace(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  // Blocks that go through the rows, a partial sum of dweight each; as many as are resident at a time.
  static constexpr int kBlocksPerSm = 3;
  static i64 cuda_blocks(i64 rows, const CudaTarget& target);
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  bool passing_;
};

// y alone; rstd stays reachable through the node for the backward.
ir::ValueId rms_norm(ir::Builder& builder, ir::ValueId x, ir::ValueId weight, double eps);

void register_rms_norm(ir::Registry& registry);

}  // namespace wych::ops
