// What the op suite cannot show: an id outside the table, which is a fault of the caller, ends the program.
#include "ops/embed.h"

#include <gtest/gtest.h>

#include "ir/interpret.h"

namespace wych::ops {
namespace {

// Embeds `ids` with a table of 5 rows.
void run_embed(const std::vector<double>& ids) {
  ir::Graph graph;
  ir::Builder builder(graph);
  const ir::ValueId weight = builder.input("weight", {DType::kF32, {5, 3}});
  const ir::ValueId tokens = builder.input("tokens", {DType::kI32, {static_cast<i64>(ids.size())}});
  embed(builder, weight, tokens, 1.0);
  ThreadPool pool(1);
  ir::Interpreter interpreter(graph, pool);
  interpreter.write(weight, std::vector<double>(15, 1.0));
  interpreter.write(tokens, ids);
  interpreter.run();
}

TEST(EmbedDeathTest, RefusesIdsOutsideTheTable) {
  run_embed({0, 4});
  EXPECT_DEATH(run_embed({0, 4, 5}), "token 5 of 5");
  EXPECT_DEATH(run_embed({-1, 0}), "token -1 of 5");
}

}  // namespace
}  // namespace wych::ops
