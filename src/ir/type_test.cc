#include "ir/type.h"

#include <gtest/gtest.h>

#include <vector>

namespace wych::ir {
namespace {

TEST(Shape, CountsElementsAndRows) {
  EXPECT_EQ((Shape{3, 5, 7}.elements()), 105);
  EXPECT_EQ((Shape{3, 5, 7}.rows()), 15);
  EXPECT_EQ(Shape{7}.rows(), 1);
  EXPECT_EQ(Shape{}.rows(), 1);
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{4, 0, 2}.elements()), 0);
}

TEST(Shape, NegativeAxesCountFromTheEnd) {
  const Shape shape{3, 5, 7};
  EXPECT_EQ(shape[0], 3);
  EXPECT_EQ(shape[-1], 7);
  EXPECT_EQ(shape[-3], 3);
}

TEST(Shape, DiffersByRankAndExtent) {
  EXPECT_EQ((Shape{2, 3}), Shape(std::vector<i64>{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{6, 1}), (Shape{6}));
}

TEST(ShapeDeathTest, RefusesSevenExtentsAndNegativeOnes) {
  EXPECT_DEATH((Shape{1, 1, 1, 1, 1, 1, 1}), "rank 7 is above 6");
  EXPECT_DEATH((Shape{2, -1}), "negative extent -1");
}

TEST(ShapeDeathTest, RefusesSizesBeyond64Bits) {
  constexpr i64 kBig = i64{1} << 31U;
  EXPECT_EQ((Shape{kBig, kBig}.elements()), i64{1} << 62U);
  EXPECT_DEATH((void)(Shape{kBig, kBig, 2}.elements()), "4611686018427387904 x 2 does not fit");
  EXPECT_DEATH((void)(Shape{kBig, kBig, 2, 1}.rows()), "does not fit into 64 bits");
  EXPECT_DEATH((void)(TensorType{DType::kF32, {kBig, kBig}}.bytes()), "4611686018427387904 x 4 does not fit");
}

TEST(TensorType, PrintsAndCountsBytes) {
  const TensorType type{DType::kF32, {80, 64}};
  EXPECT_EQ(type.text(), "f32[80,64]");
  EXPECT_EQ(type.bytes(), 80 * 64 * 4);
  EXPECT_EQ((TensorType{DType::kBF16, {3}}.bytes()), 6);
  EXPECT_EQ((TensorType{DType::kI64, {}}.text()), "i64[]");
}

TEST(TensorType, DiffersByDtype) {
  EXPECT_NE((TensorType{DType::kF32, {2}}), (TensorType{DType::kF64, {2}}));
  EXPECT_EQ((TensorType{DType::kI32, {2}}), (TensorType{DType::kI32, {2}}));
}

}  // namespace
}  // namespace wych::ir
