// One graph per rule: right as built, then broken by hand or by an order that the builder does not prevent.
#include "ir/verify.h"

#include <gtest/gtest.h>

#include "ir/test_ops.h"

namespace wych::ir {
namespace {

using testing::f64;
using testing::product;

class Verify : public ::testing::Test {
 protected:
  Verify() : x_(builder_.input("x", f64(1))), y_(add(builder_, x_, x_)) { builder_.loss("ce", y_, 1.0); }

  ValueId step(ValueId x, ValueId dx) {
    return builder_.add_one(std::make_shared<testing::Step>(1.0), {x, dx});
  }
  ValueId as_row(ValueId x) { return builder_.add_one(std::make_shared<testing::AsRow>(), {x}); }
  Value& value(ValueId id) { return graph_.values[static_cast<std::size_t>(id)]; }
  Node& node(std::size_t id) { return graph_.nodes[id]; }

  void expect_broken(const std::string& part) const {
    const Expected<void> result = verify(graph_);
    ASSERT_FALSE(result) << "no error, expected: " << part;
    EXPECT_NE(result.error().text().find(part), std::string::npos) << result.error().text();
  }
  void expect_right() const {
    const Expected<void> result = verify(graph_);
    EXPECT_TRUE(result) << result.error().text();
  }

  Graph graph_;
  Builder builder_{graph_};
  ValueId x_;
  ValueId y_;
};

TEST_F(Verify, AcceptsAGraph) { expect_right(); }

TEST_F(Verify, ATransientHasAProducer) {
  value(x_).lifetime = Lifetime::kTransient;
  expect_broken("value 0 is transient and has no producer");
}

TEST_F(Verify, PathsAreUniqueAndNotEmpty) {
  const ValueId weight = builder_.persistent("w", f64(1), Category::kWeights);
  expect_right();
  value(weight).path = "x";
  expect_broken("path 'x' is empty or used twice");
  value(weight).path = "";
  expect_broken("path '' is empty or used twice");
}

TEST_F(Verify, ABoundPathIsUniqueToo) {
  builder_.bind(add(builder_, x_, y_), "grad.w", Category::kGradients);
  expect_right();
  builder_.bind(y_, "grad.w", Category::kGradients);
  expect_broken("path 'grad.w' is empty or used twice");
}

TEST_F(Verify, ProducersExist) {
  value(y_).producer = 7;
  expect_broken("value 1 has a producer that does not exist");
}

TEST_F(Verify, InputsAreDefinedBeforeTheirNode) {
  const ValueId z = product(builder_, y_, y_);
  expect_right();
  node(0).inputs[1] = z;
  expect_broken("node 0 add in region '': reads value 2 before it is defined");
  node(0).inputs[1] = y_;
  expect_broken("reads value 1 before it is defined");
  node(0).inputs[1] = 99;
  expect_broken("reads value 99 before it is defined");
  node(0).inputs[1] = kNoValue;
  expect_broken("reads value -1 before it is defined");
}

TEST_F(Verify, EveryValueHasOneProducer) {
  product(builder_, y_, y_);
  node(1).outputs[0] = y_;
  expect_broken("node 1 product in region '': does not own its output 0");
}

TEST_F(Verify, TypesAreThoseOfInfer) {
  value(y_).type = f64(2);
  expect_broken("output 0 is f64[2], its op gives f64[1]");
}

TEST_F(Verify, ReportsTheErrorOfInfer) {
  value(x_).type = {DType::kU8, {1}};
  expect_broken("got (u8[1], u8[1])");
}

TEST_F(Verify, OutputsAreAsManyAsTheOpGives) {
  node(0).outputs.clear();
  expect_broken("has 0 outputs, its op has 1");
}

TEST_F(Verify, AnAccumulatorHasTheTypeOfItsOutput) {
  const ValueId wide = builder_.persistent("wide", f64(2), Category::kGradients);
  const ValueId sum = builder_.persistent("sum", f64(1), Category::kGradients);
  builder_.add(std::make_shared<testing::ProductDw>(), {x_, y_}, sum);
  expect_right();
  node(1).inputs.back() = wide;
  expect_broken("accumulates into a value of another type");
}

TEST_F(Verify, AnOverwrittenValueIsReadByNoLaterNode) {
  const ValueId weight = builder_.persistent("w", f64(1), Category::kWeights);
  const ValueId updated = step(weight, y_);
  product(builder_, updated, y_);
  expect_right();
  product(builder_, weight, y_);
  expect_broken(
      "node 3 product in region '': reads value 2 ('w') after it was overwritten in place by value 3");
}

TEST_F(Verify, AnAccumulatorIsReadByNoLaterNode) {
  const ValueId sum = builder_.persistent("sum", f64(1), Category::kGradients);
  builder_.add(std::make_shared<testing::ProductDw>(), {x_, y_}, sum);
  product(builder_, sum, y_);
  expect_broken("reads value 2 ('sum') after it was overwritten in place by value 3");
}

TEST_F(Verify, AViewIsOverwrittenWithItsBuffer) {
  const ValueId weight = builder_.persistent("w", f64(1), Category::kWeights);
  const ValueId row = as_row(weight);
  const ValueId updated = step(weight, y_);
  as_row(updated);
  expect_right();
  builder_.output("row", row);
  expect_broken("output 'row' is value 3, which value 4 overwrites in place");
}

TEST_F(Verify, AViewOfTheNewestVersionMayBeRead) {
  const ValueId weight = builder_.persistent("w", f64(1), Category::kWeights);
  const ValueId updated = step(step(weight, y_), y_);
  builder_.output("row", as_row(updated));
  builder_.output("updated", updated);
  expect_right();
}

TEST_F(Verify, ANodeDoesNotReadTheBufferThatItOverwrites) {
  const ValueId weight = builder_.persistent("w", f64(1), Category::kWeights);
  step(weight, weight);
  expect_broken("node 1 step(step=1) in region '': reads value 2 from the buffer that it overwrites");
}

TEST_F(Verify, LossesAreScalarsInDouble) {
  const ValueId wide = builder_.input("wide", f64(2));
  builder_.loss("z", wide, 0.1);
  expect_broken("loss 'z' is f64[2], not f64[1]");
}

TEST_F(Verify, ResultsAreValues) {
  builder_.output("missing", kNoValue);
  expect_broken("output 'missing' is no value");
}

TEST_F(Verify, GradientsHaveTheShapeOfTheirParameterAndStay) {
  const ValueId weight = builder_.persistent("w", f64(1), Category::kWeights);
  graph_.gradients.push_back({weight, y_});
  expect_right();
  const ValueId wide = builder_.input("wide", f64(2));
  graph_.gradients.back().gradient = wide;
  expect_broken("gradient of 'w' has another shape");
  graph_.gradients.back().gradient = y_;
  graph_.losses.clear();
  step(y_, x_);
  expect_broken("gradient of 'w' is value 1, which value 4 overwrites in place");
}

}  // namespace
}  // namespace wych::ir
