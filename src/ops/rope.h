// Rotary position embedding of the query and key heads of a qkv matrix (head_layout.h); values are copied.
// Token t of a sequence of S has position p = t mod S - document_start[t]; document_start may be negative
// (generation), p is never negative. With angle_i = p f_i, f_i = theta^(-2 i / hd) for i < hd / 2, the
// halves (x1, x2) of a head become
//   (x1 cos - x2 sin, x2 cos + x1 sin).
// The gradient is the rotation by the opposite angle: `inverse`. In float32 and bf16 the
// frequencies, the angle and its cosine are float32, as Hugging Face computes them.
#pragma once

#include "ir/builder.h"
#include "ir/registry.h"
#include "ops/head_layout.h"

namespace wych::ops {

// YaRN: frequencies for `factor` times the context of `original_length` positions. Pairs that turn often
// within the original context keep f_i, slow ones get f_i / factor, and in between a ramp blends the two:
//   f_i' = r_i f_i / factor + (1 - r_i) f_i,  r_i = clamp((i - low) / (high - low), 0, 1),
//   low = max(floor(pair(beta_fast)), 0),  high = min(ceil(pair(beta_slow)), hd - 1),
//   pair(turns) = hd ln(original_length / (2 pi turns)) / (2 ln theta);  high += 0.001 where low = high.
// Cosine and sine are multiplied by attention_factor, forward and inverse.
struct YarnShape {
  double factor = 1.0;  // 1: off, and nothing below matters
  i64 original_length = 0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double attention_factor = 1.0;
};

struct RopeShape {
  HeadLayout layout;       // head_dim is even
  double theta = 10000.0;  // above 1 with YaRN
  i64 sequence = 1;        // S
  YarnShape yarn = {};

  void visit(ir::AttributeVisitor& visitor) const;
};

// qkv A[T, width], document_start i32[T] -> qkv' A[T, width].
class Rope final : public ir::Op {
 public:
  explicit Rope(const RopeShape& shape, bool inverse = false) : shape_(shape), inverse_(inverse) {}
  [[nodiscard]] std::string_view name() const override { return "rope"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  [[nodiscard]] i64 workspace(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  RopeShape shape_;
  bool inverse_;
};

// The frequencies of the header's first lines, YaRN included: frequencies[hd / 2], every step in T, which is
// float or double.
template <class T>
void fill_frequencies(const RopeShape& shape, T* frequencies);

ir::ValueId rope(ir::Builder& builder, ir::ValueId qkv, ir::ValueId document_start, const RopeShape& shape);

void register_rope(ir::Registry& registry);

}  // namespace wych::ops
