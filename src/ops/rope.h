// Rotary position embedding of the query and key heads of a qkv matrix (head_layout.h); values are copied.
// Token t of a sequence of S has position p = t mod S - document_start[t]; document_start may be negative
// (generation), p is never negative. With angle_i = p theta^(-2 i / hd) for i < hd / 2, the halves
// (x1, x2) of a head become
//   (x1 cos - x2 sin, x2 cos + x1 sin).
// The gradient is the rotation by the opposite angle: `inverse`. In float32 the frequencies, the angle and
// its cosine are float32, as Hugging Face computes them.
#pragma once

#include "ir/builder.h"
#include "ir/registry.h"
#include "ops/head_layout.h"

namespace wych::ops {

struct RopeShape {
  HeadLayout layout;  // head_dim is even
  double theta = 10000.0;
  i64 sequence = 1;  // S
};

// qkv F[T, width], document_start i32[T] -> qkv' F[T, width].
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

 private:
  RopeShape shape_;
  bool inverse_;
};

ir::ValueId rope(ir::Builder& builder, ir::ValueId qkv, ir::ValueId document_start, const RopeShape& shape);

void register_rope(ir::Registry& registry);

}  // namespace wych::ops
