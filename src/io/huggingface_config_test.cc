// config.json of both generations, in and out; named refusals.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "io/golden_models.h"
#include "io/huggingface.h"
#include "io/json.h"
#include "io/scratch_folder.h"

namespace wych::io {
namespace {

using config::BalanceScope;
using config::ModelConfig;
using config::QkNorm;

TEST(HfConfig, BothGenerationsReadTheSame) {
  for (const std::string& model : golden_models()) {
    const Expected<ModelConfig> fifth = read_hf_config(golden(model, "config.json"));
    const Expected<ModelConfig> fourth = read_hf_config(golden(model, "config.v4.json"));
    ASSERT_TRUE(fifth.has_value()) << fifth.error().text();
    ASSERT_TRUE(fourth.has_value()) << fourth.error().text();
    EXPECT_EQ(*fifth, *fourth) << model;
  }
}

TEST(HfConfig, ReadsOlmoe) {
  const ModelConfig model = golden_config("olmoe_tied");
  EXPECT_EQ(model.vocab_size, 320);
  EXPECT_EQ(model.padded_vocab, 384);
  EXPECT_EQ(model.sequence_length, 128);
  EXPECT_TRUE(model.tie_embeddings);
  EXPECT_EQ(model.norm_eps, 1e-5);
  EXPECT_EQ(model.attention.n_kv_heads, 2);
  EXPECT_EQ(model.attention.head_dim, 16);
  EXPECT_EQ(model.attention.qk_norm, QkNorm::kFull);
  EXPECT_EQ(model.attention.clip_qkv, 0.7);
  EXPECT_EQ(model.moe.experts, 8);
  EXPECT_EQ(model.moe.top_k, 3);
  EXPECT_EQ(model.moe.expert_hidden, 48);
  EXPECT_TRUE(model.moe.router.normalize_weights);
  EXPECT_EQ(model.moe.router.balance_loss.scope, BalanceScope::kHfJoint);
  EXPECT_EQ(model.moe.router.balance_loss.weight, 0.01);
  EXPECT_EQ(golden_config("olmoe").attention.clip_qkv, 0.0);
}

TEST(HfConfig, ReadsQwen3Moe) {
  const ModelConfig model = golden_config("qwen3_moe");
  EXPECT_EQ(model.attention.head_dim, 24);
  EXPECT_EQ(model.attention.qk_norm, QkNorm::kPerHead);
  EXPECT_EQ(model.dense_layers, std::vector<i64>{0});
  EXPECT_EQ(model.dense_hidden, 96);
  EXPECT_EQ(model.moe.expert_hidden, 48);
}

// The errors of a golden config after one textual change.
std::string config_error(const std::string& model, const std::string& from, const std::string& to) {
  const ScratchFolder folder;
  std::string text = read_bytes(golden(model, "config.json"));
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  write_bytes(folder / "config.json", text.replace(at, from.size(), to));
  const Expected<ModelConfig> config = read_hf_config(folder / "config.json");
  return config ? "" : config.error().text();
}

TEST(HfConfig, RefusesByNameWhatIsNotSupported) {
  const auto refuse = [](const std::string& from, const std::string& to, const std::string& message) {
    expect_contains(config_error("qwen3_moe", from, to), message);
  };
  refuse("\"qwen3_moe\"", "\"llama\"",
         "model_type: is the string \"llama\"; supported are \"olmoe\", \"flex_olmo\", \"olmo2\"");
  refuse("\"model_type\": \"qwen3_moe\",", "", "model_type: is missing");
  refuse("\"attention_bias\": false", "\"attention_bias\": true", "attention_bias: is true");
  refuse("\"attention_dropout\": 0.0", "\"attention_dropout\": 0.1", "attention_dropout: is 0.1");
  refuse("\"silu\"", "\"gelu\"", "hidden_act: is the string \"gelu\"; only \"silu\"");
  refuse("\"rope_type\": \"default\"", "\"rope_type\": \"llama3\"",
         "rope_parameters: rope_type: is \"llama3\"; supported are \"default\" and \"yarn\"");
  refuse("\"rope_type\": \"default\"", "\"rope_type\": \"yarn\"",
         "rope_parameters: original_max_position_embeddings: is missing");
  refuse("\"rope_theta\": 10000.0,", "", "rope_parameters: rope_theta: is missing");
  refuse("\"rms_norm_eps\": 1e-06,", "", "rms_norm_eps: is missing");
  refuse("\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": -1", "model.norm_eps: is -1, expected above 0");
  refuse("\"rope_type\": \"default\"", "\"partial_rotary_factor\": 0.5", "partial_rotary_factor: is 0.5");
  refuse("\"use_sliding_window\": false", "\"use_sliding_window\": true", "use_sliding_window: is true");
  refuse("\"use_cache\"", "\"quantization_config\": {}, \"use_cache\"",
         "quantization_config: is not supported");
  refuse("\"hidden_size\": 64", "\"hidden_size\": \"64\"", "hidden_size: found the string \"64\"");
  refuse("\"hidden_size\": 64", "\"hidden_size\": null", "hidden_size: is missing");
  refuse("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 3000000000",
         "num_hidden_layers: found the integer");
  refuse("\"num_local_experts\": 8", "\"num_local_experts\": 8, \"num_experts\": 9", "num_experts: differs");
  refuse("\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 9", "top_k: is 9");
  refuse("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", "n_kv_heads: is 3");
  refuse("\"head_dim\": 24", "\"head_dim\": 25", "head_dim: is 25");
  refuse("\"mlp_only_layers\": [", "\"mlp_only_layers\": [\"a\",", "mlp_only_layers: expected a list");
  expect_contains(config_error("olmoe", "\"num_attention_heads\": 4", "\"num_attention_heads\": 5"),
                  "head_dim: is missing, and 5 heads do not divide hidden_size 64");
  expect_contains(read_hf_config("tests/golden/none/config.json").error().text(), "none/config.json");
}

TEST(HfConfig, ReadsOlmo3AndItsYarn) {
  const ModelConfig model = golden_config("olmo3_yarn");
  EXPECT_EQ(model.norm, config::NormPlacement::kPost);
  EXPECT_EQ(model.attention.qk_norm, QkNorm::kFull);
  EXPECT_EQ(model.attention.window_pattern, (std::vector<i64>{16, 16, 16, 0}));
  EXPECT_EQ(model.attention.rope_theta, 500000.0);
  EXPECT_EQ(model.attention.yarn.factor, 8.0);
  EXPECT_EQ(model.attention.yarn.original_length, 32);
  EXPECT_EQ(model.attention.yarn.scale(), 1.2079441541679836);
  EXPECT_FALSE(model.has_yarn(2));
  EXPECT_TRUE(model.has_yarn(3));
  EXPECT_EQ(model.moe.experts, 0);
  EXPECT_EQ(model.dense_hidden, 96);
}

TEST(HfConfig, ReadsMixtral) {
  const ModelConfig model = golden_config("mixtral");
  EXPECT_EQ(model.attention.window, 11);
  EXPECT_EQ(model.attention.qk_norm, QkNorm::kNone);
  EXPECT_TRUE(model.moe.router.normalize_weights);
  EXPECT_EQ(model.moe.experts, 6);
}

TEST(HfConfig, RefusesByNameWhatOtherClassesDoNotHave) {
  const auto refuse = [](const std::string& model, const std::string& from, const std::string& to,
                         const std::string& message) {
    expect_contains(config_error(model, from, to), message);
  };
  refuse("olmo3", "\"sliding_window\": 16", "\"sliding_window\": null", "sliding_window: is missing");
  refuse("olmo3", "\"sliding_attention\",", "\"chunked_attention\",",
         "layer_types: holds the string \"chunked_attention\"");
  refuse("olmo3", "\"sliding_attention\",", "", "layer_types: expected a list of 4");
  refuse("olmo3", "\"layer_types\"", "\"layers\"", "layer_types: is missing");
  refuse("olmo3_yarn", "\"factor\": 8.0", "\"factor\": 4.0",
         "full_attention: factor: is 4, but max_position_embeddings / original_max_position_embeddings is 8");
  refuse("olmo3_yarn", "\"factor\": 8.0", "\"truncate\": false, \"factor\": 8.0", "truncate: is false");
  refuse("olmo3_yarn", "\"rope_type\": \"default\"", "\"rope_type\": \"linear\"",
         "sliding_attention: rope_type: is \"linear\"");
  refuse("olmo3_yarn", "\"rope_theta\": 500000.0", "\"rope_theta\": 10000.0",
         "sliding_attention: is not default with full_attention's rope_theta");
  refuse("olmo3_yarn", "\"sliding_window\": 16", "\"sliding_window\": 16, \"rope_scaling\": {}",
         "rope_scaling: rope_theta: is missing");
  refuse("olmo3_yarn", "\"sliding_window\": 16",
         "\"sliding_window\": 16, \"rope_scaling\": {\"rope_theta\": 500000.0}",
         "rope_scaling: differs from what rope_parameters says");
  refuse("mixtral", "\"router_jitter_noise\": 0.0", "\"router_jitter_noise\": 0.1",
         "router_jitter_noise: is 0.1");
  refuse("mixtral", "\"num_key_value_heads\": 2,", "", "num_key_value_heads: is missing");
  refuse("olmo2", "\"use_cache\"", "\"sliding_window\": 8, \"use_cache\"",
         "sliding_window: is not supported");
  refuse("olmoe", "\"use_cache\"", "\"head_dim\": 8, \"use_cache\"", "head_dim: is not supported");
  refuse("flex_olmo", "\"eos_token_id\": 0", "\"hidden_act\": \"relu\"",
         "the key \"hidden_act\" stands twice");
}

// Everything at once: one text has three faults, and all are named.
TEST(HfConfig, NamesEveryFaultInOnePass) {
  const std::string text =
      config_error("flex_olmo", "\"hidden_act\": \"silu\",\n  \"hidden_size\": 64",
                   "\"hidden_act\": \"relu\",\n  \"hidden_size\": 0, \"quantization_config\": {}");
  expect_contains(text, "hidden_act: is the string \"relu\"");
  expect_contains(text, "hidden_size: found the integer 0");
  expect_contains(text, "quantization_config: is not supported");
}

TEST(HfConfig, WrittenConfigsReadBack) {
  const ScratchFolder folder;
  const auto expect_back = [&folder](const ModelConfig& model) {
    write_bytes(folder / "config.json", hf_config_text(model, DType::kF32, {}));
    const Expected<ModelConfig> again = read_hf_config(folder / "config.json");
    ASSERT_TRUE(again.has_value()) << again.error().text();
    EXPECT_EQ(*again, model) << hf_config_text(model, DType::kF32, {});
  };
  for (const std::string& name : golden_models()) {
    const ModelConfig model = golden_config(name);
    expect_back(model);
    const Json written = parse_json(hf_config_text(model, DType::kF32, {}), name, ErrorKind::kData).value();
    const std::string text = read_bytes(golden(name, "config.json"));
    expect_contains(text, fmt::format("\"{}\"", hf_architecture(hf_model(model).value())));
    expect_contains(text, "\"model_type\": " + json_string(*written.find("model_type")->get<std::string>()));
  }
  ModelConfig model = golden_config("olmo3_yarn");
  model.attention.yarn.attention_factor = 0;
  model.attention.yarn.beta_fast = 16.5;
  model.attention.head_dim = 24;
  model.init_std = 1;
  expect_back(model);
  model.attention.yarn.factor = 49.0 / 32.0;
  model.sequence_length = 49;
  expect_back(model);
  model.attention.window_pattern.clear();  // now an Olmo 2
  expect_back(model);
  model = golden_config("qwen3_moe");
  model.dense_layers = {0, 2};
  model.moe.router.balance_loss.weight = 0.0;
  expect_back(model);
}

TEST(HfConfig, TokenIdsAreKeptAsTheyAre) {
  const ScratchFolder folder;
  write_bytes(folder / "config.json", R"({"eos_token_id": [1, 2], "bos_token_id": 3, "pad_token_id": null})");
  const HfTokenIds ids = read_hf_token_ids(folder / "config.json").value();
  EXPECT_EQ(ids.eos, "[1,2]");
  EXPECT_EQ(ids.bos, "3");
  EXPECT_EQ(ids.pad, "null");
  expect_contains(hf_config_text(golden_config("olmo2"), DType::kBF16, ids), "\"eos_token_id\": [1,2]");
  EXPECT_EQ(hf_generation_config_text(ids), "{\"bos_token_id\":3,\"eos_token_id\":[1,2]}\n");
  write_bytes(folder / "config.json", R"({"eos_token_id": "a", "bos_token_id": [1.5]})");
  const std::string text = read_hf_token_ids(folder / "config.json").error().text();
  expect_contains(text, "eos_token_id: found the string \"a\"");
  expect_contains(text, "bos_token_id: found a list");
}

TEST(HfConfig, SparseStepMakesDenseLayers) {
  const ScratchFolder folder;
  std::string text = read_bytes(golden("qwen3_moe", "config.json"));
  const std::string from = "\"decoder_sparse_step\": 1";
  text.replace(text.find(from), from.size(), "\"decoder_sparse_step\": 2");
  write_bytes(folder / "config.json", text);
  EXPECT_EQ(read_hf_config(folder / "config.json")->dense_layers, (std::vector<i64>{0, 2}));
}

}  // namespace
}  // namespace wych::io
