#include "ir/add.h"

#include "ir/builder.h"

namespace wych::ir {
namespace {

template <class T>
void add_values(const ExecContext& context) {
  const T* a = context.input(0).as<T>();
  const T* b = context.input(1).as<T>();
  T* y = context.output(0).as<T>();
  context.pool->parallel_chunks(context.output(0).elements(), 1 << 14, [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) {
      y[i] = a[i] + b[i];
    }
  });
}

void add_rounded(const ExecContext& context) {
  const bf16* a = context.input(0).as<bf16>();
  const bf16* b = context.input(1).as<bf16>();
  bf16* y = context.output(0).as<bf16>();
  for (i64 i = 0; i < context.output(0).elements(); ++i) {
    y[i] = bf16(static_cast<float>(a[i]) + static_cast<float>(b[i]));
  }
}

}  // namespace

Expected<std::vector<TensorType>> Add::infer(std::span<const TensorType> inputs) const {
  if (inputs.size() != 2 || inputs[0] != inputs[1] || inputs[0].dtype == DType::kU8) {
    return shape_error("needs two inputs of one type: f32, f64, bf16, i32 or i64", inputs);
  }
  return std::vector<TensorType>{inputs[0]};
}

std::vector<ValueId> Add::vjp(Builder& /*builder*/, const NodeValues& /*node*/,
                              std::span<const ValueId> cotangents) const {
  return {cotangents[0], cotangents[0]};
}

std::vector<Alias> Add::aliases() const { return {{0, 0, AliasKind::kMay}, {1, 0, AliasKind::kMay}}; }

void Add::run_cpu(const ExecContext& context) const {
  switch (context.output(0).type->dtype) {
    case DType::kF32:
      return add_values<float>(context);
    case DType::kF64:
      return add_values<double>(context);
    case DType::kBF16:
      return add_rounded(context);
    case DType::kI32:
      return add_values<i32>(context);
    default:
      return add_values<i64>(context);
  }
}

ValueId add(Builder& builder, ValueId a, ValueId b) {
  return builder.add_one(std::make_shared<Add>(), {a, b});
}

}  // namespace wych::ir
