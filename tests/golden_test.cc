// Reference models (tests/golden/README.md): import, logits, loss, auxiliary loss, every gradient, and twenty
// AdamW steps against what the transformers library computed, at the tolerances stated there. Compiled a
// second time for builds with CUDA (cuda_golden_test): float32 then runs on the device, float64 on the CPU as
// ever.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "base/sticky_max.h"
#include "io/huggingface.h"
#include "io/safetensors.h"
#include "ir/interpret.h"
#include "ir/paths.h"
#include "model/parameters.h"
#include "model/transformer.h"
#include "train/checkpointing.h"
#include "train/engine.h"

#ifndef WYCH_GOLDEN_DEVICE
#define WYCH_GOLDEN_DEVICE kCpu
#endif

namespace wych {
namespace {

struct Tolerances {
  double logit;
  double loss;
  double gradient;  // of the tensor's largest entry
};
// Float32: the reference's README. Float64: what is left is the reference's own float32 rounding.
constexpr Tolerances kF32 = {1e-5, 5e-6, 1e-5};
constexpr Tolerances kF64 = {2e-6, 1e-6, 3e-6};
constexpr double kTrajectoryTolerance = 1e-5;
constexpr i64 kSequence = 40;

std::string folder(const std::string& model) { return "tests/golden/" + model; }

io::SafetensorsFile open(const std::string& model, const std::string& file) {
  Expected<io::SafetensorsFile> opened =
      io::SafetensorsFile::open(folder(model) + "/" + file, ErrorKind::kData);
  EXPECT_TRUE(opened.has_value());
  return *std::move(opened);
}

template <class T>
std::vector<T> read(const io::SafetensorsFile& file, const std::string& name) {
  Expected<std::vector<T>> values = file.read<T>(name);
  EXPECT_TRUE(values.has_value()) << values.error().text();
  return *std::move(values);
}

// A batch of sequences, each a document of its own; targets are the labels shifted by one.
data::Batch make_batch(const std::vector<i32>& ids, const std::vector<i32>& labels) {
  data::Batch batch{.tokens = ids,
                    .targets = std::vector<i32>(ids.size(), data::kIgnoredTarget),
                    .document_start = std::vector<i32>(ids.size(), 0)};
  for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
    if ((t + 1) % kSequence != 0) {
      batch.targets[t] = labels[t + 1];
    }
  }
  return batch;
}

// The batch of a model's expected values: labels are the ids unless the file has labels, documents begin
// where its positions do.
data::Batch read_batch(const io::SafetensorsFile& expected) {
  const std::vector<i32> ids = read<i32>(expected, "input_ids");
  data::Batch batch =
      make_batch(ids, expected.find("labels") != nullptr ? read<i32>(expected, "labels") : ids);
  if (expected.find("position") != nullptr) {
    const std::vector<i32> positions = read<i32>(expected, "position");
    for (std::size_t t = 0; t < ids.size(); ++t) {
      batch.document_start[t] = static_cast<i32>(t % kSequence) - positions[t];
    }
  }
  return batch;
}

config::Config make_config(const std::string& model, i64 sequences, config::Compute compute,
                           const char* file = "config.json") {
  Expected<config::ModelConfig> read = io::read_hf_config(folder(model) + "/" + file);
  EXPECT_TRUE(read.has_value()) << read.error().text();
  config::Config config;
  config.model = *read;
  config.model.sequence_length = kSequence;
  config.data.batch_sequences = sequences;
  config.data.document_mask = true;
  config.precision.compute = compute;
  config.run.device =
      compute == config::Compute::kF32 ? config::Device::WYCH_GOLDEN_DEVICE : config::Device::kCpu;
  config.optimizer.lr = 1e-3;
  config.optimizer.beta1 = 0.9;
  config.optimizer.beta2 = 0.95;
  config.optimizer.eps = 1e-8;
  config.optimizer.weight_decay = 0.1;
  config.optimizer.decay_embeddings = true;
  config.optimizer.clip_norm = 1.0;
  return config;
}

std::unique_ptr<train::Engine> load_engine(const std::string& model, const config::Config& config,
                                           ThreadPool& pool,
                                           const train::ProgramRequest& request = {.training = true}) {
  Expected<std::unique_ptr<train::Engine>> engine = train::Engine::create(config, request, pool);
  EXPECT_TRUE(engine.has_value()) << engine.error().text();
  const Expected<void> loaded = train::receive_weights(**engine, [&](const io::FindDestination& find) {
    return io::load_hf_weights(folder(model), config.model, find);
  });
  EXPECT_TRUE(loaded.has_value()) << loaded.error().text();
  return *std::move(engine);
}

double total_loss(const config::Config& config, const train::StepResult& result) {
  const config::BalanceLossConfig& balance = config.model.moe.router.balance_loss;
  return result.ce + balance.weight * result.balance;
}

// The forward pass of two sequences with a model's weights: any value of the graph by name.
class Forward {
 public:
  Forward(const std::string& model, const config::Config& config, const data::Batch& batch)
      : pool_(2),
        vocabulary_(config.model.vocab_size),
        padded_(config.model.padded_vocab_size()),
        graph_(model::build_logits(config.model, 2, kSequence, {.compute = train::compute_dtype(config)})
                   .value()),
        interpreter_(graph_, pool_) {
    io::load_hf_weights(folder(model), config.model, [&](const std::string& name, std::span<const i64>) {
      const ir::ValueId id = graph_.find(name);
      return io::Destination{graph_.type(id).dtype,
                             {interpreter_.data(id), static_cast<std::size_t>(graph_.type(id).bytes())}};
    }).value();
    interpreter_.write(graph_.find(ir::kTokensPath), {batch.tokens.begin(), batch.tokens.end()});
    interpreter_.write(graph_.find(ir::kDocumentStartPath),
                       {batch.document_start.begin(), batch.document_start.end()});
    interpreter_.run();
  }
  std::vector<double> value(const std::string& path) {
    for (std::size_t id = 0; id < graph_.values.size(); ++id) {
      if (graph_.values[id].path == path) {
        return interpreter_.read(static_cast<ir::ValueId>(id));
      }
    }
    ADD_FAILURE() << "no value " << path;
    return {};
  }
  // [tokens, vocabulary], without the padding.
  std::vector<double> logits() {
    const std::vector<double> rows = interpreter_.read(graph_.find_output("logits"));
    std::vector<double> out;
    for (i64 row = 0; row < 2 * kSequence; ++row) {
      out.insert(out.end(), rows.begin() + row * padded_, rows.begin() + row * padded_ + vocabulary_);
    }
    return out;
  }

 private:
  ThreadPool pool_;
  i64 vocabulary_;
  i64 padded_;
  ir::Graph graph_;
  ir::Interpreter interpreter_;
};

template <class A, class B>
double largest_difference(const std::vector<A>& a, const std::vector<B>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    worst = sticky_max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return worst;
}

constexpr std::array<const char*, 9> kModels = {"olmoe",           "olmoe_tied", "olmo2",
                                                "olmo2_documents", "olmo3",      "olmo3_yarn",
                                                "flex_olmo",       "mixtral",    "qwen3_moe"};

class Golden : public testing::TestWithParam<std::tuple<const char*, config::Compute>> {
 protected:
  [[nodiscard]] std::string model() const { return std::get<0>(GetParam()); }
  [[nodiscard]] config::Compute compute() const { return std::get<1>(GetParam()); }
  [[nodiscard]] Tolerances tolerances() const { return compute() == config::Compute::kF32 ? kF32 : kF64; }
};

TEST_P(Golden, BothConfigGenerationsReadAlike) {
  const config::Config latest = make_config(model(), 2, compute());
  const config::Config v4 = make_config(model(), 2, compute(), "config.v4.json");
  EXPECT_EQ(latest.model, v4.model);
}

TEST_P(Golden, LogitsAndRouterLogitsMatch) {
  const config::Config config = make_config(model(), 2, compute());
  const io::SafetensorsFile expected = open(model(), "expected.safetensors");
  Forward forward(model(), config, read_batch(expected));
  EXPECT_LE(largest_difference(forward.logits(), read<float>(expected, "logits")), tolerances().logit);
  i64 compared = 0;
  for (i64 layer = 0; layer < config.model.n_layers; ++layer) {
    const std::string name = fmt::format("router_logits.{}", compared);
    if (!config.model.is_dense_layer(layer)) {
      const std::vector<double> found = forward.value(model::block_name(layer) + ".moe.router.logits");
      EXPECT_LE(largest_difference(found, read<float>(expected, name)), tolerances().logit) << name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, std::count_if(expected.tensors().begin(), expected.tensors().end(),
                                    [](const auto& view) { return view.name.starts_with("router_logits"); }));
}

// Prefill and single tokens from the cache give the logits of the whole sequence at once, which the test
// above holds to the truth.
TEST_P(Golden, CachedGenerationGivesTheLogitsOfTheWholeSequence) {
  const config::Config config = make_config(model(), 2, compute());
  const std::vector<i32> ids = read<i32>(open(model(), "expected.safetensors"), "input_ids");
  const std::vector<double> whole = Forward(model(), config, make_batch(ids, ids)).logits();
  ThreadPool pool(2);
  constexpr i64 kPrefill = 7;
  const std::unique_ptr<train::Engine> engine =
      load_engine(model(), config, pool, {.prefill_tokens = kPrefill, .cache_length = kSequence});
  const i64 vocabulary = config.model.vocab_size;
  i64 begin = 0;
  while (begin < kSequence) {
    const i64 end = begin + (begin < 3 * kPrefill ? kPrefill : 1);
    const std::vector<float> logits = engine->feed(
        std::span(ids).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)),
        begin);
    const std::vector<double> row(whole.begin() + (end - 1) * vocabulary, whole.begin() + end * vocabulary);
    EXPECT_LE(largest_difference(logits, row), tolerances().logit) << end;
    begin = end;
  }
}

TEST_P(Golden, LossAuxiliaryLossAndEveryGradientMatch) {
  const config::Config config = make_config(model(), 2, compute());
  const io::SafetensorsFile expected = open(model(), "expected.safetensors");
  ThreadPool pool(2);
  const std::unique_ptr<train::Engine> engine = load_engine(model(), config, pool);
  const train::StepResult result = engine->step(read_batch(expected), 0.0);
  EXPECT_TRUE(result.applied);
  const bool has_experts = config.model.moe.experts > 0;
  EXPECT_EQ(expected.find("aux_loss") != nullptr, has_experts);
  const double balance = has_experts ? static_cast<double>(read<float>(expected, "aux_loss")[0]) : 0.0;
  EXPECT_NEAR(result.balance, balance, tolerances().loss);
  EXPECT_NEAR(total_loss(config, result), static_cast<double>(read<float>(expected, "loss")[0]),
              tolerances().loss);

  // The golden gradients, in wych's layout.
  std::map<std::string, std::vector<double>> truth;
  std::vector<io::SafetensorsFile> files;
  files.push_back(open(model(), "grads.safetensors"));
  const Expected<io::HfWeights> stored =
      io::HfWeights::check(std::move(files), io::weight_pieces(config.model, io::ExpertNaming::kStacked));
  ASSERT_TRUE(stored.has_value()) << stored.error().text();
  stored->read_all([&](const std::string& name, std::span<const i64> shape) {
    std::vector<double>& values = truth[name];
    values.resize(static_cast<std::size_t>(ir::Shape(shape).elements()));
    return io::Destination{DType::kF64, std::as_writable_bytes(std::span(values))};
  });
  i64 compared = 0;
  for (const auto& [name, values] : truth) {
    const std::vector<double> gradient = engine->read_doubles(ir::gradient_path(name));
    ASSERT_EQ(gradient.size(), values.size()) << name;
    double largest = 0;
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i]));
      worst = sticky_max(worst, std::abs(values[i] - gradient[i]));
    }
    EXPECT_LE(worst, tolerances().gradient * largest) << name;
    ++compared;
  }
  EXPECT_EQ(compared,
            std::count_if(engine->programs().layout.slots().begin(), engine->programs().layout.slots().end(),
                          [](const auto& slot) { return slot.second.arena == ir::Category::kGradients; }));
}

INSTANTIATE_TEST_SUITE_P(Models, Golden,
                         testing::Combine(testing::ValuesIn(kModels),
                                          testing::Values(config::Compute::kF32, config::Compute::kF64)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) == config::Compute::kF32 ? "F32" : "F64");
                         });

data::Batch trajectory_batch(const std::vector<i32>& batches, std::size_t step) {
  const auto begin = batches.begin() + static_cast<std::ptrdiff_t>(step * 4 * kSequence);
  const std::vector<i32> ids(begin, begin + 4 * kSequence);
  return make_batch(ids, ids);
}

// Copies every checkpointed tensor of `from` (float64) into `to`.
void synchronise(train::Engine& from, train::Engine& to) {
  for (const train::Engine::Tensor& tensor : to.checkpoint_tensors()) {
    const std::vector<double> values = from.read_doubles(tensor.path);
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.type.bytes()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      ir::store_element(bytes.data(), tensor.type.dtype, static_cast<i64>(i), values[i]);
    }
    to.write(tensor.path, bytes);
  }
}

// Float64 follows the whole trajectory. Float32 does too, except where two router probabilities tie within
// its rounding and it takes the other expert: such a step computes another function and is not compared, and
// float32 goes on from float64's state.
class GoldenTrajectory : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTrajectory, TwentyAdamWStepsMatch) {
  const std::string model = GetParam();
  const io::SafetensorsFile trajectory = open(model, "adamw20.safetensors");
  const std::vector<i32> batches = read<i32>(trajectory, "batches");
  const std::vector<double> losses = read<double>(trajectory, "loss");
  const std::vector<double> norms = read<double>(trajectory, "grad_norm");
  ASSERT_EQ(losses.size(), 20U);
  ThreadPool pool(2);
  const config::Config wide = make_config(model, 4, config::Compute::kF64);
  const config::Config narrow = make_config(model, 4, config::Compute::kF32);
  const std::unique_ptr<train::Engine> truth = load_engine(model, wide, pool);
  const std::unique_ptr<train::Engine> engine = load_engine(model, narrow, pool);
  const auto compare = [&](const train::StepResult& result, std::size_t step) {
    EXPECT_TRUE(result.applied);
    EXPECT_EQ(result.adam_step, static_cast<i64>(step) + 1);
    EXPECT_NEAR(total_loss(wide, result), losses[step], kTrajectoryTolerance) << step;
    EXPECT_NEAR(result.grad_norm, norms[step], kTrajectoryTolerance * norms[step]) << step;
  };
  int ties = 0;
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const data::Batch batch = trajectory_batch(batches, step);
    const train::StepResult exact = truth->step(batch, wide.optimizer.lr);
    const train::StepResult result = engine->step(batch, narrow.optimizer.lr);
    compare(exact, step);
    if (result.expert_counts == exact.expert_counts) {
      compare(result, step);
    } else {
      ++ties;
      synchronise(*truth, *engine);
    }
  }
  EXPECT_LE(ties, 2);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTrajectory, testing::Values("olmoe", "olmo3"),
                         [](const auto& info) { return std::string(info.param); });

// What a model computes after `change`, against the truth.
double error_after(const std::string& model, const std::function<void(config::AttentionConfig&)>& change) {
  config::Config config = make_config(model, 2, config::Compute::kF64);
  change(config.model.attention);
  const io::SafetensorsFile expected = open(model, "expected.safetensors");
  return largest_difference(Forward(model, config, read_batch(expected)).logits(),
                            read<float>(expected, "logits"));
}

// sliding_window is the number of positions a query sees, itself included: one more or one less shows.
TEST(GoldenDetails, AWindowIsNeitherOneLongerNorOneShorter) {
  for (const i64 step : {-1, 1}) {
    EXPECT_GT(error_after("mixtral", [&](auto& attention) { attention.window += step; }), 1e-3);
    EXPECT_GT(error_after("olmo3",
                          [&](auto& attention) {
                            EXPECT_EQ(attention.window_pattern, (std::vector<i64>{16, 16, 16, 0}));
                            for (std::size_t layer = 0; layer < 3; ++layer) {
                              attention.window_pattern[layer] += step;
                            }
                          }),
              1e-3);
  }
}

TEST(GoldenDetails, EveryParameterOfYarnShows) {
  const std::vector<std::function<void(config::YarnConfig&)>> changes = {
      [](auto& yarn) { yarn = {}; }, [](auto& yarn) { yarn.factor = 7; },
      [](auto& yarn) { yarn.original_length = 64; }, [](auto& yarn) { yarn.beta_slow = 0.1; },
      [](auto& yarn) { yarn.attention_factor = 1.0; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    EXPECT_GT(error_after("olmo3_yarn", [&](auto& attention) { changes[i](attention.yarn); }), 1e-4) << i;
  }
  // What the library derives when the folder does not say it.
  EXPECT_LE(error_after("olmo3_yarn", [](auto& attention) { attention.yarn.attention_factor = 0; }),
            kF64.logit);
}

}  // namespace
}  // namespace wych
