#include "ir/print.h"

#include <gtest/gtest.h>

#include "ir/test_ops.h"

namespace wych::ir {
namespace {

using testing::f64;
using testing::product;

// Every kind of line: sources, names, regions, attributes, phases, microbatches, accumulation, results.
TEST(GraphText, MatchesTheGolden) {
  Graph graph;
  Builder builder(graph);
  const ValueId x = builder.input("x", f64(3));
  const ValueId w = builder.persistent("blocks.0.w", f64(3), Category::kWeights);
  builder.set_microbatch(1);
  ValueId y = kNoValue;
  {
    const auto block = builder.scope("blocks.0", /*region=*/true);
    y = builder.name(product(builder, w, x), "y");
    y = product(builder, w, y);
  }
  const auto last = static_cast<NodeId>(graph.nodes.size());
  builder.set_phase(Phase::kBackward);
  const std::vector<Seed> seeds = {{y, x}};
  const std::vector<ValueId> wanted = {w};
  const ValueId gradient = reverse(builder, 0, last, seeds, wanted)[0];
  graph.gradients.push_back({w, gradient});
  builder.set_microbatch(-1);
  builder.set_phase(Phase::kUpdate);
  const ValueId updated = builder.add_one(std::make_shared<testing::Step>(-0.5), {w, gradient});
  builder.loss("ce", y, 0.5);
  builder.output("weight", updated);
  builder.output("x", x);
  EXPECT_EQ(graph_text(graph),
            "input x:f64[3]\n"
            "weights blocks.0.w:f64[3]\n"
            "f blocks.0 mb1 | %2 blocks.0.y:f64[3] = product blocks.0.w, x\n"
            "f blocks.0 mb1 | %3:f64[3] = product blocks.0.w, %2\n"
            "b blocks.0 mb1 | %4:f64[3] = product_dw x, %2\n"
            "b blocks.0 mb1 | %5:f64[3] = product blocks.0.w, x\n"
            "b blocks.0 mb1 | %6:f64[3] += product_dw %5, x onto %4\n"
            "b blocks.0 mb1 | %7:f64[3] = product blocks.0.w, %5\n"
            "u | %8:f64[3] = step(step=-0.5) blocks.0.w, %6\n"
            "gradient blocks.0.w = %6\n"
            "loss ce = 0.5 * %3\n"
            "output weight = %8\n"
            "output x = x\n");
}

}  // namespace
}  // namespace wych::ir
