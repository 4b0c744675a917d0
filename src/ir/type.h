// Shape and TensorType: what a value is, before it has any memory. Layout is always dense row-major.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/types.h"

namespace wych::ir {

// Up to six extents. An extent may be zero.
class Shape {
 public:
  static constexpr int kMaxRank = 6;
  Shape() = default;
  Shape(std::initializer_list<i64> dims) : Shape(std::span<const i64>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const i64> dims);

  [[nodiscard]] int rank() const { return rank_; }
  // The extent of `axis`; negative axes count from the end.
  [[nodiscard]] i64 operator[](int axis) const {
    return dims_[static_cast<std::size_t>(axis < 0 ? axis + rank_ : axis)];
  }
  [[nodiscard]] std::span<const i64> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  // CHECK-fails if the product does not fit into i64; so do rows() and TensorType::bytes().
  [[nodiscard]] i64 elements() const;
  // Product of the extents before the last one; 1 for rank 0 and 1.
  [[nodiscard]] i64 rows() const;
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<i64, kMaxRank> dims_{};
  int rank_ = 0;
};

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;

  [[nodiscard]] i64 elements() const { return shape.elements(); }
  [[nodiscard]] i64 bytes() const;
  // "f32[80,64]"
  [[nodiscard]] std::string text() const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

}  // namespace wych::ir
