// The language-model head and its losses in one op, so that the logits never exist as a whole:
//   logits[t, v] = x_t . weight_v for v < vocabulary (rows of weight behind it are padding),
//   lse[t] = log sum_v exp(logits[t, v]),
//   ce = sum_t (lse[t] - logits[t, targets[t]]) / denominator,  z = sum_t lse[t]^2 / denominator,
// both over the t with targets[t] != kIgnoredTarget (count_targets.h). With p = exp(logits - lse):
//   dlogits[t, v] = (d_ce (p - [v = targets[t]]) + d_z 2 lse[t] p) / denominator,
//   dx = dlogits weight,  dweight = dlogits^T x  (zero in padding rows).
// HeadLossBackward computes losses and gradients in one pass over chunks of rows (design.md 10.9): workspace
// is one chunk of logits.
#pragma once

#include <algorithm>

#include "ir/builder.h"
#include "ir/registry.h"

namespace wych::ops {

// Workspace of both ops on CUDA: logits f32[chunk, vocabulary], then the losses f64[T, 2] at byte `losses`
// and, for bf16, the scratch of the products at byte `products`. A chunk is large enough to amortise that
// dweight is read and written for each, and bounded in bytes; all are about equally large.
struct HeadLossScratch {
  static constexpr i64 kMaxLogitBytes = i64{1} << 30;
  static constexpr i64 kMaxRows = 4096;
  static constexpr i64 kRowTile = 64;  // of the products

  constexpr HeadLossScratch(i64 tokens, i64 vocabulary, DType activation) {
    const i64 row_bytes = vocabulary * static_cast<i64>(sizeof(float));
    const i64 most = std::clamp<i64>(kMaxLogitBytes / row_bytes, 1, kMaxRows);
    const i64 rows = most < kRowTile ? most : most / kRowTile * kRowTile;
    const i64 even =
        round_up(ceil_div(std::max<i64>(tokens, 1), ceil_div(std::max<i64>(tokens, 1), rows)), kRowTile);
    chunk = std::min({tokens, rows, even});
    losses = round_up(chunk * row_bytes, 256);
    products = round_up(losses + 2 * tokens * static_cast<i64>(sizeof(double)), 256);
    bytes = products + (activation == DType::kBF16 ? kMatmulWorkspaceBytes : 0);
  }

  i64 chunk = 0;  // rows
  i64 losses = 0;
  i64 products = 0;
  i64 bytes = 0;
};

// x A[T, d], weight A[V, d], targets i32[T], denominator f64[1] -> ce f64[1], z f64[1].
class HeadLoss final : public ir::Op {
 public:
  explicit HeadLoss(i64 vocabulary) : vocabulary_(vocabulary) {}
  [[nodiscard]] i64 vocabulary() const { return vocabulary_; }
  [[nodiscard]] std::string_view name() const override { return "head_loss"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  // One HeadLossBackward, of which only the gradients are used.
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kNever; }
  [[nodiscard]] i64 workspace(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  i64 vocabulary_;
};

// x, weight, targets, denominator, d_ce f64[1], d_z f64[1] -> ce f64[1], z f64[1], dx A[T, d],
// dweight S[V, d]. Accumulates into dweight.
class HeadLossBackward final : public ir::Op {
 public:
  explicit HeadLossBackward(i64 vocabulary) : vocabulary_(vocabulary) {}
  [[nodiscard]] std::string_view name() const override { return "head_loss_backward"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] int accumulates() const override { return 3; }
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kNever; }
  [[nodiscard]] i64 workspace(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  i64 vocabulary_;
};

struct HeadLosses {
  ir::ValueId ce = ir::kNoValue;
  ir::ValueId z = ir::kNoValue;
};
HeadLosses head_loss(ir::Builder& builder, ir::ValueId x, ir::ValueId weight, ir::ValueId targets,
                     ir::ValueId denominator, i64 vocabulary);

struct HeadLossGradients {
  ir::ValueId ce = ir::kNoValue;
  ir::ValueId z = ir::kNoValue;
  ir::ValueId dx = ir::kNoValue;
  ir::ValueId dweight = ir::kNoValue;
};
// With an accumulator, dweight is added into it.
HeadLossGradients head_loss_backward(ir::Builder& builder, ir::ValueId x, ir::ValueId weight,
                                     ir::ValueId targets, ir::ValueId denominator, ir::ValueId d_ce,
                                     ir::ValueId d_z, i64 vocabulary, ir::ValueId accumulator = ir::kNoValue);

void register_head_loss(ir::Registry& registry);

}  // namespace wych::ops
