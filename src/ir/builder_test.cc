#include "ir/builder.h"

#include <gtest/gtest.h>

#include "ir/test_ops.h"

namespace wych::ir {
namespace {

using testing::f64;
using testing::product;

TEST(Builder, PersistentIsFoundByPath) {
  Graph graph;
  Builder builder(graph);
  const ValueId weight = builder.persistent("head.weight", f64(3), Category::kWeights);
  const ValueId other = builder.persistent("embed.weight", f64(3), Category::kWeights);
  EXPECT_NE(weight, other);
  EXPECT_EQ(builder.persistent("head.weight", f64(3), Category::kWeights), weight);
  EXPECT_EQ(graph.find("head.weight"), weight);
  EXPECT_EQ(graph.find("final_norm.weight"), kNoValue);
  EXPECT_EQ(graph.values.size(), 2U);
}

TEST(BuilderDeathTest, RefusesAPathUnderAnotherTypeAndASecondInput) {
  Graph graph;
  Builder builder(graph);
  builder.persistent("w", f64(3), Category::kWeights);
  EXPECT_DEATH(builder.persistent("w", f64(4), Category::kWeights),
               "w is f64\\[3\\].*asked for as f64\\[4\\]");
  builder.input("tokens", f64(3));
  EXPECT_DEATH(builder.input("tokens", f64(3)), "input tokens exists already");
}

TEST(Builder, ShapeErrorNamesThePathTheOpAndTheTypes) {
  Graph graph;
  Builder builder(graph);
  const ValueId a = builder.input("a", f64(3));
  const ValueId b = builder.input("b", f64(4));
  const auto block = builder.scope("blocks.3");
  try {
    const auto attention = builder.scope("attention");
    product(builder, a, b);
    FAIL() << "no error";
  } catch (const GraphError& error) {
    EXPECT_EQ(error.error().kind, ErrorKind::kUsage);
    EXPECT_EQ(error.error().where, "blocks.3.attention.product");
    EXPECT_EQ(error.error().what, "needs f64[n] inputs; got (f64[3], f64[4])");
  }
  EXPECT_TRUE(graph.nodes.empty());
}

TEST(Builder, ScopesNestAndEnd) {
  Graph graph;
  Builder builder(graph);
  const ValueId x = builder.input("x", f64(2));
  {
    const auto block = builder.scope("blocks.0", /*region=*/true);
    {
      const auto moe = builder.scope("moe");
      EXPECT_EQ(builder.scoped("w13"), "blocks.0.moe.w13");
      const ValueId y = builder.name(add(builder, x, x), "sum");
      EXPECT_EQ(graph.value(y).path, "blocks.0.moe.sum");
      EXPECT_EQ(graph.regions[static_cast<std::size_t>(graph.value(y).region)], "blocks.0");
    }
    EXPECT_EQ(builder.scoped("w13"), "blocks.0.w13");
  }
  EXPECT_EQ(builder.scoped("w13"), "w13");
  EXPECT_EQ(graph.value(add(builder, x, x)).region, 0);
}

TEST(Builder, ARegionIsListedOnce) {
  Graph graph;
  Builder builder(graph);
  { const auto first = builder.scope("blocks.0", /*region=*/true); }
  { const auto second = builder.scope("blocks.1", /*region=*/true); }
  const auto again = builder.scope("blocks.0", /*region=*/true);
  EXPECT_EQ(builder.region(), 1);
  EXPECT_EQ(graph.regions, (std::vector<std::string>{"", "blocks.0", "blocks.1"}));
}

TEST(Builder, NodesCarryPhaseMicrobatchAndProducer) {
  Graph graph;
  Builder builder(graph);
  const ValueId x = builder.input("x", f64(2));
  builder.set_phase(Phase::kBackward);
  builder.set_microbatch(5);
  const ValueId y = add(builder, x, x);
  EXPECT_EQ(graph.node(0).phase, Phase::kBackward);
  EXPECT_EQ(graph.node(0).microbatch, 5);
  EXPECT_EQ(graph.value(y).producer, 0);
  EXPECT_EQ(graph.value(y).producer_output, 0);
  EXPECT_EQ(graph.value(y).type, f64(2));
}

TEST(BuilderDeathTest, AccumulatesOnlyWhereTheOpCan) {
  Graph graph;
  Builder builder(graph);
  const ValueId x = builder.input("x", f64(2));
  const ValueId narrow = builder.input("narrow", f64(1));
  EXPECT_DEATH(builder.add(std::make_shared<testing::Product>(), {x, x}, x), "product cannot accumulate");
  EXPECT_DEATH(builder.add(std::make_shared<testing::ProductDw>(), {x, x}, narrow),
               "product_dw cannot accumulate into f64\\[1\\]");
}

TEST(Builder, BindStoresAValueUnderAPath) {
  Graph graph;
  Builder builder(graph);
  const ValueId x = builder.input("x", f64(2));
  const ValueId y = add(builder, x, x);
  builder.bind(y, "grad.w", Category::kGradients);
  EXPECT_EQ(graph.value(y).path, "grad.w");
  EXPECT_EQ(graph.value(y).lifetime, Lifetime::kPersistent);
  EXPECT_EQ(graph.value(y).category, Category::kGradients);
  EXPECT_DEATH(builder.bind(x, "grad.x", Category::kGradients), "'x' exists before the program");
}

TEST(Graph, FindsOutputsByName) {
  Graph graph;
  Builder builder(graph);
  const ValueId x = builder.input("x", f64(1));
  builder.output("ce", x);
  EXPECT_EQ(graph.find_output("ce"), x);
  EXPECT_EQ(graph.find_output("z"), kNoValue);
}

TEST(OpText, ListsAttributesInOrder) {
  EXPECT_EQ(op_text(testing::Step(0.25)), "step(step=0.25)");
  EXPECT_EQ(op_text(Add()), "add");
}

}  // namespace
}  // namespace wych::ir
