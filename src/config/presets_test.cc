// Presets reproduce the parameter counts and FLOPs their sources publish, to the digits given there.
#include "config/presets.h"

#include <gtest/gtest.h>

#include <cmath>

#include "config/load.h"
#include "config/model_size.h"

namespace wych::config {
namespace {

ModelConfig model_of(const std::string& preset) {
  Expected<Loaded> loaded = load("preset:" + preset, {}, {.purpose = Purpose::kPlan, .world = 0});
  return std::move(loaded).value().config.model;
}

struct Published {
  const char* preset;
  double active;  // billions
  double active_digit;
  double total;
  double total_digit;  // unit of the last digit given
};

TEST(Presets, ReproducePublishedParameterCounts) {
  const std::vector<Published> published = {
      {"tiny-64e", 1.588, 1e-3, 12.91, 1e-2},      {"small-64e", 4.294, 1e-3, 40.86, 1e-2},
      {"medium-64e", 7.37, 1e-2, 70.22, 1e-2},     {"medium-96e", 7.38, 1e-2, 103.75, 1e-2},
      {"medium-128e", 7.38, 1e-2, 137.27, 1e-2},   {"large-128e", 15.14, 1e-2, 295.99, 1e-2},
      {"ultra-128e", 58.36, 1e-2, 1200.0, 1.0},    {"ultra-256e", 58.41, 1e-2, 2380.0, 1.0},
      {"bench-8l-e8", 3.171, 1e-3, 4.581, 1e-3},   {"bench-8l-e32", 3.172, 1e-3, 13.04, 1e-2},
      {"bench-8l-e48", 3.172, 1e-3, 18.67, 1e-2},  {"bench-8l-e64", 3.173, 1e-3, 24.31, 1e-2},
      {"bench-8l-e128", 3.175, 1e-3, 46.86, 1e-2}, {"olmoe-1b-7b", 1.28, 1e-2, 6.92, 1e-2},
  };
  for (const Published& entry : published) {
    SCOPED_TRACE(entry.preset);
    const ParameterCounts counts = count_parameters(model_of(entry.preset));
    EXPECT_LE(std::abs(static_cast<double>(counts.active) / 1e9 - entry.active), 0.501 * entry.active_digit);
    EXPECT_LE(std::abs(static_cast<double>(counts.total) / 1e9 - entry.total), 0.501 * entry.total_digit);
    EXPECT_EQ(counts.total, counts.embedding + counts.non_embedding);
  }
}

TEST(Presets, ReproducePublishedFlops) {
  const std::vector<std::pair<const char*, double>> published = {
      {"ladder-2048-e8", 4.344},   {"ladder-2048-e32", 4.346}, {"ladder-2048-e64", 4.349},
      {"ladder-2048-e128", 4.355}, {"olmoe-1b-7b", 7.88},      {"tiny-64e", 9.90},
      {"bench-8l-e8", 18.17},      {"small-64e", 29.05},       {"ultra-128e", 371.8}};
  for (const auto& [preset, gflops] : published) {
    SCOPED_TRACE(preset);
    const double digit = gflops < 5.0 ? 1e-3 : gflops < 100.0 ? 1e-2 : 0.1;
    EXPECT_NEAR(train_flops_per_token(model_of(preset)) / 1e9, gflops, 0.501 * digit);
  }
}

TEST(Presets, AllLoadAndDenseLayersMatchTheActiveWidth) {
  for (const Preset& preset : presets()) {
    SCOPED_TRACE(preset.name);
    const Expected<Loaded> loaded =
        load("preset:" + std::string(preset.name), {}, {.purpose = Purpose::kPlan, .world = 0});
    ASSERT_TRUE(loaded.has_value()) << loaded.error().text();
    const ModelConfig& model = loaded->config.model;
    if (model.first_dense_layers > 0) {
      EXPECT_EQ(model.dense_hidden, model.moe.top_k * model.moe.expert_hidden + model.moe.shared_hidden);
    }
    if (model.embed_scale != 1.0) {
      EXPECT_EQ(model.embed_scale, std::sqrt(static_cast<double>(model.d_model)));
    }
  }
}

TEST(ModelSize, CountsASmallModelByHand) {
  ModelConfig model;
  model.vocab_size = 10;
  model.padded_vocab = 12;
  model.d_model = 4;
  model.n_layers = 2;
  model.sequence_length = 8;
  model.tie_embeddings = true;
  model.first_dense_layers = 1;
  model.dense_hidden = 5;
  model.attention = {
      .n_heads = 2, .n_kv_heads = 1, .head_dim = 2, .qk_norm = QkNorm::kFull, .window_pattern = {}};
  model.moe.experts = 3;
  model.moe.top_k = 1;
  model.moe.expert_hidden = 6;
  // Block: 2*4*4 + 2*4*2 + 2*4 norms + (4 + 2) QK-norm = 62; dense 60; MoE 3*72 + 12 = 228; final norm 4.
  EXPECT_EQ(count_parameters(model).total, 2 * 62 + 60 + 228 + 48 + 4);
  EXPECT_EQ(count_parameters(model).active, 2 * 62 + 60 + 84 + 48 + 4);
  EXPECT_EQ(count_parameters(model).embedding, 48);
}

TEST(ModelSize, AWindowCountsThePositionsItSees) {
  ModelConfig model = model_of("laptop");
  const double full = train_flops_per_token(model);
  model.attention.window = model.sequence_length;
  EXPECT_EQ(train_flops_per_token(model), full) << "a window of the sequence is no window";
  model.attention.window = 1;
  const double positions = static_cast<double>(model.sequence_length + 1) / 2.0 - 1.0;
  EXPECT_NEAR(full - train_flops_per_token(model), 4.0 * 12.0 * 128.0 * positions, 1e-6 * full);
}

}  // namespace
}  // namespace wych::config
