// MoePlacement: where each route (token t, slot j; number t k + j) puts its row among the expert-sorted rows.
// Segments of rows, one per expert, start and end at multiples of `alignment`; within a segment rows are in
// the order of tokens, then pad rows. Rows past the last segment belong to nobody: no op reads or writes
// them. moe_permute.h, grouped_linear.h and moe_combine.h work on these rows.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// indices i32[T,k], each in [0, experts) ->
//   offsets i32[E+1]       first row of each segment; offsets[E] is the end of the last one
//   counts i32[E]          routes of each expert (its segment without the pad rows)
//   row_of_route i32[T,k]
//   route_of_row i32[C]    -1 for pad rows; undefined from offsets[E] on
// `capacity` C is a multiple of `alignment` and at least worst_case(T, k, E, alignment), so all rows fit
// whatever the routing. No gradient.
class MoePlacement final : public ir::Op {
 public:
  MoePlacement(i64 experts, i64 alignment, i64 capacity)
      : experts_(experts), alignment_(alignment), capacity_(capacity) {}
  // round_up(T k + E (alignment - 1), alignment): rows that suffice for every routing.
  static i64 worst_case(i64 tokens, i64 k, i64 experts, i64 alignment);

  [[nodiscard]] std::string_view name() const override { return "moe_placement"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kNever; }
  [[nodiscard]] i64 workspace(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  // Routes that a warp ranks.
  static constexpr i64 kCudaChunk = 512;
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  i64 experts_;
  i64 alignment_;
  i64 capacity_;
};

struct Placement {
  ir::ValueId offsets = ir::kNoValue;       // i32[E+1]
  ir::ValueId counts = ir::kNoValue;        // i32[E]
  ir::ValueId row_of_route = ir::kNoValue;  // i32[T,k]
  ir::ValueId route_of_row = ir::kNoValue;  // i32[C]
};
// `capacity` 0 means the worst case.
Placement moe_placement(ir::Builder& builder, ir::ValueId indices, i64 experts, i64 alignment,
                        i64 capacity = 0);

void register_moe_placement(ir::Registry& registry);

}  // namespace wych::ops
