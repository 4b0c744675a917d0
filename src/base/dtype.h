// Scalar types of tensors. A dtype is a run-time enum; kernels are templates instantiated per listed type
// through dispatch_float. There is no implicit promotion anywhere.
#pragma once

#include <bit>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/types.h"

namespace wych {

enum class DType : u8 { kF32, kF64, kBF16, kI32, kI64, kU8 };

// Bytes of one element.
i64 dtype_bytes(DType dtype);
// "f32", "f64", "bf16", "i32", "i64", "u8".
std::string_view dtype_name(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);
constexpr bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16;
}

// bfloat16 as a storage type: round to nearest even in, exact out. NaN stays NaN.
struct bf16 {
  u16 bits = 0;
  bf16() = default;
  explicit bf16(float value) {
    const u32 word = std::bit_cast<u32>(value);
    if ((word & 0x7fffffffU) > 0x7f800000U) {
      bits = static_cast<u16>((word >> 16U) | 0x40U);  // quiet the NaN, keep its sign
    } else {
      bits = static_cast<u16>((word + 0x7fffU + ((word >> 16U) & 1U)) >> 16U);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<u32>(bits) << 16U); }
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType kValue = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType kValue = DType::kF64;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType kValue = DType::kBF16;
};
template <>
struct DTypeOf<i32> {
  static constexpr DType kValue = DType::kI32;
};
template <>
struct DTypeOf<i64> {
  static constexpr DType kValue = DType::kI64;
};
template <>
struct DTypeOf<u8> {
  static constexpr DType kValue = DType::kU8;
};

// Calls function(T{}) with T = float or double; CHECK-fails on any other dtype.
template <class F>
decltype(auto) dispatch_float(DType dtype, F&& function) {
  if (dtype == DType::kF32) {
    return function(float{});
  }
  WYCH_CHECK(dtype == DType::kF64, "no CPU kernel for dtype {}", dtype_name(dtype));
  return function(double{});
}

}  // namespace wych
