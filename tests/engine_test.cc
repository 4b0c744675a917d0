// The engine as a whole on a small model with every feature: the planned program against the interpreter,
// and what must not change results: memory plan, poison, threads, recompute, alignment, microbatches, resume.
#include "train/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "base/sticky_max.h"
#include "config/load.h"
#include "config/model_size.h"
#include "config/presets.h"
#include "ir/interpret.h"
#include "ir/paths.h"
#include "model/parameters.h"
#include "model/transformer.h"
#include "model/update.h"
#include "passes/expand.h"
#include "train/checkpointing.h"

namespace wych::train {
namespace {

constexpr i64 kSequences = 6;
constexpr i64 kSequence = 10;

// Peri-norms, embedding norm and scale, per-head QK-norm, a window on every second layer, a dense first
// layer, a shared expert, both router losses, z-loss; padded vocabulary.
config::Config small_config(config::Compute compute) {
  config::Config config;
  config::ModelConfig& model = config.model;
  model.vocab_size = 61;
  model.padded_vocab = 64;
  model.d_model = 24;
  model.n_layers = 3;
  model.sequence_length = kSequence;
  model.norm = config::NormPlacement::kPeri;
  model.embed_scale = 3.0;
  model.embed_norm = true;
  model.init_std = 0.1;
  model.z_loss_weight = 1e-3;
  model.first_dense_layers = 1;
  model.dense_hidden = 20;
  model.attention = {.n_heads = 4,
                     .n_kv_heads = 2,
                     .head_dim = 8,
                     .qk_norm = config::QkNorm::kPerHead,
                     .window_pattern = {0, 4}};
  model.moe.experts = 6;
  model.moe.top_k = 2;
  model.moe.expert_hidden = 12;
  model.moe.shared_hidden = 10;
  model.moe.router = {.normalize_weights = true, .z_loss_weight = 1e-3, .balance_loss = {.weight = 0.02}};
  config.data.batch_sequences = kSequences;
  config.data.document_mask = true;
  config.precision.compute = compute;
  config.optimizer.lr = 1e-2;
  return config;
}

data::Batch random_batch(unsigned seed) {
  std::mt19937 random(seed);
  data::Batch batch;
  for (i64 t = 0; t < kSequences * kSequence; ++t) {
    batch.tokens.push_back(static_cast<i32>(random() % 61));
    batch.targets.push_back(random() % 7 == 0 ? data::kIgnoredTarget : static_cast<i32>(random() % 61));
    const i64 position = t % kSequence;
    batch.document_start.push_back(position < 4 ? 0 : 4);
  }
  return batch;
}

std::unique_ptr<Engine> make_engine(const config::Config& config, ThreadPool& pool) {
  Expected<std::unique_ptr<Engine>> engine = Engine::create(config, {.training = true}, pool);
  EXPECT_TRUE(engine.has_value()) << engine.error().text();
  (*engine)->initialise(7);
  return *std::move(engine);
}

using Tensors = std::map<std::string, std::vector<double>>;

std::vector<double> to_doubles(const ir::View& view) {
  std::vector<double> values;
  for (i64 i = 0; i < view.elements(); ++i) {
    values.push_back(ir::load_element(view.data, view.type->dtype, i));
  }
  return values;
}

// Gradients, weights and optimizer state after `steps` steps, and the last step's losses.
struct Outcome {
  Tensors tensors;
  StepResult last;
};

void collect(Engine& engine, Tensors& tensors) {
  for (const auto& [path, slot] : engine.programs().layout.slots()) {
    tensors[path] = to_doubles(engine.persistent(path));
  }
}

Outcome train(const config::Config& config, int steps, int threads = 2) {
  ThreadPool pool(threads);
  const std::unique_ptr<Engine> engine = make_engine(config, pool);
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    outcome.last = engine->step(random_batch(static_cast<unsigned>(step)), config.optimizer.lr);
    EXPECT_TRUE(outcome.last.applied);
  }
  collect(*engine, outcome.tensors);
  return outcome;
}

void expect_equal(const Outcome& a, const Outcome& b, double tolerance) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  EXPECT_NEAR(a.last.ce, b.last.ce, tolerance * std::abs(a.last.ce));
  EXPECT_NEAR(a.last.balance, b.last.balance, tolerance * std::abs(a.last.balance));
  EXPECT_NEAR(a.last.router_z, b.last.router_z, tolerance * std::abs(a.last.router_z));
  EXPECT_EQ(a.last.expert_counts, b.last.expert_counts);
  for (const auto& [path, values] : a.tensors) {
    const std::vector<double>& others = b.tensors.at(path);
    ASSERT_EQ(values.size(), others.size()) << path;
    double largest = 0;
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i]));
      worst = sticky_max(worst, std::abs(values[i] - others[i]));
    }
    EXPECT_TRUE(worst <= tolerance * largest) << path << " differs by " << worst << " of " << largest;
  }
}

TEST(Engine, PlannedProgramEqualsTheInterpreterToTheBit) {
  for (const config::Compute compute : {config::Compute::kF32, config::Compute::kF64}) {
    config::Config config = small_config(compute);
    config.data.microbatch_sequences = 2;
    ThreadPool pool(2);
    const std::unique_ptr<Engine> engine = make_engine(config, pool);
    const ir::Graph& graph = engine->programs().train->graph;
    ir::Interpreter interpreter(graph, pool);
    for (std::size_t id = 0; id < graph.values.size(); ++id) {
      const ir::Value& value = graph.values[id];
      if (value.producer == ir::kNoNode && value.lifetime == ir::Lifetime::kPersistent) {
        std::memcpy(interpreter.data(static_cast<ir::ValueId>(id)), engine->persistent(value.path).data,
                    static_cast<std::size_t>(value.type.bytes()));
      }
    }
    const data::Batch batch = random_batch(3);
    const auto write = [&](int microbatch, const char* name, const std::vector<i32>& values) {
      const auto begin = values.begin() + microbatch * 2 * kSequence;
      interpreter.write(graph.find(ir::microbatch_path(microbatch, name)), {begin, begin + 2 * kSequence});
    };
    for (int microbatch = 0; microbatch < 3; ++microbatch) {
      write(microbatch, ir::kTokensPath, batch.tokens);
      write(microbatch, ir::kTargetsPath, batch.targets);
      write(microbatch, ir::kDocumentStartPath, batch.document_start);
    }
    interpreter.run();
    const StepResult result = engine->step(batch, 0.0);
    EXPECT_EQ(result.ce, interpreter.read(graph.find_output("loss.ce"))[0]);
    for (const ir::Gradient& gradient : graph.gradients) {
      const std::string& path = graph.value(gradient.gradient).path;
      EXPECT_EQ(to_doubles(engine->persistent(path)), interpreter.read(gradient.gradient)) << path;
    }
  }
}

TEST(Engine, PoisonThreadsAndRecomputeChangeNoBit) {
  config::Config config = small_config(config::Compute::kF32);
  config.data.microbatch_sequences = 3;
  const Outcome plain = train(config, 3);
  expect_equal(plain, train(config, 3, 1), 0);
  expect_equal(plain, train(config, 3, 3), 0);
  config.memory.poison = true;
  expect_equal(plain, train(config, 3), 0);
  for (const config::Recompute recompute : {config::Recompute::kSelective, config::Recompute::kBlock}) {
    config.memory.recompute = recompute;
    expect_equal(plain, train(config, 3), 0);
    config.memory.recompute_layers = {1};
    expect_equal(plain, train(config, 3), 0);
    config.memory.recompute_layers.clear();
  }
}

TEST(Engine, MicrobatchesAndAlignmentChangeNothingInFloat64) {
  for (const config::BalanceScope scope : {config::BalanceScope::kSequence, config::BalanceScope::kGlobal}) {
    config::Config config = small_config(config::Compute::kF64);
    // Adam divides by the gradient's size: where a gradient is all but zero, its rounding decides the step.
    // The smaller rate keeps that below the tolerance.
    config.optimizer.lr = 1e-3;
    config.model.moe.router.balance_loss.scope = scope;
    const Outcome whole = train(config, 3);
    for (const i64 sequences : {1, 2, 3}) {
      config.data.microbatch_sequences = sequences;
      expect_equal(whole, train(config, 3), 1e-12);
    }
    config.memory.alignment = 128;
    expect_equal(whole, train(config, 3), 1e-12);
  }
}

TEST(Engine, RecomputeSavesMemoryAndThePlanReachesItsBound) {
  config::Config config = small_config(config::Compute::kF32);
  config.model.n_layers = 6;
  i64 before = 0;
  for (const config::Recompute recompute :
       {config::Recompute::kBlock, config::Recompute::kSelective, config::Recompute::kNone}) {
    config.memory.recompute = recompute;
    const Expected<Programs> programs = build_programs(config, {.training = true});
    ASSERT_TRUE(programs.has_value());
    const plan::ArenaPlan& stash = programs->train->arenas[static_cast<std::size_t>(ir::Category::kStash)];
    EXPECT_GT(stash.bytes, before);
    EXPECT_LE(stash.bytes, stash.lower_bound * 11 / 10);
    before = stash.bytes;
  }
}

TEST(Engine, EveryWeightChangesInOneStep) {
  const config::Config config = small_config(config::Compute::kF32);
  ThreadPool pool(2);
  const std::unique_ptr<Engine> engine = make_engine(config, pool);
  Tensors before;
  collect(*engine, before);
  engine->step(random_batch(0), 1e-2);
  for (const model::Parameter& parameter : model::parameters(config.model)) {
    EXPECT_NE(to_doubles(engine->persistent(parameter.name)), before.at(parameter.name)) << parameter.name;
  }
}

TEST(Engine, NonFiniteStepLeavesEverythingAsItWas) {
  const config::Config config = small_config(config::Compute::kF32);
  ThreadPool pool(2);
  const std::unique_ptr<Engine> engine = make_engine(config, pool);
  engine->step(random_batch(0), 1e-2);
  float* weight = engine->persistent("blocks.1.attention.wo").as<float>();
  const float good = weight[5];
  weight[5] = std::nanf("");
  Tensors before;
  collect(*engine, before);
  const StepResult result = engine->step(random_batch(1), 1e-2);
  EXPECT_TRUE(result.non_finite);
  EXPECT_FALSE(result.applied);
  EXPECT_EQ(result.adam_step, 1);
  for (const Engine::Tensor& tensor : engine->checkpoint_tensors()) {
    if (tensor.path != model::kOptimizerStatePath && tensor.path != "blocks.1.attention.wo") {
      EXPECT_EQ(engine->read_doubles(tensor.path), before.at(tensor.path)) << tensor.path;
    }
  }
  weight[5] = good;
  EXPECT_TRUE(engine->step(random_batch(1), 1e-2).applied);
}

TEST(Engine, GlobalBalanceFollowsTheLastAppliedStep) {
  config::Config config = small_config(config::Compute::kF64);
  config.model.moe.router.balance_loss.scope = config::BalanceScope::kGlobal;
  ThreadPool pool(2);
  const std::unique_ptr<Engine> engine = make_engine(config, pool);
  const std::string path = model::load_fractions_path("blocks.1");
  for (const double fraction : to_doubles(engine->persistent(path))) {
    EXPECT_DOUBLE_EQ(fraction, 2.0 / 6.0);
  }
  const StepResult result = engine->step(random_batch(0), 1e-2);
  const std::vector<double> fractions = to_doubles(engine->persistent(path));
  for (std::size_t expert = 0; expert < fractions.size(); ++expert) {
    EXPECT_DOUBLE_EQ(fractions[expert],
                     static_cast<double>(result.expert_counts[0][expert]) / (kSequences * kSequence));
  }
}

TEST(Engine, ResumedRunContinuesWithTheSameBits) {
  config::Config config = small_config(config::Compute::kF32);
  config.optimizer.skip_step = {.enabled = true, .window = 8, .sigma = 6, .min_steps = 4};
  config.model.moe.router.balance_loss.scope = config::BalanceScope::kGlobal;
  config.run.dir = testing::TempDir() + "wych_engine_resume";
  std::filesystem::remove_all(config.run.dir);
  ThreadPool pool(2);
  const Outcome whole = train(config, 6);
  {
    const std::unique_ptr<Engine> first = make_engine(config, pool);
    for (unsigned step = 0; step < 3; ++step) {
      first->step(random_batch(step), config.optimizer.lr);
    }
    const Expected<std::string> saved =
        save_run(*first, config, {.step = 3, .tokens = 180, .position = {1, 18}});
    ASSERT_TRUE(saved.has_value()) << saved.error().text();
  }
  const std::unique_ptr<Engine> second = make_engine(config, pool);
  const Expected<std::optional<std::string>> latest = io::latest_checkpoint(config.run.dir);
  ASSERT_TRUE(latest.has_value() && latest->has_value());
  const Expected<RunProgress> progress = load_run(*second, **latest);
  ASSERT_TRUE(progress.has_value()) << progress.error().text();
  EXPECT_EQ(progress->step, 3);
  EXPECT_EQ(progress->position, (data::DataPosition{1, 18}));
  Outcome resumed;
  for (unsigned step = 3; step < 6; ++step) {
    resumed.last = second->step(random_batch(step), config.optimizer.lr);
  }
  collect(*second, resumed.tensors);
  expect_equal(whole, resumed, 0);
  std::filesystem::remove_all(config.run.dir);
}

TEST(Engine, CachedGenerationEqualsTheFullForward) {
  const config::Config config = small_config(config::Compute::kF64);
  ThreadPool pool(2);
  Expected<std::unique_ptr<Engine>> engine =
      Engine::create(config, {.training = true, .prefill_tokens = 4, .cache_length = kSequence}, pool);
  ASSERT_TRUE(engine.has_value()) << engine.error().text();
  (*engine)->initialise(7);
  const Expected<ir::Graph> full = model::build_logits(config.model, 1, kSequence, {.compute = DType::kF64});
  ASSERT_TRUE(full.has_value());
  ir::Interpreter interpreter(*full, pool);
  for (const model::Parameter& parameter : model::parameters(config.model)) {
    const ir::View view = (*engine)->persistent(parameter.name);
    std::memcpy(interpreter.data(full->find(parameter.name)), view.data,
                static_cast<std::size_t>(view.type->bytes()));
  }
  const std::vector<i32> ids = {5, 9, 60, 2, 2, 31, 7, 18, 44, 1};
  interpreter.write(full->find(ir::kTokensPath), {ids.begin(), ids.end()});
  interpreter.write(full->find(ir::kDocumentStartPath), std::vector<double>(ids.size(), 0));
  interpreter.run();
  const std::vector<double> expected = interpreter.read(full->find_output("logits"));
  const auto check = [&](const std::vector<float>& logits, std::size_t row) {
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double truth = expected[row * 64 + i];
      EXPECT_NEAR(static_cast<double>(logits[i]), truth, 1e-6 * (1 + std::abs(truth)));
    }
  };
  check((*engine)->feed(std::span(ids).subspan(0, 3), 0), 2);  // a prefill with one token of padding
  check((*engine)->feed(std::span(ids).subspan(3, 4), 3), 6);
  for (std::size_t position = 7; position < ids.size(); ++position) {
    check((*engine)->feed(std::span(ids).subspan(position, 1), static_cast<i64>(position)), position);
  }
}

TEST(Presets, BuildAsGraphsWithTheirExactParameterCounts) {
  for (const config::Preset& preset : config::presets()) {
    const Expected<config::Loaded> loaded = config::load("preset:" + std::string(preset.name), {},
                                                         {.purpose = config::Purpose::kPlan, .world = 0});
    ASSERT_TRUE(loaded.has_value()) << loaded.error().text();
    const config::ModelConfig& model = loaded->config.model;
    const Expected<ir::Graph> graph = model::build_training(
        model, {.sequence = model.sequence_length, .microbatch_sequences = 1, .batch_sequences = 1}, {});
    ASSERT_TRUE(graph.has_value()) << preset.name << ": " << graph.error().text();
    i64 parameters = 0;
    for (const ir::Value& value : graph->values) {
      parameters += value.category == ir::Category::kWeights ? value.type.elements() : 0;
    }
    EXPECT_EQ(parameters, config::count_parameters(model).total) << preset.name;
  }
}

}  // namespace
}  // namespace wych::train
