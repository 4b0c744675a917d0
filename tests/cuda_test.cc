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
config::Config laptop(config::Device device, config::Compute compute = config::Compute::kF32) {
  const std::vector<std::string> overrides = {"--data.batch_sequences=4", "--data.microbatch_sequences=2",
                                              "--run.max_steps=10"};
  Expected<config::Loaded> loaded =
      config::load("preset:laptop", overrides, {.purpose = config::Purpose::kPlan});
  EXPECT_TRUE(loaded.has_value()) << loaded.error().text();
  loaded->config.run.device = device;
  loaded->config.precision.compute = compute;
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

// ||actual - expected|| / ||expected||.
double relative_norm(const std::vector<double>& actual, const std::vector<double>& expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / norm);
}

class Cuda : public testing::TestWithParam<config::Compute> {
 protected:
  void SetUp() override {
    if (train::resolve_device(config::Device::kAuto) != config::Device::kCuda) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
  [[nodiscard]] static config::Config cuda_laptop() { return laptop(config::Device::kCuda, GetParam()); }
  ThreadPool pool_{2};
};

INSTANTIATE_TEST_SUITE_P(In, Cuda, testing::Values(config::Compute::kF32, config::Compute::kBF16),
                         [](const auto& info) {
                           return info.param == config::Compute::kF32 ? std::string("float32")
                                                                      : std::string("bfloat16");
                         });

TEST_P(Cuda, InitialWeightsAreTheCpusToTheBit) {
  const std::unique_ptr<Engine> cpu = make_engine(laptop(config::Device::kCpu), pool_);
  const std::unique_ptr<Engine> cuda = make_engine(cuda_laptop(), pool_);
  for (const Engine::Tensor& tensor : cpu->checkpoint_tensors()) {
    EXPECT_EQ(cpu->read(tensor.path), cuda->read(tensor.path)) << tensor.path;
  }
}

// One step from the same weights: loss and every gradient. In float32 the bound is rounding over the longest
// sums of the model (2048 logits, 512 tokens) with room for a chain of 30 ops. In bfloat16 every op of the
// chain rounds once by at most 2^-9: sqrt(30) 2^-9 = 0.011 where roundings are independent, 0.05 allowed. New
// weights route almost uniformly, so about 1 % of the routes tie within that and go to another expert: the
// gradients of experts, router and the norm before them differ by the sum of 2 * 1 % of their squares, 0.14;
// 0.2 allowed.
TEST_P(Cuda, AStepIsTheCpus) {
  const bool bf16 = GetParam() == config::Compute::kBF16;
  const config::Config config = laptop(config::Device::kCpu);
  const std::unique_ptr<Engine> cpu = make_engine(config, pool_);
  const std::unique_ptr<Engine> cuda = make_engine(cuda_laptop(), pool_);
  const data::Batch batch = random_batch(config, 3);
  const StepResult expected = cpu->step(batch, 1e-3);
  const StepResult actual = cuda->step(batch, 1e-3);
  EXPECT_NEAR(actual.ce, expected.ce, bf16 ? 3e-3 : 1e-5);
  EXPECT_NEAR(actual.balance, expected.balance, bf16 ? 1e-2 : 1e-5);
  EXPECT_NEAR(actual.grad_norm / expected.grad_norm, 1, bf16 ? 2e-2 : 1e-5);
  EXPECT_EQ(actual.targets, expected.targets);
  if (!bf16) {
    EXPECT_EQ(actual.expert_counts, expected.expert_counts);
  }
  EXPECT_TRUE(actual.applied);
  for (const model::Parameter& parameter : model::parameters(config.model)) {
    // Not the weights: Adam's first step is lr times the sign of a gradient, however small.
    const std::string path = ir::gradient_path(parameter.name);
    const std::vector<double> ours = cuda->read_doubles(path);
    const std::vector<double> theirs = cpu->read_doubles(path);
    if (bf16) {
      const bool routed = path.find(".moe.") != std::string::npos || path.find(".ffn_") != std::string::npos;
      EXPECT_LE(relative_norm(ours, theirs), routed ? 0.2 : 0.05) << path;
    } else {
      EXPECT_LE(relative_difference(ours, theirs), 2e-4) << path;
    }
  }
  const auto first_256 = [](const std::vector<i32>& values) {
    return std::vector<i32>(values.begin(), values.begin() + 256);
  };
  const data::Batch part = {.tokens = first_256(batch.tokens),
                            .targets = first_256(batch.targets),
                            .document_start = first_256(batch.document_start)};
  const train::Evaluation ours = cuda->evaluate(part);
  const train::Evaluation theirs = cpu->evaluate(part);
  EXPECT_EQ(ours.targets, theirs.targets);
  EXPECT_NEAR(ours.ce_sum / theirs.ce_sum, 1, bf16 ? 1e-2 : 1e-3);  // after one step of the sign of gradients
}

// Between two step boundaries nothing waits for the device; the boundary itself does, once.
TEST_P(Cuda, AStepWaitsOnce) {
  const std::unique_ptr<Engine> cuda = make_engine(cuda_laptop(), pool_);
  cuda->step(random_batch(cuda_laptop(), 0), 1e-3);
  const i64 before = cuda->num_waits();
  for (unsigned step = 1; step <= 3; ++step) {
    cuda->step(random_batch(cuda_laptop(), step), 1e-3);
  }
  EXPECT_EQ(cuda->num_waits() - before, 3);
}

TEST_P(Cuda, RunsRepeatToTheBitAndPoisonAndEagerChangeNothing) {
  const auto run = [&](bool poison, bool eager) {
    config::Config config = cuda_laptop();
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

TEST_P(Cuda, RecomputeChangesNoBit) {
  const auto run = [&](config::Recompute recompute) {
    config::Config config = cuda_laptop();
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
TEST_P(Cuda, TwoHundredStepsLearnWhatTheCpuLearns) {
  const auto run = [&](config::Device device) {
    const config::Config config = device == config::Device::kCuda ? cuda_laptop() : laptop(device);
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
