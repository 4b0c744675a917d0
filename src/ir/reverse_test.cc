// The reverse sweep: values by the interpreter, and how the graph looks where that matters.
#include <gtest/gtest.h>

#include "ir/interpret.h"
#include "ir/print.h"
#include "ir/test_ops.h"
#include "ir/verify.h"

namespace wych::ir {
namespace {

using testing::f64;
using testing::product;

using Numbers = std::vector<double>;

class Reverse : public ::testing::Test {
 protected:
  ValueId source(std::string_view path, const Numbers& values) {
    const ValueId id = builder_.input(path, f64(static_cast<i64>(values.size())));
    sources_.emplace_back(id, values);
    return id;
  }

  // Cotangents of `wanted` for a cotangent of ones on `y`.
  std::vector<ValueId> reverse_of(ValueId y, const std::vector<ValueId>& wanted) {
    const auto last = static_cast<NodeId>(graph_.nodes.size());
    const ValueId ones = source("dy", Numbers(static_cast<std::size_t>(builder_.type(y).elements()), 1.0));
    builder_.set_phase(Phase::kBackward);
    const std::vector<Seed> seeds = {{y, ones}};
    return reverse(builder_, 0, last, seeds, wanted);
  }

  std::vector<Numbers> run(const std::vector<ValueId>& ids) {
    for (const ValueId id : ids) {
      builder_.output("result", id);
    }
    verify(graph_).value();  // that no result is overwritten, too
    ThreadPool pool(1);
    Interpreter interpreter(graph_, pool);
    for (const auto& [id, values] : sources_) {
      interpreter.write(id, values);
    }
    interpreter.run();
    std::vector<Numbers> results;
    for (const ValueId id : ids) {
      results.push_back(interpreter.read(id));
    }
    return results;
  }

  [[nodiscard]] i64 count(std::string_view op, bool accumulate) const {
    i64 num = 0;
    for (const Node& node : graph_.nodes) {
      num += node.op->name() == op && node.accumulate == accumulate ? 1 : 0;
    }
    return num;
  }

  Graph graph_;
  Builder builder_{graph_};

 private:
  std::vector<std::pair<ValueId, Numbers>> sources_;
};

TEST_F(Reverse, SumsTheCotangentsOfAValueThatIsReadTwice) {
  const ValueId x = source("x", {2, 3});
  const ValueId y = add(builder_, add(builder_, x, x), x);
  EXPECT_EQ(run(reverse_of(y, {x})), (std::vector<Numbers>{{3, 3}}));
}

TEST_F(Reverse, WeightGradientsAddIntoOneBuffer) {
  const ValueId w = source("w", {2, 3});
  const ValueId a = source("a", {5, 7});
  const ValueId b = source("b", {11, 13});
  const ValueId c = source("c", {17, 19});
  const ValueId y =
      add(builder_, add(builder_, product(builder_, w, a), product(builder_, w, b)), product(builder_, w, c));
  const std::vector<ValueId> gradients = reverse_of(y, {w, a});
  EXPECT_EQ(run(gradients), (std::vector<Numbers>{{33, 39}, {2, 3}}));
  EXPECT_EQ(count("product_dw", false), 1);
  EXPECT_EQ(count("product_dw", true), 2);
  EXPECT_EQ(count("add", false), 2) << "the forward's own";
}

TEST_F(Reverse, AGradientOfTwoValuesIsNotAddedInto) {
  // w = a + b gets one weight gradient, which is that of a and of b; a is used once more.
  const ValueId a = source("a", {2, 3});
  const ValueId b = source("b", {5, 7});
  const ValueId x = source("x", {11, 13});
  const ValueId z = source("z", {17, 19});
  const ValueId before = product(builder_, a, z);
  const ValueId w = add(builder_, a, b);
  const ValueId y = add(builder_, before, product(builder_, w, x));
  EXPECT_EQ(run(reverse_of(y, {a, b})), (std::vector<Numbers>{{28, 32}, {11, 13}}));
}

TEST_F(Reverse, AGradientOfTwoValuesAddsIntoNone) {
  // The same with the other use of a behind the sum, so that its gradient comes first.
  const ValueId a = source("a", {2, 3});
  const ValueId b = source("b", {5, 7});
  const ValueId x = source("x", {11, 13});
  const ValueId z = source("z", {17, 19});
  const ValueId first = product(builder_, add(builder_, a, b), x);
  const ValueId y = add(builder_, first, product(builder_, a, z));
  EXPECT_EQ(run(reverse_of(y, {a, b})), (std::vector<Numbers>{{28, 32}, {11, 13}}));
}

TEST_F(Reverse, DefaultVjpDifferentiatesTheReference) {
  const ValueId w = source("w", {2, 3});
  const ValueId x = source("x", {5, 7});
  const ValueId y = builder_.add_one(std::make_shared<testing::ProductPlus>(), {w, x});
  std::vector<ValueId> wanted = reverse_of(y, {w, x});
  wanted.push_back(y);
  EXPECT_EQ(run(wanted), (std::vector<Numbers>{{6, 8}, {2, 3}, {12, 24}}));
}

TEST_F(Reverse, NoPathGivesNoCotangent) {
  const ValueId x = source("x", {2});
  const ValueId unused = source("unused", {3});
  add(builder_, unused, unused);
  const ValueId y = add(builder_, x, x);
  EXPECT_EQ(reverse_of(y, {unused}), std::vector<ValueId>{kNoValue});
}

TEST_F(Reverse, NodesGetTheRegionOfTheirForwardAndTheBuilderKeepsItsOwn) {
  const ValueId x = source("x", {2});
  ValueId y = kNoValue;
  {
    const auto block = builder_.scope("blocks.0", /*region=*/true);
    y = product(builder_, x, x);
  }
  const ValueId gradient = reverse_of(y, {x})[0];
  EXPECT_EQ(graph_.regions[static_cast<std::size_t>(graph_.value(gradient).region)], "blocks.0");
  EXPECT_EQ(graph_.node(graph_.value(gradient).producer).phase, Phase::kBackward);
  EXPECT_EQ(builder_.region(), 0);
}

using ReverseDeathTest = Reverse;

TEST_F(ReverseDeathTest, AnOpWithoutVjpAndReferenceIsNamed) {
  const ValueId x = source("x", {2});
  const ValueId y = builder_.add_one(std::make_shared<testing::ProductDw>(), {x, x});
  EXPECT_DEATH(reverse_of(y, {x}), "op product_dw has neither vjp nor reference");
}

}  // namespace
}  // namespace wych::ir
