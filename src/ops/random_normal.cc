// Chunks of the stream of base/philox.h, which has random access; its tests look at the distribution.
// The cases' oracle draws element by element.
#include "ops/random_normal.h"

#include <algorithm>

#include "base/philox.h"
#include "ir/builder.h"
#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

// Elements [begin, end) of the tensor. The draws pass through a small buffer so that both types share them.
template <class T>
void fill_range(RandomStream stream, T mean, T std, i64 begin, i64 end, T* out) {
  constexpr i64 kBuffer = 256;
  float draws[kBuffer];
  for (i64 first = begin; first < end; first += kBuffer) {
    const i64 count = std::min(kBuffer, end - first);
    fill_normal(stream, static_cast<u64>(first), draws, count);
    for (i64 i = 0; i < count; ++i) {
      out[first + i] = mean + std * static_cast<T>(draws[i]);
    }
  }
}

std::vector<ir::OpCase> random_normal_cases(DType dtype) {
  struct Example {
    const char* label;
    ir::Shape shape;
    double seed, mean, std;
  };
  const Example examples[] = {{"one element", {1}, 0, 0, 1},
                              {"a matrix", {7, 37}, 1234567, 0, 0.02},
                              {"a mean", {13}, -5, 1, 0.1},
                              {"several chunks", {3, kElementsPerChunk - 1}, 42, 0, 1},
                              {"no elements", {0, 3}, 42, 0, 1}};
  constexpr u64 kHash = 0xfedcba9876543210ULL;
  std::vector<ir::OpCase> cases;
  for (const Example& shape : examples) {
    const ir::TensorType type = {dtype, shape.shape};
    ir::OpCase example;
    example.label = shape.label;
    example.op = std::make_shared<RandomNormal>(kHash, shape.mean, shape.std, type);
    example.inputs = {{{DType::kI64, {1}}, {shape.seed}}};
    example.oracle = [shape, n = type.elements()](const ir::Values& inputs) {
      const RandomStream stream = random_stream(static_cast<u64>(static_cast<i64>(inputs[0][0])), 0, kHash);
      std::vector<double> values;
      for (i64 i = 0; i < n; ++i) {
        const auto draw = static_cast<double>(wych::random_normal(stream, static_cast<u64>(i)));
        values.push_back(shape.mean + shape.std * draw);
      }
      return ir::Values{values};
    };
    cases.push_back(std::move(example));
  }
  return cases;
}

}  // namespace

void RandomNormal::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("name_hash", static_cast<i64>(name_hash_));
  visitor.visit("mean", mean_);
  visitor.visit("std", std_);
  visitor.visit("type", std::string_view(type_.text()));
}

Expected<std::vector<ir::TensorType>> RandomNormal::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 1 || !is_type(inputs[0], DType::kI64, {1}) || !is_compute(type_.dtype)) {
    return ir::shape_error(fmt::format("needs seed i64[1] and makes f32 or f64, not {}", type_.text()),
                           inputs);
  }
  return std::vector<ir::TensorType>{type_};
}

void RandomNormal::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(type_.dtype, [&]<class T>(T) {
    const RandomStream stream = random_stream(static_cast<u64>(*context.input(0).as<i64>()), 0, name_hash_);
    T* out = context.output(0).as<T>();
    context.pool->parallel_chunks(context.output(0).elements(), kElementsPerChunk, [&](i64 begin, i64 end) {
      fill_range(stream, static_cast<T>(mean_), static_cast<T>(std_), begin, end, out);
    });
  });
}

ir::ValueId random_normal(ir::Builder& builder, ir::ValueId seed, u64 name_hash, double mean, double std,
                          const ir::TensorType& type) {
  return builder.add_one(std::make_shared<RandomNormal>(name_hash, mean, std, type), {seed});
}

void register_random_normal(ir::Registry& registry) { registry.add("random_normal", random_normal_cases); }

}  // namespace wych::ops
