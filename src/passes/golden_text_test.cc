// Each pass before and after, as text, on one graph of a few lines: a norm and a projection in a block, and
// the head. A change of a pass shows here as a change of words.
#include <gtest/gtest.h>

#include "ir/add.h"
#include "ir/paths.h"
#include "ir/print.h"
#include "ops/head_loss.h"
#include "ops/linear.h"
#include "ops/rms_norm.h"
#include "passes/autodiff.h"
#include "passes/fuse.h"
#include "passes/recompute.h"
#include "passes/unroll.h"

namespace wych::passes {
namespace {

ir::Graph small_graph() {
  ir::Graph graph;
  ir::Builder builder(graph);
  const auto weight = [&](const char* path, const ir::Shape& shape) {
    return builder.persistent(path, {DType::kF32, shape}, ir::Category::kWeights);
  };
  const ir::ValueId x = builder.input("x", {DType::kF32, {6, 4}});
  const ir::ValueId targets = builder.input(ir::kTargetsPath, {DType::kI32, {6}});
  const ir::ValueId denominator = builder.input(ir::kDenominatorPath, {DType::kF64, {1}});
  ir::ValueId hidden = x;
  {
    const ir::Builder::Scope block = builder.scope("blocks.0", true);
    const ir::ValueId normed = ops::rms_norm(builder, x, weight("norm", {4}), 1e-5);
    hidden = builder.name(ops::linear(builder, normed, weight("w", {4, 4})), "hidden");
  }
  const ops::HeadLosses losses =
      ops::head_loss(builder, hidden, weight("head", {5, 4}), targets, denominator, 5);
  builder.loss("ce", losses.ce, 1.0);
  return graph;
}

ir::Graph differentiated() {
  Expected<ir::Graph> graph = autodiff(small_graph());
  EXPECT_TRUE(graph.has_value());
  return *std::move(graph);
}

// The lines of nodes, gradients, losses and outputs; sources are the same before and after.
std::string text(const ir::Graph& graph) {
  const std::string all = "\n" + ir::graph_text(graph);
  return all.substr(all.find("\nf "));
}

TEST(GoldenText, Forward) {
  EXPECT_EQ(text(small_graph()), R"(
f blocks.0 | %4:f32[6,4], %5:f32[6] = rms_norm(eps=1e-05) x, norm
f blocks.0 | %7 blocks.0.hidden:f32[6,4] = linear %4, w
f | %9:f64[1], %10:f64[1] = head_loss(vocabulary=5) %7, head, targets, step.denominator
loss ce = 1 * %9
)");
}

TEST(GoldenText, Autodiff) {
  EXPECT_EQ(text(differentiated()), R"(
f blocks.0 | %6:f32[6,4], %7:f32[6] = rms_norm(eps=1e-05) x, norm
f blocks.0 | %8 blocks.0.hidden:f32[6,4] = linear %6, w
b | %9:f64[1] = fill(value=1, type=f64[1])
b | %10:f64[1] = fill(value=0, type=f64[1])
b | %11:f64[1], %12:f64[1], %13:f32[6,4], %14:f32[5,4] = head_loss_backward(vocabulary=5) %8, head, targets, step.denominator, %9, %10
b blocks.0 | %15:f32[6,4] = linear_dx %13, w
b blocks.0 | %16:f32[4,4] = linear_dw %13, %6
b blocks.0 | %17:f32[6,4], %18:f32[4] = rms_norm_backward %15, x, norm, %7
gradient norm = %18
gradient w = %16
gradient head = %14
loss ce = 1 * %11
)");
}

TEST(GoldenText, RecomputeSelective) {
  const ir::Graph graph = differentiated();
  const std::vector<RecomputePolicy> policies(graph.regions.size(), RecomputePolicy::kSelective);
  EXPECT_EQ(text(recompute(graph, policies)), R"(
f blocks.0 | %6:f32[6,4], %7:f32[6] = rms_norm(eps=1e-05) x, norm
f blocks.0 | %8 blocks.0.hidden:f32[6,4] = linear %6, w
b | %9:f64[1] = fill(value=1, type=f64[1])
b | %10:f64[1] = fill(value=0, type=f64[1])
b | %11:f64[1], %12:f64[1], %13:f32[6,4], %14:f32[5,4] = head_loss_backward(vocabulary=5) %8, head, targets, step.denominator, %9, %10
b blocks.0 | %15:f32[6,4] = linear_dx %13, w
r blocks.0 | %16:f32[6,4], %17:f32[6] = rms_norm(eps=1e-05) x, norm
b blocks.0 | %18:f32[4,4] = linear_dw %13, %16
b blocks.0 | %19:f32[6,4], %20:f32[4] = rms_norm_backward %15, x, norm, %17
gradient norm = %20
gradient w = %18
gradient head = %14
loss ce = 1 * %11
)");
}

TEST(GoldenText, UnrollTwoMicrobatches) {
  EXPECT_EQ(text(unroll(differentiated(), 2,
                        std::vector<MicrobatchAction>{{false, 0}, {true, 0}, {false, 1}, {true, 1}})),
            R"(
f | %7 step.denominator:f64[1] = count_targets microbatch.0.targets, microbatch.1.targets
f blocks.0 mb0 | %8:f32[6,4], %9:f32[6] = rms_norm(eps=1e-05) microbatch.0.x, norm
f blocks.0 mb0 | %10 blocks.0.hidden:f32[6,4] = linear %8, w
b mb0 | %11:f64[1] = fill(value=1, type=f64[1])
b mb0 | %12:f64[1] = fill(value=0, type=f64[1])
b mb0 | %13:f64[1], %14:f64[1], %15:f32[6,4], %16:f32[5,4] = head_loss_backward(vocabulary=5) %10, head, microbatch.0.targets, %7, %11, %12
b blocks.0 mb0 | %17:f32[6,4] = linear_dx %15, w
b blocks.0 mb0 | %18:f32[4,4] = linear_dw %15, %8
b blocks.0 mb0 | %19:f32[6,4], %20:f32[4] = rms_norm_backward %17, microbatch.0.x, norm, %9
f blocks.0 mb1 | %21:f32[6,4], %22:f32[6] = rms_norm(eps=1e-05) microbatch.1.x, norm
f blocks.0 mb1 | %23 blocks.0.hidden:f32[6,4] = linear %21, w
b mb1 | %24:f64[1] = fill(value=1, type=f64[1])
b mb1 | %25:f64[1] = fill(value=0, type=f64[1])
b mb1 | %26:f64[1], %27:f64[1], %28:f32[6,4], %29 grad.head:f32[5,4] += head_loss_backward(vocabulary=5) %23, head, microbatch.1.targets, %7, %24, %25 onto %16
b blocks.0 mb1 | %30:f32[6,4] = linear_dx %28, w
b blocks.0 mb1 | %31 grad.w:f32[4,4] += linear_dw %28, %21 onto %18
b blocks.0 mb1 | %32:f32[6,4], %33 grad.norm:f32[4] += rms_norm_backward %30, microbatch.1.x, norm, %22 onto %20
b | %34:f64[1] = add_n %13, %26
gradient norm = %33
gradient w = %31
gradient head = %29
output loss.ce = %34
output targets = %7
)");
}

// A residual around the block, so that a norm follows its addition and a gradient passes the norm by.
TEST(GoldenText, Fuse) {
  ir::Graph graph;
  ir::Builder builder(graph);
  const auto weight = [&](const char* path, const ir::Shape& shape) {
    return builder.persistent(path, {DType::kF32, shape}, ir::Category::kWeights);
  };
  const ir::ValueId x = builder.input("x", {DType::kF32, {6, 4}});
  const ir::ValueId targets = builder.input(ir::kTargetsPath, {DType::kI32, {6}});
  const ir::ValueId denominator = builder.input(ir::kDenominatorPath, {DType::kF64, {1}});
  const ir::ValueId projected = ops::linear(builder, x, weight("w", {4, 4}));
  const ir::ValueId sum = builder.name(ir::add(builder, x, projected), "sum");
  const ir::ValueId normed = ops::rms_norm(builder, sum, weight("norm", {4}), 1e-5);
  const ir::ValueId top = ir::add(builder, sum, ops::linear(builder, normed, weight("v", {4, 4})));
  const ops::HeadLosses losses =
      ops::head_loss(builder, top, weight("head", {5, 4}), targets, denominator, 5);
  builder.loss("ce", losses.ce, 1.0);
  const Expected<ir::Graph> differentiated = autodiff(graph);
  ASSERT_TRUE(differentiated.has_value());
  EXPECT_EQ(text(fuse(*differentiated)), R"(
f | %7:f32[6,4] = linear x, w
f | %8 sum:f32[6,4], %9:f32[6,4], %10:f32[6] = add_rms_norm(eps=1e-05) x, %7, norm
f | %11:f32[6,4] = linear %9, v
f | %12:f32[6,4] = add %8, %11
b | %13:f64[1] = fill(value=1, type=f64[1])
b | %14:f64[1] = fill(value=0, type=f64[1])
b | %15:f64[1], %16:f64[1], %17:f32[6,4], %18:f32[5,4] = head_loss_backward(vocabulary=5) %12, head, targets, step.denominator, %13, %14
b | %19:f32[6,4] = linear_dx %17, v
b | %20:f32[4,4] = linear_dw %17, %9
b | %21:f32[6,4], %22:f32[4] = add_rms_norm_backward %19, %8, norm, %10, %17
b | %23:f32[4,4] = linear_dw %21, x
gradient w = %23
gradient norm = %22
gradient v = %20
gradient head = %18
loss ce = 1 * %15
)");
}

}  // namespace
}  // namespace wych::passes
