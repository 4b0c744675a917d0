// The executor on a program of adds, which is all that this layer may know: addresses, poison, threads.
#include "exec/cpu_executor.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>

#include "ir/add.h"
#include "ir/builder.h"
#include "plan/lower.h"

namespace wych::exec {
namespace {

constexpr i64 kElements = 100'003;  // several chunks for the pool, and no multiple of anything

// out = (x + w) + (x + w); w persists.
ir::Graph doubled_sum() {
  ir::Graph graph;
  ir::Builder builder(graph);
  const ir::TensorType type{DType::kF32, {kElements}};
  const ir::ValueId x = builder.input("x", type);
  const ir::ValueId w = builder.persistent("w", type, ir::Category::kWeights);
  const ir::ValueId sum = ir::add(builder, x, w);
  builder.output("out", ir::add(builder, sum, sum));
  return graph;
}

std::vector<float> run(int threads, bool poison) {
  plan::Layout layout;
  const Expected<plan::Program> program = plan::lower("double", doubled_sum(), layout);
  EXPECT_TRUE(program.has_value());
  ThreadPool pool(threads);
  Expected<std::unique_ptr<CpuExecutor>> created = CpuExecutor::create(layout, pool, {.poison = poison});
  EXPECT_TRUE(created.has_value());
  CpuExecutor* executor = created->get();
  const int loaded = executor->load(*program);
  float* x = executor->view(program->input("x")).as<float>();
  float* w = executor->view(*layout.find("w")).as<float>();
  for (i64 i = 0; i < kElements; ++i) {
    x[i] = static_cast<float>(i);
    w[i] = 0.25F;
  }
  Profiler profiler(true);
  executor->run(loaded, &profiler);
  EXPECT_EQ(profiler.times().at("add").calls, 2);
  const nlohmann::json trace = nlohmann::json::parse(profiler.chrome_trace());
  const nlohmann::json& events = trace.at("traceEvents");
  EXPECT_EQ(events.size(), 2);
  EXPECT_EQ(events.at(1).at("name"), "add");
  EXPECT_EQ(events.at(1).at("ph"), "X");
  EXPECT_GE(events.at(1).at("ts").get<double>(), events.at(0).at("dur").get<double>() - 1e-3);
  const float* out = executor->view(program->output("out")).as<float>();
  return {out, out + kElements};
}

TEST(CpuExecutor, RunsAProgramInItsArenas) {
  const std::vector<float> result = run(1, false);
  for (i64 i = 0; i < kElements; ++i) {
    ASSERT_EQ(result[static_cast<std::size_t>(i)], 2 * (static_cast<float>(i) + 0.25F));
  }
}

TEST(CpuExecutor, ThreadsAndPoisonChangeNoBit) {
  const std::vector<float> plain = run(1, false);
  EXPECT_EQ(run(2, false), plain);
  EXPECT_EQ(run(3, true), plain);
}

TEST(CpuExecutor, PoisonMakesAReadOfDeadMemoryVisible) {
  plan::Layout layout;
  Expected<plan::Program> program = plan::lower("double", doubled_sum(), layout);
  ASSERT_TRUE(program.has_value());
  // A broken plan: the sum counts as dead before it is read.
  plan::Slot sum = program->instructions[0].outputs[0];
  sum.type = {DType::kU8, {sum.type.bytes()}};
  program->instructions[0].released.push_back(sum);
  ThreadPool pool(1);
  Expected<std::unique_ptr<CpuExecutor>> created = CpuExecutor::create(layout, pool, {.poison = true});
  ASSERT_TRUE(created.has_value());
  CpuExecutor* executor = created->get();
  executor->run(executor->load(*program));
  EXPECT_TRUE(std::isnan(executor->view(program->output("out")).as<float>()[0]));
}

}  // namespace
}  // namespace wych::exec
