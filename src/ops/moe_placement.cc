// A counting sort in chunks of kChunk routes: histograms per chunk, prefix sums over (expert, chunk), then
// every chunk places its own routes. The order inside an expert is that of routes whatever the threads do.
#include "ops/moe_placement.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "ir/builder.h"
#include "ops/moe_cases.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

constexpr i64 kChunk = 4096;

std::vector<ir::OpCase> moe_placement_cases(DType /*dtype*/) {
  std::vector<Routing> routings = routing_examples();
  routings.push_back(
      make_routing("T=8501 k=2 E=64 A=16 several chunks", 2, 64, 16, 0, scattered_indices(8501, 2, 64, 63)));
  std::vector<ir::OpCase> cases;
  for (const Routing& routing : routings) {
    ir::OpCase example;
    example.label = routing.label;
    example.op = std::make_shared<MoePlacement>(routing.experts, routing.alignment, routing.capacity);
    example.inputs = {routing.index_input({routing.tokens, routing.k}, routing.indices)};
    example.oracle = [routing](const ir::Values&) {
      return ir::Values{routing.offsets, routing.counts, routing.row_of_route, routing.route_of_row};
    };
    example.defined = [used = routing.used_rows()](int output, i64 element, const ir::Values&) {
      return output != 3 || element < used;
    };
    cases.push_back(std::move(example));
  }
  return cases;
}

}  // namespace

i64 MoePlacement::worst_case(i64 tokens, i64 k, i64 experts, i64 alignment) {
  return round_up(tokens * k + experts * (alignment - 1), alignment);
}

void MoePlacement::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("experts", experts_);
  visitor.visit("alignment", alignment_);
  visitor.visit("capacity", capacity_);
}

Expected<std::vector<ir::TensorType>> MoePlacement::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 1 || !is_index(inputs[0], 2) || experts_ < 1 || alignment_ < 1) {
    return ir::shape_error("needs indices i32[T,k], experts >= 1 and alignment >= 1", inputs);
  }
  const i64 needed = worst_case(inputs[0].shape[0], inputs[0].shape[1], experts_, alignment_);
  if (capacity_ < needed || capacity_ % alignment_ != 0 || capacity_ > std::numeric_limits<i32>::max()) {
    return ir::shape_error(fmt::format("needs a capacity in [{}, 2^31) that is a multiple of {}, not {}",
                                       needed, alignment_, capacity_),
                           inputs);
  }
  return std::vector<ir::TensorType>{{DType::kI32, {experts_ + 1}},
                                     {DType::kI32, {experts_}},
                                     {DType::kI32, inputs[0].shape},
                                     {DType::kI32, {capacity_}}};
}

i64 MoePlacement::workspace(std::span<const ir::TensorType> inputs,
                            std::span<const ir::TensorType> /*outputs*/) const {
  return ceil_div(inputs[0].elements(), kChunk) * experts_ * static_cast<i64>(sizeof(i32));
}

i64 MoePlacement::cuda_workspace(std::span<const ir::TensorType> inputs,
                                 std::span<const ir::TensorType> /*outputs*/,
                                 const CudaTarget& /*target*/) const {
  return ceil_div(inputs[0].elements(), kCudaChunk) * experts_ * static_cast<i64>(sizeof(i32));
}

void MoePlacement::run_cpu(const ir::ExecContext& context) const {
  const i32* indices = context.input(0).as<i32>();
  i32* offsets = context.output(0).as<i32>();
  i32* counts = context.output(1).as<i32>();
  i32* row_of_route = context.output(2).as<i32>();
  i32* route_of_row = context.output(3).as<i32>();
  i32* next_row = reinterpret_cast<i32*>(context.workspace);  // [chunks, experts]: counts, then rows
  const i64 routes = context.input(0).elements();
  const i64 experts = experts_;
  const i64 chunks = ceil_div(routes, kChunk);

  context.pool->parallel_chunks(routes, kChunk, [&](i64 begin, i64 end) {
    i32* count = next_row + begin / kChunk * experts;
    std::fill_n(count, experts, 0);
    for (i64 route = begin; route < end; ++route) {
      WYCH_DCHECK(indices[route] >= 0 && indices[route] < experts, "expert {}", indices[route]);
      ++count[indices[route]];
    }
  });
  i32 row = 0;
  for (i64 expert = 0; expert < experts; ++expert) {
    offsets[expert] = row;
    for (i64 chunk = 0; chunk < chunks; ++chunk) {
      i32& first = next_row[chunk * experts + expert];
      row += std::exchange(first, row);
    }
    counts[expert] = row - offsets[expert];
    const auto segment_end = static_cast<i32>(offsets[expert] + round_up(counts[expert], alignment_));
    for (; row < segment_end; ++row) {
      route_of_row[row] = -1;
    }
  }
  offsets[experts] = row;
  context.pool->parallel_chunks(routes, kChunk, [&](i64 begin, i64 end) {
    i32* next = next_row + begin / kChunk * experts;
    for (i64 route = begin; route < end; ++route) {
      const i32 target = next[indices[route]]++;
      row_of_route[route] = target;
      route_of_row[target] = static_cast<i32>(route);
    }
  });
}

Placement moe_placement(ir::Builder& builder, ir::ValueId indices, i64 experts, i64 alignment, i64 capacity) {
  const ir::Shape& shape = builder.type(indices).shape;
  if (capacity == 0 && shape.rank() == 2 && alignment > 0) {
    capacity = MoePlacement::worst_case(shape[0], shape[1], experts, alignment);
  }
  const std::vector<ir::ValueId> outputs =
      builder.add(std::make_shared<MoePlacement>(experts, alignment, capacity), {indices});
  return {
      .offsets = outputs[0], .counts = outputs[1], .row_of_route = outputs[2], .route_of_row = outputs[3]};
}

void register_moe_placement(ir::Registry& registry) { registry.add("moe_placement", moe_placement_cases); }

}  // namespace wych::ops
