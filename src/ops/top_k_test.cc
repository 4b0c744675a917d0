// What cases cannot say of top_k: NaN is a value here, not poison.
#include "ops/top_k.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/builder.h"
#include "ir/interpret.h"

namespace wych::ops {
namespace {

TEST(TopK, NanIsBelowEverythingAndIndicesStayDistinct) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    ir::Graph graph;
    ir::Builder builder(graph);
    const ir::ValueId scores = builder.input("scores", {dtype, {4, 4}});
    const TopKValues best = top_k(builder, scores, 3);
    ThreadPool pool(1);
    ir::Interpreter interpreter(graph, pool);
    interpreter.write(scores, {nan, 1, nan, 2,            //
                               nan, nan, nan, nan,        //
                               -infinity, nan, nan, nan,  //
                               infinity, nan, infinity, -5});
    interpreter.run();
    EXPECT_EQ(interpreter.read(best.indices), (std::vector<double>{3, 1, 0, 0, 1, 2, 0, 1, 2, 0, 2, 3}));
    const std::vector<double> values = interpreter.read(best.values);
    EXPECT_EQ(values[0], 2);
    EXPECT_TRUE(std::isnan(values[2]));
    EXPECT_EQ(values[6], -infinity);
    EXPECT_EQ(values[11], -5);
  }
}

}  // namespace
}  // namespace wych::ops
