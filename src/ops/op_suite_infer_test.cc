// check_infer of op_suite.h: generic mutations of a case's input types, each of which infer() must reject.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "ops/op_suite.h"

namespace wych::ops {
namespace {

using ir::OpCase;
using ir::TensorType;

// Ops that take any number of inputs.
constexpr std::array<std::string_view, 4> kVariadic = {"add_n", "concat", "count_targets", "sum_of_squares"};
// Ops whose inputs have unrelated shapes of any rank.
constexpr std::array<std::string_view, 1> kAnyRanks = {"sum_of_squares"};

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& names, const OpCase& example) {
  return std::find(names.begin(), names.end(), example.op->name()) != names.end();
}

// What is wrong if infer() accepts these types or does not quote them; else empty.
std::string must_reject(const OpCase& example, std::string_view why, const std::vector<TensorType>& types) {
  const Expected<std::vector<TensorType>> outputs = example.op->infer(types);
  std::string list;
  for (const TensorType& type : types) {
    list += (list.empty() ? "" : ", ") + type.text();
  }
  if (outputs) {
    return fmt::format("accepts {}: ({})", why, list);
  }
  for (const TensorType& type : types) {
    if (outputs.error().what.find(type.text()) == std::string::npos) {
      return fmt::format("error about {} does not quote {}: {}", why, type.text(), outputs.error().what);
    }
  }
  return "";
}

// The other float type of a mixed pair, if changing input `i` to it is certainly wrong: a float32 input next
// to another one, or a float64 scalar (losses, counts) next to float32 tensors.
std::optional<DType> mixed(const std::vector<TensorType>& types, std::size_t i) {
  i64 num_single = 0;
  for (const TensorType& type : types) {
    num_single += type.dtype == DType::kF32 ? 1 : 0;
  }
  if (types[i].dtype == DType::kF32 && num_single > 1) {
    return DType::kF64;
  }
  if (types[i].dtype == DType::kF64 && num_single > 0) {
    return DType::kF32;
  }
  return std::nullopt;
}

std::string check_input(const OpCase& example, const std::vector<TensorType>& types, std::size_t i) {
  const auto with = [&](DType dtype) {
    std::vector<TensorType> changed = types;
    changed[i].dtype = dtype;
    return changed;
  };
  std::string wrong = must_reject(example, fmt::format("u8 for input {}", i), with(DType::kU8));
  if (const std::optional<DType> other = mixed(types, i); other && wrong.empty()) {
    wrong = must_reject(example, fmt::format("mixed float types at input {}", i), with(*other));
  }
  if (types.size() > 1 && wrong.empty()) {
    const bool floating = is_float(types[i].dtype);
    wrong = must_reject(example, fmt::format("{} for input {}", floating ? "integers" : "floats", i),
                        with(floating ? DType::kI32 : DType::kF32));
  }
  if (types.size() > 1 && types[i].shape.rank() < ir::Shape::kMaxRank && !contains(kAnyRanks, example) &&
      wrong.empty()) {
    std::vector<i64> extents(types[i].shape.dims().begin(), types[i].shape.dims().end());
    extents.push_back(1);
    std::vector<TensorType> changed = types;
    changed[i].shape = ir::Shape(extents);
    wrong = must_reject(example, fmt::format("another rank of input {}", i), changed);
  }
  return wrong;
}

}  // namespace

std::string check_infer(const OpCase& example) {
  std::vector<TensorType> types;
  for (const ir::CaseInput& input : example.inputs) {
    types.push_back(input.type);
  }
  const Expected<std::vector<TensorType>> outputs = example.op->infer(types);
  if (!outputs) {
    return fmt::format("rejects the case: {}", outputs.error().what);
  }
  std::string wrong;
  for (std::size_t i = 0; i < types.size() && wrong.empty(); ++i) {
    wrong = check_input(example, types, i);
  }
  if (wrong.empty() && !types.empty()) {
    wrong = must_reject(example, "no inputs", {});
  }
  if (wrong.empty() && !contains(kVariadic, example)) {
    std::vector<TensorType> more = types;
    more.push_back(types.empty() ? TensorType{DType::kF32, {1}} : types.back());
    wrong = must_reject(example, "a superfluous input", more);
    if (wrong.empty() && !types.empty()) {
      wrong = must_reject(example, "a missing input", {types.begin(), types.end() - 1});
    }
  }
  return wrong;
}

}  // namespace wych::ops
