// The few questions that every infer() of this folder asks about a type; the op words the error. F is a
// compute type, f32 or f64. A is the type of activations: F, or bf16 on CUDA. S, the type of what must not be
// rounded so (statistics, norms' weights, router, gradients of weights), is f32 where A is bf16 and A
// otherwise.
#pragma once

#include <string_view>

#include "ir/type.h"

namespace wych::ops {

constexpr bool is_compute(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }

constexpr bool is_activation(DType dtype) { return is_compute(dtype) || dtype == DType::kBF16; }

constexpr DType stats_dtype(DType activation) {
  return activation == DType::kBF16 ? DType::kF32 : activation;
}

// For errors of ops that take both.
inline constexpr std::string_view kTypesText = "A = f32, f64 or bf16, S = f32 for bf16, else A";

// A of that rank.
inline bool is_activation(const ir::TensorType& type, int rank) {
  return is_activation(type.dtype) && type.shape.rank() == rank;
}

// F of that rank.
inline bool is_compute(const ir::TensorType& type, int rank) {
  return is_compute(type.dtype) && type.shape.rank() == rank;
}

inline bool is_index(const ir::TensorType& type, int rank) {
  return type.dtype == DType::kI32 && type.shape.rank() == rank;
}

inline bool is_type(const ir::TensorType& type, DType dtype, const ir::Shape& shape) {
  return type.dtype == dtype && type.shape == shape;
}

// f64[1]: a loss, a normaliser, a step scalar.
inline bool is_scalar(const ir::TensorType& type) { return is_type(type, DType::kF64, {1}); }

}  // namespace wych::ops
