// RMS normalisation of the query and key columns of a qkv matrix (head_layout.h); values are copied.
//   full:     all query columns of a token are one row, all key columns another (OLMoE, Olmo 2);
//   per head: every head is a row of hd columns (Qwen3, Olmo 3).
// A row is normalised as in rms_norm.h, with its gradient; dqkv passes through on the value columns.
#pragma once

#include <algorithm>

#include "ir/builder.h"
#include "ir/registry.h"
#include "ops/head_layout.h"

namespace wych::ops {

struct QkNormShape {
  HeadLayout layout;
  bool per_head = false;

  // Columns of one normalised row of queries and of keys, and rows per token.
  [[nodiscard]] i64 query_columns() const { return per_head ? layout.head_dim : layout.query_width(); }
  [[nodiscard]] i64 key_columns() const { return per_head ? layout.head_dim : layout.kv_width(); }
  [[nodiscard]] i64 query_rows() const { return per_head ? layout.query_heads : 1; }
  [[nodiscard]] i64 key_rows() const { return per_head ? layout.kv_heads : 1; }
};

// qkv F[T, width], q_weight F[hq hd] or F[hd], k_weight F[hkv hd] or F[hd]
//   -> qkv' F[T, width], rstd F[T, query_rows + key_rows].
class QkNorm final : public ir::Op {
 public:
  QkNorm(const QkNormShape& shape, double eps) : shape_(shape), eps_(eps) {}
  [[nodiscard]] std::string_view name() const override { return "qk_norm"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  QkNormShape shape_;
  double eps_;
};

// dqkv' F[T, width], qkv, q_weight, k_weight, rstd -> dqkv F[T, width].
class QkNormDx final : public ir::Op {
 public:
  explicit QkNormDx(const QkNormShape& shape) : shape_(shape) {}
  [[nodiscard]] std::string_view name() const override { return "qk_norm_dx"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  QkNormShape shape_;
};

enum class QkPart : u8 { kQuery, kKey };

// dqkv' F[T, width], qkv, rstd -> the gradient of q_weight or of k_weight.
class QkNormDw final : public ir::Op {
 public:
  QkNormDw(const QkNormShape& shape, QkPart part) : shape_(shape), part_(part) {}
  [[nodiscard]] std::string_view name() const override { return "qk_norm_dw"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] int accumulates() const override { return 0; }
  [[nodiscard]] i64 workspace(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  // Partial sums of cuda_chunks(tokens) chunks of tokens.
  static constexpr i64 cuda_chunks(i64 tokens) { return std::min<i64>(512, ceil_div(tokens, 16)); }
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  QkNormShape shape_;
  QkPart part_;
};

// qkv' alone.
ir::ValueId qk_norm(ir::Builder& builder, ir::ValueId qkv, ir::ValueId q_weight, ir::ValueId k_weight,
                    const QkNormShape& shape, double eps);

void register_qk_norm(ir::Registry& registry);

}  // namespace wych::ops
