#include "ir/interpret.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ir/test_ops.h"

namespace wych::ir {
namespace {

using testing::f64;
using testing::product;

class InterpreterTest : public ::testing::Test {
 protected:
  Graph graph_;
  Builder builder_{graph_};
  ThreadPool pool_{1};
};

TEST_F(InterpreterTest, RunsNodesInOrder) {
  const ValueId x = builder_.input("x", f64(2));
  const ValueId y = add(builder_, product(builder_, x, x), x);
  Interpreter interpreter(graph_, pool_);
  interpreter.write(x, {2, 3});
  interpreter.run();
  EXPECT_EQ(interpreter.read(y), (std::vector<double>{6, 12}));
}

TEST_F(InterpreterTest, InPlaceOpsLeaveTheOldValueReadable) {
  const ValueId x = builder_.input("x", f64(1));
  const ValueId moved = builder_.add_one(std::make_shared<testing::Step>(0.5), {x, x});
  const ValueId row = builder_.add_one(std::make_shared<testing::AsRow>(), {moved});
  Interpreter interpreter(graph_, pool_);
  interpreter.write(x, {4});
  interpreter.run();
  EXPECT_EQ(interpreter.read(x), std::vector<double>{4});
  EXPECT_EQ(interpreter.read(moved), std::vector<double>{6});
  EXPECT_EQ(interpreter.read(row), std::vector<double>{6});
}

TEST_F(InterpreterTest, AccumulatingNodesAddToTheirLastInput) {
  const ValueId x = builder_.input("x", f64(1));
  const ValueId sum = builder_.input("sum", f64(1));
  const ValueId dw = builder_.add_one(std::make_shared<testing::ProductDw>(), {x, x}, sum);
  Interpreter interpreter(graph_, pool_);
  interpreter.write(x, {3});
  interpreter.write(sum, {10});
  interpreter.run();
  EXPECT_EQ(interpreter.read(dw), std::vector<double>{19});
  EXPECT_EQ(interpreter.read(sum), std::vector<double>{10});
}

TEST_F(InterpreterTest, BuffersStartPoisoned) {
  const ValueId x = builder_.input("x", f64(3));
  Interpreter nan(graph_, pool_);
  EXPECT_TRUE(std::isnan(nan.read(x)[2]));
  Interpreter zero(graph_, pool_, {.poison = std::byte{0}});
  EXPECT_EQ(zero.read(x), (std::vector<double>{0, 0, 0}));
}

TEST_F(InterpreterTest, TakesAMayAliasOnRequest) {
  const ValueId x = builder_.input("x", f64(2));
  const ValueId y = builder_.input("y", f64(2));
  const ValueId sum = add(builder_, x, y);
  for (int alias = 0; alias < 2; ++alias) {
    Interpreter interpreter(graph_, pool_, {.may_alias = alias});
    interpreter.write(x, {1, 2});
    interpreter.write(y, {10, 20});
    interpreter.run();
    EXPECT_EQ(interpreter.read(sum), (std::vector<double>{11, 22}));
    EXPECT_EQ(interpreter.read(x), (std::vector<double>{1, 2}));
  }
}

TEST_F(InterpreterTest, ElementsGoThroughDoubleAndBack) {
  std::array<std::byte, 16> data{};
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kI32, DType::kI64, DType::kU8}) {
    store_element(data.data(), dtype, 1, 3.0);
    EXPECT_EQ(load_element(data.data(), dtype, 1), 3.0) << dtype_name(dtype);
  }
  store_element(data.data(), DType::kI32, 0, -2.6);
  EXPECT_EQ(load_element(data.data(), DType::kI32, 0), -3.0);
}

// AddressSanitizer reports such a write itself, before the guard is looked at.
using InterpreterDeathTest = InterpreterTest;

TEST_F(InterpreterDeathTest, DetectsWritesBehindBuffers) {
  const ValueId x = builder_.input("x", f64(3));
  const std::pair<testing::Where, const char*> cases[] = {
      {testing::Where::kOutput, "careless wrote behind output f64\\[3\\]|use-after-poison"},
      {testing::Where::kInput, "careless wrote behind input f64\\[3\\]|use-after-poison"},
      {testing::Where::kWorkspace, "careless wrote behind its workspace|use-after-poison"}};
  for (const auto& [where, message] : cases) {
    Graph graph = graph_;
    Builder builder(graph);
    builder.add_one(std::make_shared<testing::Careless>(where), {x});
    Interpreter interpreter(graph, pool_);
    EXPECT_DEATH(interpreter.run(), message);
  }
}

TEST_F(InterpreterDeathTest, NamesAnOpWithoutAKernel) {
  class Abstract final : public testing::VectorOp {
   public:
    Abstract() : VectorOp(1) {}
    [[nodiscard]] std::string_view name() const override { return "abstract"; }
  };
  const ValueId x = builder_.input("x", f64(1));
  builder_.add_one(std::make_shared<Abstract>(), {x});
  Interpreter interpreter(graph_, pool_);
  EXPECT_DEATH(interpreter.run(), "op abstract has no CPU kernel");
}

}  // namespace
}  // namespace wych::ir
