// Chunks of kChunk elements are the units of parallel work; each leaves a float64 in the workspace, added up
// per tensor in order.
#include "ops/sum_of_squares.h"

#include <algorithm>

#include "ir/builder.h"
#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

constexpr i64 kChunk = 1 << 15;
constexpr i64 kBlock = 1024;

template <class T>
double chunk_sum(const T* x, i64 n) {
  double sum = 0;
  for (i64 i = 0; i < n; i += kBlock) {
    sum += static_cast<double>(dot(x + i, x + i, std::min(kBlock, n - i)));
  }
  return sum;
}

template <class T>
void sum_of_squares_of(const ir::ExecContext& context) {
  double* partial = reinterpret_cast<double*>(context.workspace);  // one per chunk, tensor after tensor
  i64 chunks = 0;
  for (const ir::View& input : context.inputs) {
    chunks += ceil_div(input.elements(), kChunk);
  }
  context.pool->parallel_for(chunks, [&](i64 index) {
    i64 chunk = index;
    std::size_t tensor = 0;
    for (;; ++tensor) {
      const i64 of_tensor = ceil_div(context.inputs[tensor].elements(), kChunk);
      if (chunk < of_tensor) {
        break;
      }
      chunk -= of_tensor;
    }
    const ir::View& input = context.inputs[tensor];
    const i64 begin = chunk * kChunk;
    partial[index] = chunk_sum(input.as<T>() + begin, std::min(kChunk, input.elements() - begin));
  });
  double* out = context.output(0).as<double>();
  for (const ir::View& input : context.inputs) {
    double sum = 0;
    for (i64 chunk = 0; chunk < ceil_div(input.elements(), kChunk); ++chunk) {
      sum += *partial++;
    }
    *out++ = sum;
  }
}

ir::OpCase sum_of_squares_case(std::string label, DType dtype, const std::vector<ir::Shape>& shapes) {
  ir::OpCase example;
  example.label = std::move(label);
  example.op = std::make_shared<SumOfSquares>();
  for (const ir::Shape& shape : shapes) {
    example.inputs.push_back({{dtype, shape}, {}, -3, 3});
    example.reduction_length = std::max(example.reduction_length, std::min(shape.elements(), kBlock));
  }
  example.oracle = [](const ir::Values& inputs) {
    std::vector<double> sums;
    for (const std::vector<double>& input : inputs) {
      sums.push_back(0);
      for (const double x : input) {
        sums.back() += x * x;
      }
    }
    return ir::Values{sums};
  };
  return example;
}

std::vector<ir::OpCase> sum_of_squares_cases(DType dtype) {
  return {sum_of_squares_case("one element", dtype, {{1}}),
          sum_of_squares_case("tensors of several ranks", dtype, {{7, 3}, {1031}, {2, 3, 5}, {1}}),
          sum_of_squares_case("an empty tensor between others", dtype, {{3}, {0, 4}, {5}}),
          sum_of_squares_case("several chunks", dtype, {{kChunk}, {3, kChunk - 1}, {2}})};
}

}  // namespace

Expected<std::vector<ir::TensorType>> SumOfSquares::infer(std::span<const ir::TensorType> inputs) const {
  const bool same = std::all_of(inputs.begin(), inputs.end(),
                                [&](const ir::TensorType& type) { return type.dtype == inputs[0].dtype; });
  if (inputs.empty() || !same || !is_compute(inputs[0].dtype)) {
    return ir::shape_error("needs at least one tensor, all f32 or all f64", inputs);
  }
  return std::vector<ir::TensorType>{{DType::kF64, {static_cast<i64>(inputs.size())}}};
}

ir::Cost SumOfSquares::cost(std::span<const ir::TensorType> inputs,
                            std::span<const ir::TensorType> outputs) const {
  ir::Cost cost = Op::cost(inputs, outputs);
  cost.flops = 2 * cost.bytes_read / static_cast<double>(dtype_bytes(inputs[0].dtype));
  return cost;
}

i64 SumOfSquares::workspace(std::span<const ir::TensorType> inputs,
                            std::span<const ir::TensorType> /*outputs*/) const {
  i64 chunks = 0;
  for (const ir::TensorType& type : inputs) {
    chunks += ceil_div(type.elements(), kChunk);
  }
  return chunks * static_cast<i64>(sizeof(double));
}

i64 SumOfSquares::cuda_workspace(std::span<const ir::TensorType> inputs,
                                 std::span<const ir::TensorType> /*outputs*/,
                                 const CudaTarget& /*target*/) const {
  i64 chunks = 0;
  for (const ir::TensorType& type : inputs) {
    chunks += ceil_div(type.elements(), kCudaChunk);
  }
  return chunks * static_cast<i64>(sizeof(double));
}

void SumOfSquares::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { sum_of_squares_of<T>(context); });
}

ir::ValueId sum_of_squares(ir::Builder& builder, std::span<const ir::ValueId> tensors) {
  return builder.add_one(std::make_shared<SumOfSquares>(), {tensors.begin(), tensors.end()});
}

void register_sum_of_squares(ir::Registry& registry) { registry.add("sum_of_squares", sum_of_squares_cases); }

}  // namespace wych::ops
