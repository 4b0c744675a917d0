// The few questions that every infer() of this folder asks about a type; the op words the error. F is a
// compute type: f32 or f64.
#pragma once

#include "ir/type.h"

namespace wych::ops {

constexpr bool is_compute(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }

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
