// Causal grouped-query attention over a qkv matrix (head_layout.h). T = sequences * S tokens; key j is
// visible to query i of the same sequence iff document_start[i] <= j <= i and, if window > 0,
// i - j < window (document_start counts from the start of the sequence; negative means 0, and without
// AttentionShape::documents so does everything).
//   s[i, j] = scale q_i . k_j,  lse[i] = log sum_j exp(s[i, j]),  p = exp(s - lse),  out_i = sum_j p[i, j]
//   v_j.
// With delta_i = dout_i . out_i and ds = p (dout_i . v_j - delta_i):
//   dq_i = scale sum_j ds[i, j] k_j,  dk_j = scale sum_i ds[i, j] q_i,  dv_j = sum_i p[i, j] dout_i,
// summed over the query heads of a group. The kernels work on blocks of queries and keys with small matrix
// products (kernels/attention.h); no S x S matrix exists.
#pragma once

#include <optional>

#include "device/attention_plan.h"
#include "ir/builder.h"
#include "ir/registry.h"
#include "ops/head_layout.h"

namespace wych::ops {

struct AttentionShape {
  HeadLayout layout;
  i64 sequence = 1;  // S; T is a multiple of it
  i64 window = 0;    // 0: unlimited
  double scale = 1.0;
  bool documents = true;      // false: document_start is not read
  bool deterministic = true;  // false: the gradient may sum in another order each time, where that is faster
};

// What cuDNN computes of it on the target, by its plan: bfloat16 without documents. The rest, and this too on
// a machine without cuDNN, is for kernels of our own.
std::optional<device::FusedAttention> fused_attention(const AttentionShape& shape, const ir::TensorType& qkv,
                                                      const CudaTarget& target);

// qkv A[T, width], document_start i32[T] -> out A[T, hq hd], lse S[T / sequence, hq, sequence].
class Attention final : public ir::Op {
 public:
  explicit Attention(const AttentionShape& shape) : shape_(shape) {}
  [[nodiscard]] std::string_view name() const override { return "attention"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  // Counts the visible half of S x S (or the window) and no documents.
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kCostly; }
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
  WYCH_CUDA_PREPARE;

 private:
  AttentionShape shape_;
};

// dout A[T, hq hd], qkv, out, lse, document_start -> dqkv A[T, width].
class AttentionDqkv final : public ir::Op {
 public:
  explicit AttentionDqkv(const AttentionShape& shape) : shape_(shape) {}
  [[nodiscard]] std::string_view name() const override { return "attention_dqkv"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kCostly; }
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
  WYCH_CUDA_PREPARE;

 private:
  AttentionShape shape_;
};

// out alone.
ir::ValueId attention(ir::Builder& builder, ir::ValueId qkv, ir::ValueId document_start,
                      const AttentionShape& shape);

void register_attention(ir::Registry& registry);

}  // namespace wych::ops
