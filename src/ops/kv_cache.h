// The key/value cache of generation: one sequence, keys and values of its first L positions as
// cache F[2, hkv, L, hd] (keys, then values). No gradients: the ops CHECK-fail when differentiated.
#pragma once

#include "ir/builder.h"
#include "ir/registry.h"
#include "ops/head_layout.h"

namespace wych::ops {

// qkv F[T, width], start i32[1], cache -> cache' (in place): the key and value of token t go to position
// start + t. 0 <= start and start + T <= L: the caller's duty, CHECKed.
class KvAppend final : public ir::Op {
 public:
  explicit KvAppend(const HeadLayout& layout) : layout_(layout) {}
  [[nodiscard]] std::string_view name() const override { return "kv_append"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kNever; }
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  HeadLayout layout_;
};

// qkv F[T, width], cache', start i32[1] -> out F[T, hq hd]: token t attends to positions 0 .. start + t of
// the cache (its own included), with window > 0 only to the last `window` of them.
class CachedAttention final : public ir::Op {
 public:
  CachedAttention(const HeadLayout& layout, i64 window, double scale)
      : layout_(layout), window_(window), scale_(scale) {}
  [[nodiscard]] std::string_view name() const override { return "cached_attention"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kCostly; }
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  HeadLayout layout_;
  i64 window_;
  double scale_;
};

// The updated cache; the old one must not be read afterwards.
ir::ValueId kv_append(ir::Builder& builder, ir::ValueId qkv, ir::ValueId start, ir::ValueId cache,
                      const HeadLayout& layout);
ir::ValueId cached_attention(ir::Builder& builder, ir::ValueId qkv, ir::ValueId cache, ir::ValueId start,
                             const HeadLayout& layout, i64 window, double scale);

void register_kv_cache(ir::Registry& registry);

}  // namespace wych::ops
