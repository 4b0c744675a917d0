// Every pass on a ten-line graph: golden text and the invariant that it keeps.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/add.h"
#include "ir/interpret.h"
#include "ir/paths.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ops/head_loss.h"
#include "ops/linear.h"
#include "ops/rms_norm.h"
#include "passes/autodiff.h"
#include "passes/copy.h"
#include "passes/expand.h"
#include "passes/fuse.h"
#include "passes/recompute.h"
#include "passes/unroll.h"

namespace wych::passes {
namespace {

using ir::Graph;
using ir::ValueId;

constexpr i64 kTokens = 6;
constexpr i64 kWidth = 4;
constexpr i64 kVocabulary = 5;

// x = embed; block: norm, linear; head tied to the embedding-like weight "w".
Graph small_model() {
  Graph graph;
  ir::Builder builder(graph);
  const ValueId x = builder.input("x", {DType::kF64, {kTokens, kWidth}});
  const ValueId targets = builder.input(ir::kTargetsPath, {DType::kI32, {kTokens}});
  const ValueId denominator = builder.input(ir::kDenominatorPath, {DType::kF64, {1}});
  const auto weight = [&](const char* path, const ir::Shape& shape) {
    return builder.persistent(path, {DType::kF64, shape}, ir::Category::kWeights);
  };
  ValueId hidden = x;
  for (const char* block : {"blocks.0", "blocks.1"}) {
    const ir::Builder::Scope region = builder.scope(block, true);
    const ValueId normed = ops::rms_norm(
        builder, hidden, weight(block == std::string_view("blocks.0") ? "norm0" : "norm1", {kWidth}), 1e-5);
    hidden = ops::linear(builder, normed, weight("shared", {kWidth, kWidth}));  // used by both blocks
  }
  const ops::HeadLosses losses = ops::head_loss(builder, hidden, weight("head", {kVocabulary, kWidth}),
                                                targets, denominator, kVocabulary);
  builder.loss("ce", losses.ce, 1.0);
  builder.loss("z", losses.z, 0.01);
  return graph;
}

std::vector<double> wave(i64 count, double phase) {
  std::vector<double> values;
  for (i64 i = 0; i < count; ++i) {
    values.push_back(std::sin(phase + 0.7 * static_cast<double>(i)));
  }
  return values;
}

void set_weights(const Graph& graph, ir::Interpreter& interpreter) {
  double phase = 1;
  for (std::size_t id = 0; id < graph.values.size(); ++id) {
    const ir::Value& value = graph.values[id];
    if (value.producer == ir::kNoNode && value.category == ir::Category::kWeights) {
      interpreter.write(static_cast<ValueId>(id), wave(value.type.elements(), phase));
      phase += 1;
    }
  }
}

struct MicrobatchResult {
  std::vector<std::vector<double>> gradients;  // in order of Graph::gradients
  double ce = 0;
};

// One microbatch graph on tokens [begin, end) of a fixed batch of kTokens per microbatch.
MicrobatchResult run_microbatch(const Graph& graph, double denominator, double phase) {
  ThreadPool pool(1);
  ir::Interpreter interpreter(graph, pool);
  set_weights(graph, interpreter);
  interpreter.write(graph.find("x"), wave(kTokens * kWidth, phase));
  interpreter.write(graph.find(ir::kTargetsPath), {0, 1, 2, -100, 4, 3});
  interpreter.write(graph.find(ir::kDenominatorPath), {denominator});
  interpreter.run();
  MicrobatchResult run;
  for (const ir::Gradient& gradient : graph.gradients) {
    run.gradients.push_back(interpreter.read(gradient.gradient));
  }
  run.ce = interpreter.read(graph.losses[0].value)[0];
  return run;
}

Graph differentiated() {
  Expected<Graph> graph = autodiff(small_model());
  EXPECT_TRUE(graph.has_value());
  EXPECT_TRUE(ir::verify(*graph).has_value()) << ir::verify(*graph).error().text();
  return *std::move(graph);
}

i64 count_ops(const Graph& graph, std::string_view name) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                       [&](const ir::Node& node) { return node.op->name() == name; });
}

TEST(Autodiff, GradientsMatchFiniteDifferences) {
  const Graph graph = differentiated();
  const MicrobatchResult analytic = run_microbatch(graph, 5, 0.3);
  // Central differences on the forward's own losses, one entry of each weight at a time.
  const Graph forward = small_model();
  const auto total_loss = [&](std::size_t weight, std::size_t entry, double shift) {
    ThreadPool pool(1);
    ir::Interpreter interpreter(forward, pool);
    set_weights(forward, interpreter);
    interpreter.write(forward.find("x"), wave(kTokens * kWidth, 0.3));
    interpreter.write(forward.find(ir::kTargetsPath), {0, 1, 2, -100, 4, 3});
    interpreter.write(forward.find(ir::kDenominatorPath), {5});
    const ValueId id = forward.find(graph.value(graph.gradients[weight].parameter).path);
    std::vector<double> values = interpreter.read(id);
    values[entry] += shift;
    interpreter.write(id, values);
    interpreter.run();
    double loss = 0;
    for (const ir::Loss& part : forward.losses) {
      loss += part.weight * interpreter.read(part.value)[0];
    }
    return loss;
  };
  ASSERT_EQ(graph.gradients.size(), 4U);
  constexpr double kStep = 1e-5;
  for (std::size_t weight = 0; weight < graph.gradients.size(); ++weight) {
    for (std::size_t entry = 0; entry < analytic.gradients[weight].size(); ++entry) {
      const double numeric =
          (total_loss(weight, entry, kStep) - total_loss(weight, entry, -kStep)) / (2 * kStep);
      EXPECT_NEAR(analytic.gradients[weight][entry], numeric, 1e-8);
    }
  }
}

// Two blocks with norms before their sublayers, as models have them.
Graph residual_model() {
  Graph graph;
  ir::Builder builder(graph);
  const ValueId x = builder.input("x", {DType::kF64, {kTokens, kWidth}});
  const ValueId targets = builder.input(ir::kTargetsPath, {DType::kI32, {kTokens}});
  const ValueId denominator = builder.input(ir::kDenominatorPath, {DType::kF64, {1}});
  const auto weight = [&](const std::string& path, const ir::Shape& shape) {
    return builder.persistent(path, {DType::kF64, shape}, ir::Category::kWeights);
  };
  ValueId hidden = x;
  for (const char* block : {"blocks.0", "blocks.1"}) {
    const ir::Builder::Scope region = builder.scope(block, true);
    const ValueId normed = ops::rms_norm(builder, hidden, weight(builder.scoped("norm"), {kWidth}), 1e-5);
    hidden =
        ir::add(builder, hidden, ops::linear(builder, normed, weight(builder.scoped("w"), {kWidth, kWidth})));
  }
  const ValueId last = ops::rms_norm(builder, hidden, weight("last", {kWidth}), 1e-5);
  builder.loss(
      "ce",
      ops::head_loss(builder, last, weight("head", {kVocabulary, kWidth}), targets, denominator, kVocabulary)
          .ce,
      1.0);
  return graph;
}

TEST(Fuse, ChangesNoBit) {
  const Expected<Graph> plain = autodiff(residual_model());
  ASSERT_TRUE(plain.has_value());
  const Graph fused = fuse(*plain);
  ASSERT_TRUE(ir::verify(fused).has_value()) << ir::verify(fused).error().text();
  EXPECT_EQ(count_ops(fused, "add_rms_norm"), 2);           // block 1's norm and the last one
  EXPECT_EQ(count_ops(fused, "rms_norm"), 1);               // nothing is added before block 0's
  EXPECT_EQ(count_ops(fused, "add_rms_norm_backward"), 1);  // dx of x itself is wanted by nobody
  EXPECT_EQ(count_ops(fused, "add"), 0);
  const MicrobatchResult before = run_microbatch(*plain, 5, 0.3);
  const MicrobatchResult after = run_microbatch(fused, 5, 0.3);
  EXPECT_EQ(before.ce, after.ce);
  EXPECT_EQ(before.gradients, after.gradients);
}

// Across microbatches the weights' gradients go on adding into each other.
TEST(Fuse, KeepsAccumulators) {
  const Expected<Graph> plain = autodiff(residual_model());
  ASSERT_TRUE(plain.has_value());
  const std::vector<MicrobatchAction> actions = {{false, 0}, {true, 0}, {false, 1}, {true, 1}};
  const Graph fused = fuse(unroll(*plain, 2, actions));
  ASSERT_TRUE(ir::verify(fused).has_value()) << ir::verify(fused).error().text();
  std::vector<std::string> accumulated;
  for (const ir::Node& node : fused.nodes) {
    if (node.op->name() == "add_rms_norm_backward" && node.accumulate) {
      accumulated.push_back(fused.value(node.outputs[1]).path);
    }
  }
  EXPECT_EQ(accumulated, std::vector<std::string>{"grad.blocks.1.norm"});
}

TEST(Autodiff, ComputesTheLogitsOnce) {
  const Graph graph = differentiated();
  EXPECT_EQ(count_ops(graph, "head_loss"), 0);
  EXPECT_EQ(count_ops(graph, "head_loss_backward"), 1);
}

TEST(Autodiff, RefusesAWeightWithoutGradient) {
  Graph graph = small_model();
  ir::Builder(graph).persistent("lonely", {DType::kF64, {3}}, ir::Category::kWeights);
  const Expected<Graph> result = autodiff(graph);
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().what.find("lonely"), std::string::npos);
}

TEST(Autodiff, AccumulatesTheSecondUseOfAWeightInPlace) {
  const Graph graph = differentiated();
  const auto accumulating = std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                          [](const ir::Node& node) { return node.accumulate; });
  EXPECT_EQ(accumulating, 1);
}

TEST(Recompute, GradientsAreEqualToTheBitUnderEveryPolicy) {
  const Graph graph = differentiated();
  const MicrobatchResult kept = run_microbatch(graph, 5, 0.3);
  for (const RecomputePolicy policy : {RecomputePolicy::kSelective, RecomputePolicy::kBlock}) {
    const std::vector<RecomputePolicy> policies(graph.regions.size(), policy);
    const Graph dropped = recompute(graph, policies);
    ASSERT_TRUE(ir::verify(dropped).has_value()) << ir::verify(dropped).error().text();
    EXPECT_GT(dropped.nodes.size(), graph.nodes.size());
    const MicrobatchResult again = run_microbatch(dropped, 5, 0.3);
    EXPECT_EQ(again.gradients, kept.gradients);
    EXPECT_EQ(again.ce, kept.ce);
  }
}

TEST(Recompute, NoneChangesNothing) {
  const Graph graph = differentiated();
  const std::vector<RecomputePolicy> policies(graph.regions.size(), RecomputePolicy::kNone);
  EXPECT_EQ(ir::graph_text(recompute(graph, policies)), ir::graph_text(graph));
}

TEST(Recompute, SelectiveDropsNormsAndBlockDropsLinears) {
  const Graph graph = differentiated();
  const auto recomputed = [&](RecomputePolicy policy, std::string_view name) {
    const std::vector<RecomputePolicy> policies(graph.regions.size(), policy);
    const Graph result = recompute(graph, policies);
    return std::count_if(result.nodes.begin(), result.nodes.end(), [&](const ir::Node& node) {
      return node.phase == ir::Phase::kRecompute && node.op->name() == name;
    });
  };
  EXPECT_EQ(recomputed(RecomputePolicy::kSelective, "rms_norm"), 2);
  EXPECT_EQ(recomputed(RecomputePolicy::kSelective, "linear"), 0);
  EXPECT_EQ(recomputed(RecomputePolicy::kBlock, "rms_norm"), 2);
  // What a block hands on is kept: nothing in a backward needs a linear's output here.
  EXPECT_EQ(recomputed(RecomputePolicy::kBlock, "linear"), 0);
}

TEST(EliminateDead, DropsWhatNobodyReads) {
  Graph graph = small_model();
  ir::Builder builder(graph);
  ops::linear(builder, graph.find("x"), graph.find("shared"));
  const Graph clean = eliminate_dead(graph);
  EXPECT_EQ(clean.nodes.size() + 1, graph.nodes.size());
  EXPECT_EQ(ir::graph_text(clean), ir::graph_text(eliminate_dead(small_model())));
}

TEST(Unroll, StepEqualsTheSumOfItsMicrobatches) {
  const Graph graph = differentiated();
  const Graph step = unroll(
      graph, 3,
      std::vector<MicrobatchAction>{{false, 0}, {true, 0}, {false, 1}, {false, 2}, {true, 1}, {true, 2}});
  ASSERT_TRUE(ir::verify(step).has_value()) << ir::verify(step).error().text();
  ThreadPool pool(1);
  ir::Interpreter interpreter(step, pool);
  set_weights(step, interpreter);
  for (int microbatch = 0; microbatch < 3; ++microbatch) {
    interpreter.write(step.find(ir::microbatch_path(microbatch, "x")),
                      wave(kTokens * kWidth, 0.3 + microbatch));
    interpreter.write(step.find(ir::microbatch_path(microbatch, ir::kTargetsPath)), {0, 1, 2, -100, 4, 3});
  }
  interpreter.run();
  EXPECT_EQ(interpreter.read(step.find_output("targets"))[0], 15);
  double ce = 0;
  std::vector<std::vector<double>> sum;
  for (int microbatch = 0; microbatch < 3; ++microbatch) {
    const MicrobatchResult part = run_microbatch(graph, 15, 0.3 + microbatch);
    ce += part.ce;
    sum.resize(part.gradients.size());
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i].resize(part.gradients[i].size(), 0);
      for (std::size_t j = 0; j < sum[i].size(); ++j) {
        sum[i][j] += part.gradients[i][j];
      }
    }
  }
  EXPECT_NEAR(interpreter.read(step.find_output("loss.ce"))[0], ce, 1e-14);
  ASSERT_EQ(step.gradients.size(), sum.size());
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const std::vector<double> gradient = interpreter.read(step.gradients[i].gradient);
    for (std::size_t j = 0; j < gradient.size(); ++j) {
      EXPECT_NEAR(gradient[j], sum[i][j], 1e-14);
    }
    const ir::Value& value = step.value(step.gradients[i].gradient);
    EXPECT_EQ(value.path, ir::gradient_path(step.value(step.gradients[i].parameter).path));
    EXPECT_EQ(value.category, ir::Category::kGradients);
  }
}

TEST(Unroll, LaterMicrobatchesAddInTheKernel) {
  const Graph step = unroll(differentiated(), 2,
                            std::vector<MicrobatchAction>{{false, 0}, {true, 0}, {false, 1}, {true, 1}});
  EXPECT_EQ(count_ops(step, "add"), 0);
  EXPECT_EQ(count_ops(step, "fill"), 4);  // two seeds a microbatch, and no zeroed gradient
}

}  // namespace
}  // namespace wych::passes
