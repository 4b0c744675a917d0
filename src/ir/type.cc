#include "ir/type.h"

#include <fmt/format.h>

namespace wych::ir {
namespace {

i64 checked_product(i64 a, i64 b) {
  i64 product = 0;
  WYCH_CHECK(!__builtin_mul_overflow(a, b, &product), "{} x {} does not fit into 64 bits", a, b);
  return product;
}

}  // namespace

Shape::Shape(std::span<const i64> dims) : rank_(static_cast<int>(dims.size())) {
  WYCH_CHECK(dims.size() <= kMaxRank, "rank {} is above {}", dims.size(), kMaxRank);
  std::size_t axis = 0;
  for (const i64 extent : dims) {
    WYCH_CHECK(extent >= 0, "negative extent {}", extent);
    dims_[axis++] = extent;
  }
}

i64 Shape::elements() const {
  i64 product = 1;
  for (const i64 extent : dims()) {
    product = checked_product(product, extent);
  }
  return product;
}

i64 Shape::rows() const {
  i64 product = 1;
  for (int axis = 0; axis + 1 < rank_; ++axis) {
    product = checked_product(product, (*this)[axis]);
  }
  return product;
}

i64 TensorType::bytes() const { return checked_product(elements(), dtype_bytes(dtype)); }

std::string TensorType::text() const {
  return fmt::format("{}[{}]", dtype_name(dtype), fmt::join(shape.dims(), ","));
}

}  // namespace wych::ir
