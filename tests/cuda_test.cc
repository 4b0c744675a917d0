// The programs of a run on a CUDA device beside the same programs on the CPU. Needs a device; without one the
// tests are skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "base/sticky_max.h"
#include "config/load.h"
#include "ir/paths.h"
#include "model/parameters.h"
#include "train/compute_device.h"
#include "train/engine.h"

namespace wych {
namespace {

using train::Engine;
using train::StepResult;

// The laptop's model in small batches.
config::Config laptop(config::Device device) {
  const std::vector<std::string> overrides = {"--data.batch_sequences=4", "--data.microbatch_sequences=2",
                                              "--run.max_steps=10"};
  Expected<config::Loaded> loaded =
      config::load("preset:laptop", overrides, {.purpose = config::Purpose::kPlan});
  EXPECT_TRUE(loaded.has_value()) << loaded.error().text();
  loaded->config.run.device = device;
  return loaded->config;
}

data::Batch random_batch(const config::Config& config, unsigned seed) {
  std::mt19937 random(seed);
  const i64 length = config.model.sequence_length;
  data::Batch batch;
  for (i64 t = 0; t < config::batch_tokens(config); ++t) {
    const auto vocabulary = static_cast<unsigned>(config.model.vocab_size);
    batch.tokens.push_back(static_cast<i32>(random() % vocabulary));
    batch.targets.push_back(random() % 9 == 0 ? data::kIgnoredTarget
                                              : static_cast<i32>(random() % vocabulary));
    batch.document_start.push_back(t % length < length / 3 ? 0 : static_cast<i32>(length / 3));
  }
  return batch;
}

std::unique_ptr<Engine> make_engine(const config::Config& config, ThreadPool& pool) {
  Expected<std::unique_ptr<Engine>> engine =
      Engine::create(config, {.training = true, .evaluation_sequences = 2}, pool);
  EXPECT_TRUE(engine.has_value()) << engine.error().text();
  (*engine)->initialise(7);
  return *std::move(engine);
}

std::map<std::string, std::vector<std::byte>> everything(const Engine& engine) {
  std::map<std::string, std::vector<std::byte>> bytes;
  for (const auto& [path, slot] : engine.programs().layout.slots()) {
    bytes[path] = engine.read(path);
  }
  return bytes;
}

// The largest difference in units of the largest entry of `expected`.
double relative_difference(const std::vector<double>& actual, const std::vector<double>& expected) {
  double largest = 0;
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    worst = sticky_max(worst, std::abs(actual[i] - expected[i]));
  }
  return largest > 0 ? worst / largest : worst;
}

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (train::resolve_device(config::Device::kAuto) != config::Device::kCuda) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
  ThreadPool pool_{2};
};

TEST_F(Cuda, InitialWeightsAreTheCpusToTheBit) {
  const std::unique_ptr<Engine> cpu = make_engine(laptop(config::Device::kCpu), pool_);
  const std::unique_ptr<Engine> cuda = make_engine(laptop(config::Device::kCuda), pool_);
  for (const Engine::Tensor& tensor : cpu->checkpoint_tensors()) {
    EXPECT_EQ(cpu->read(tensor.path), cuda->read(tensor.path)) << tensor.path;
  }
}

// One step from the same weights: loss and every gradient. The bound is float32's rounding over
// the longest sums of the model (2048 logits, 512 tokens) with room for a chain of 30 ops.
TEST_F(Cuda, AStepIsTheCpus) {
  constexpr double kTolerance = 2e-4;
  const config::Config config = laptop(config::Device::kCpu);
  const std::unique_ptr<Engine> cpu = make_engine(config, pool_);
  const std::unique_ptr<Engine> cuda = make_engine(laptop(config::Device::kCuda), pool_);
  const data::Batch batch = random_batch(config, 3);
  const StepResult expected = cpu->step(batch, 1e-3);
  const StepResult actual = cuda->step(batch, 1e-3);
  EXPECT_NEAR(actual.ce, expected.ce, 1e-5);
  EXPECT_NEAR(actual.balance, expected.balance, 1e-5);
  EXPECT_NEAR(actual.grad_norm / expected.grad_norm, 1, 1e-5);
  EXPECT_EQ(actual.targets, expected.targets);
  EXPECT_EQ(actual.expert_counts, expected.expert_counts);
  EXPECT_TRUE(actual.applied);
  for (const model::Parameter& parameter : model::parameters(config.model)) {
    // Not the weights: Adam's first step is lr times the sign of a gradient, however small.
    const std::string path = ir::gradient_path(parameter.name);
    EXPECT_LE(relative_difference(cuda->read_doubles(path), cpu->read_doubles(path)), kTolerance) << path;
  }
  const train::Evaluation evaluated =
      cuda->evaluate({.tokens = {batch.tokens.begin(), batch.tokens.begin() + 256},
                      .targets = {batch.targets.begin(), batch.targets.begin() + 256},
                      .document_start = {batch.document_start.begin(), batch.document_start.begin() + 256}});
  EXPECT_TRUE(std::isfinite(evaluated.ce_sum));
}

TEST_F(Cuda, RunsRepeatToTheBitAndPoisonAndEagerChangeNothing) {
  const auto run = [&](bool poison, bool eager) {
    config::Config config = laptop(config::Device::kCuda);
    config.memory.poison = poison;
    config.run.eager = eager;
    const std::unique_ptr<Engine> engine = make_engine(config, pool_);
    for (unsigned step = 0; step < 3; ++step) {
      engine->step(random_batch(config, step), 1e-2);
    }
    return everything(*engine);
  };
  const auto plain = run(false, false);
  EXPECT_EQ(run(false, false), plain);
  EXPECT_EQ(run(true, false), plain);
  EXPECT_EQ(run(false, true), plain);
}

TEST_F(Cuda, RecomputeChangesNoBit) {
  const auto run = [&](config::Recompute recompute) {
    config::Config config = laptop(config::Device::kCuda);
    config.memory.recompute = recompute;
    const std::unique_ptr<Engine> engine = make_engine(config, pool_);
    engine->step(random_batch(config, 1), 1e-2);
    return everything(*engine);
  };
  const auto none = run(config::Recompute::kNone);
  EXPECT_EQ(run(config::Recompute::kSelective), none);
  EXPECT_EQ(run(config::Recompute::kBlock), none);
}

// Training learns the same thing: 200 steps on sequences with a rule, mean of the last 50 losses.
TEST_F(Cuda, TwoHundredStepsLearnWhatTheCpuLearns) {
  const auto run = [&](config::Device device) {
    const config::Config config = laptop(device);
    const std::unique_ptr<Engine> engine = make_engine(config, pool_);
    std::mt19937 random(11);
    double sum = 0;
    for (int step = 0; step < 200; ++step) {
      data::Batch batch = random_batch(config, 0);
      i32 token = 0;
      for (std::size_t t = 0; t < batch.tokens.size(); ++t) {
        token = random() % 5 == 0 ? static_cast<i32>(random() % 64) : (token * 5 + 17) % 64;
        batch.tokens[t] = token;
      }
      for (std::size_t t = 0; t < batch.tokens.size(); ++t) {
        const bool last = (static_cast<i64>(t) + 1) % config.model.sequence_length == 0;
        batch.targets[t] = last ? data::kIgnoredTarget : batch.tokens[t + 1];
      }
      const StepResult result = engine->step(batch, 3e-3);
      sum += step >= 150 ? result.ce : 0;
    }
    return sum / 50;
  };
  const double cuda = run(config::Device::kCuda);
  const double cpu = run(config::Device::kCpu);
  RecordProperty("cuda_loss", std::to_string(cuda));
  RecordProperty("cpu_loss", std::to_string(cpu));
  EXPECT_NEAR(cuda, cpu, 0.02);
  EXPECT_LT(cpu, 2.5);  // of ln 2048 = 7.6: it has learnt the rule
}

}  // namespace
}  // namespace wych
