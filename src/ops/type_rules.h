// Predicates with which infer() states what an op accepts. They only answer; the op words the error.
#pragma once

#include <initializer_list>

#include "ir/type.h"

namespace wych::ops {

// An extent in matches() that accepts anything.
inline constexpr i64 kAnyExtent = -1;

// True for the dtypes in which the CPU computes: "F" in the headers of this folder.
inline bool is_compute(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }

// True if `type` has that dtype, that rank, and every extent that is not kAnyExtent.
inline bool matches(const ir::TensorType& type, DType dtype, std::initializer_list<i64> extents) {
  if (type.dtype != dtype || type.shape.rank() != static_cast<int>(extents.size())) {
    return false;
  }
  int axis = 0;
  for (const i64 extent : extents) {
    if (extent != kAnyExtent && type.shape[axis] != extent) {
      return false;
    }
    ++axis;
  }
  return true;
}

}  // namespace wych::ops
