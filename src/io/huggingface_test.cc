// Hugging Face folders: both generations of config.json, exact placement of every weight, named refusals.
#include "io/huggingface.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>

#include "config/model_size.h"
#include "io/json.h"
#include "io/scratch_folder.h"

namespace wych::io {
namespace {

namespace fs = std::filesystem;
using config::BalanceScope;
using config::ModelConfig;
using config::QkNorm;

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in:\n" << text;
}

std::string golden(const std::string& model, const std::string& file) {
  return "tests/golden/" + model + "/" + file;
}

const std::vector<std::string> kModels = {"olmoe",      "olmoe_tied", "olmo2",   "olmo2_documents", "olmo3",
                                          "olmo3_yarn", "flex_olmo",  "mixtral", "qwen3_moe"};

ModelConfig golden_config(const std::string& model) {
  return read_hf_config(golden(model, "config.json")).value();
}

// Memory for every wych tensor.
struct Model {
  FindDestination find() {
    return [this](const std::string& name, std::span<const i64> shape) {
      std::vector<float>& values = tensors[name];
      EXPECT_TRUE(values.empty()) << name << " asked for twice";
      values.assign(static_cast<std::size_t>(shape_elements(shape).value()), -1.0F);
      shapes[name].assign(shape.begin(), shape.end());
      return Destination{DType::kF32, std::as_writable_bytes(std::span(values))};
    };
  }
  float at(const std::string& name, i64 row, i64 column) const {
    return tensors.at(name)[static_cast<std::size_t>(row * shapes.at(name).back() + column)];
  }
  std::map<std::string, std::vector<float>> tensors;
  std::map<std::string, std::vector<i64>> shapes;
};

TEST(HfConfig, BothGenerationsReadTheSame) {
  for (const std::string& model : kModels) {
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
  for (const std::string& name : kModels) {
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

TEST(HfWeights, PiecesCoverEveryTensorOnceInBothNamings) {
  for (const std::string& name : kModels) {
    const ModelConfig model = golden_config(name);
    for (const ExpertNaming naming : {ExpertNaming::kPerExpert, ExpertNaming::kStacked}) {
      std::map<std::string, i64> end;
      i64 total = 0;
      for (const WeightPiece& piece : weight_pieces(model, naming)) {
        EXPECT_EQ(piece.begin, end[piece.wych_name]) << piece.hf_name;
        end[piece.wych_name] = piece.begin + shape_elements(piece.hf_shape).value();
        const bool table = piece.wych_name == "embed.weight" || piece.wych_name == "head.weight";
        if (piece.begin == 0) {
          total += shape_elements(piece.wych_shape).value();
        }
        EXPECT_TRUE(!table || end[piece.wych_name] == 320 * 64);
      }
      EXPECT_EQ(total, config::count_parameters(model).total) << name;
    }
  }
}

TEST(HfWeights, EveryRowLandsInItsPlace) {
  const ModelConfig config = golden_config("qwen3_moe");
  Model model;
  load_hf_weights("tests/golden/qwen3_moe", config, model.find()).value();
  const SafetensorsFile file =
      SafetensorsFile::open(golden("qwen3_moe", "model.safetensors"), ErrorKind::kData).value();
  const auto hf = [&file](const std::string& name, i64 row, i64 column) {
    const TensorView* view = file.find(name);
    return file.read<float>(name).value()[static_cast<std::size_t>(row * view->shape.back() + column)];
  };
  const std::string attention = "model.layers.1.self_attn.";
  EXPECT_EQ(model.at("blocks.1.attention.wqkv", 95, 3), hf(attention + "q_proj.weight", 95, 3));
  EXPECT_EQ(model.at("blocks.1.attention.wqkv", 96, 3), hf(attention + "k_proj.weight", 0, 3));
  EXPECT_EQ(model.at("blocks.1.attention.wqkv", 96 + 48 + 47, 63), hf(attention + "v_proj.weight", 47, 63));
  EXPECT_EQ(model.at("blocks.1.attention.wo", 63, 95), hf(attention + "o_proj.weight", 63, 95));
  EXPECT_EQ(model.at("blocks.1.attention.k_norm", 0, 5), hf(attention + "k_norm.weight", 0, 5));
  EXPECT_EQ(model.at("blocks.1.ffn_pre_norm", 0, 9),
            hf("model.layers.1.post_attention_layernorm.weight", 0, 9));
  const std::string experts = "model.layers.2.mlp.experts.";
  EXPECT_EQ(model.at("blocks.2.moe.w13", 5 * 96 + 47, 1), hf(experts + "5.gate_proj.weight", 47, 1));
  EXPECT_EQ(model.at("blocks.2.moe.w13", 5 * 96 + 48, 1), hf(experts + "5.up_proj.weight", 0, 1));
  EXPECT_EQ(model.at("blocks.2.moe.w2", 7 * 64 + 2, 47), hf(experts + "7.down_proj.weight", 2, 47));
  EXPECT_EQ(model.at("blocks.2.moe.router.weight", 7, 0), hf("model.layers.2.mlp.gate.weight", 7, 0));
  EXPECT_EQ(model.at("blocks.0.ffn.w13", 96, 0), hf("model.layers.0.mlp.up_proj.weight", 0, 0));
  EXPECT_EQ(model.at("blocks.0.ffn.w2", 3, 95), hf("model.layers.0.mlp.down_proj.weight", 3, 95));
  EXPECT_EQ(model.at("head.weight", 319, 63), hf("lm_head.weight", 319, 63));
  EXPECT_EQ(model.at("embed.weight", 0, 1), hf("model.embed_tokens.weight", 0, 1));
  for (i64 row = 320; row < 384; ++row) {
    EXPECT_EQ(model.at("embed.weight", row, 0), 0.0F);
    EXPECT_EQ(model.at("head.weight", row, 63), 0.0F);
  }
}

TEST(HfWeights, GradientsLoadInStackedNaming) {
  for (const std::string name : {"olmoe", "olmoe_tied", "flex_olmo", "mixtral", "qwen3_moe"}) {
    const auto open = [&name] {
      return SafetensorsFile::open(golden(name, "grads.safetensors"), ErrorKind::kData).value();
    };
    std::vector<SafetensorsFile> files;
    files.push_back(open());
    Model model;
    HfWeights::check(std::move(files), weight_pieces(golden_config(name), ExpertNaming::kStacked))
        .value()
        .read_all(model.find());
    const std::vector<float> stacked = open().read<float>("model.layers.1.mlp.experts.gate_up_proj").value();
    EXPECT_EQ(model.tensors.at("blocks.1.moe.w13"), stacked);
  }
}

// A folder with the golden olmoe's tensors, changed by `edit`, in `num_files` shards.
std::string weights_error(i64 num_files, const std::function<void(std::vector<TensorSpec>&)>& edit) {
  const ScratchFolder folder;
  const SafetensorsFile golden_file =
      SafetensorsFile::open(golden("olmoe", "model.safetensors"), ErrorKind::kData).value();
  std::vector<TensorSpec> specs;
  for (const TensorView& view : golden_file.tensors()) {
    specs.push_back({view.name, DType::kF32, view.shape});
  }
  edit(specs);
  std::string map;
  for (i64 shard = 0; shard < num_files; ++shard) {
    std::vector<TensorSpec> mine;
    const std::string name =
        num_files == 1 ? "model.safetensors" : fmt::format("model-{}.safetensors", shard);
    for (std::size_t i = static_cast<std::size_t>(shard); i < specs.size();
         i += static_cast<std::size_t>(num_files)) {
      mine.push_back(specs[i]);
      map += fmt::format("{}\"{}\":\"{}\"", map.empty() ? "" : ",", specs[i].name, name);
    }
    SafetensorsWriter writer = SafetensorsWriter::create(folder / name, mine, {}, ErrorKind::kData).value();
    for (const TensorSpec& spec : mine) {
      std::vector<std::byte> bytes(
          static_cast<std::size_t>(shape_elements(spec.shape).value() * dtype_bytes(spec.dtype)));
      writer.write(bytes).value();
    }
    writer.finish().value();
  }
  if (num_files > 1) {
    write_bytes(folder / "model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  }
  Model model;
  const Expected<void> loaded = load_hf_weights(folder.path(), golden_config("olmoe"), model.find());
  return loaded ? "" : loaded.error().text();
}

TEST(HfWeights, NamesMissingExtraAndWronglyShapedTensors) {
  EXPECT_EQ(weights_error(1, [](auto&) {}), "");
  EXPECT_EQ(weights_error(3, [](auto&) {}), "");
  const std::string text = weights_error(1, [](std::vector<TensorSpec>& specs) {
    specs[0].name = "lm_haed.weight";
    specs[3].shape = {1};
    specs[4].dtype = DType::kI32;
    specs.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {8}});
  });
  expect_contains(text, "lm_haed.weight: is not a tensor of this model");
  expect_contains(text, "lm_head.weight: is missing");
  expect_contains(text, "has shape [1], the config expects [");
  expect_contains(text, "has dtype I32, expected F32, BF16, F16 or F64");
  EXPECT_EQ(text.find("inv_freq"), std::string::npos);
}

// A shard that is cut off, one that is missing, one that lacks a tensor the index promises, and one with a
// tensor of another shard: each is named once, and nothing that follows from them is.
TEST(HfWeights, NamesEveryFaultOfAShardedFolderInOnePass) {
  const ScratchFolder folder;
  const SafetensorsFile source =
      SafetensorsFile::open(golden("olmo2", "model.safetensors"), ErrorKind::kData).value();
  std::map<std::string, std::vector<TensorSpec>> shards;
  std::string map;
  std::size_t number = 0;
  for (const TensorView& view : source.tensors()) {
    const std::string file = fmt::format("{}.safetensors", "abcd"[number++ % 4]);
    shards[file].push_back({view.name, DType::kF32, view.shape});
    map += fmt::format("{}\"{}\":\"{}\"", map.empty() ? "" : ",", view.name, file);
  }
  const std::string lost = shards["c.safetensors"].back().name;
  shards["c.safetensors"].pop_back();
  const std::string twice = shards["c.safetensors"].front().name;
  shards["d.safetensors"].push_back(shards["c.safetensors"].front());
  shards["d.safetensors"].push_back({"model.extra", DType::kF32, {2}});
  for (const auto& [file, specs] : shards) {
    SafetensorsWriter writer = SafetensorsWriter::create(folder / file, specs, {}, ErrorKind::kData).value();
    for (const TensorSpec& spec : specs) {
      writer.write(std::vector<std::byte>(static_cast<std::size_t>(4 * shape_elements(spec.shape).value())))
          .value();
    }
    writer.finish().value();
  }
  write_bytes(folder / "model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  fs::resize_file(folder / "a.safetensors", fs::file_size(folder / "a.safetensors") - 1);
  fs::remove(folder / "b.safetensors");
  write_bytes(folder / "model.safetensors", "");
  Model model;
  const Expected<void> loaded = load_hf_weights(folder.path(), golden_config("olmo2"), model.find());
  ASSERT_FALSE(loaded.has_value());
  const std::string text = loaded.error().text();
  expect_contains(text, "model.safetensors: is there beside model.safetensors.index.json");
  expect_contains(text, "/a.safetensors: ");
  expect_contains(text, "/b.safetensors: cannot open");
  expect_contains(text, "/c.safetensors: " + lost + ": is not there, though the index says so");
  expect_contains(text, "/d.safetensors: " + twice + ": is in " + (folder / "c.safetensors") + " as well");
  expect_contains(text, "/d.safetensors: model.extra: is not a tensor of this model");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5) << text;
  EXPECT_TRUE(model.tensors.empty()) << "something was copied";
}

TEST(HfWeights, ReadsHalfPrecisionExactly) {
  const ScratchFolder folder;
  const ModelConfig config = golden_config("olmo2");
  const std::vector<WeightPiece> pieces = weight_pieces(config, ExpertNaming::kPerExpert);
  std::string header = "{";
  std::string data;
  for (const WeightPiece& piece : pieces) {
    const i64 elements = shape_elements(piece.hf_shape).value();
    const bool wide = piece.hf_name == "model.norm.weight";  // bf16 among f16
    header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                          header.size() > 1 ? "," : "", piece.hf_name, wide ? "BF16" : "F16",
                          json_list(piece.hf_shape), data.size(),
                          data.size() + 2 * static_cast<std::size_t>(elements));
    for (i64 i = 0; i < elements; ++i) {
      const u16 bits = static_cast<u16>(i * 257);
      data.push_back(static_cast<char>(bits & 0xffU));
      data.push_back(static_cast<char>(bits >> 8U));
    }
  }
  header += "}";
  const u64 length = header.size();
  write_bytes(folder / "model.safetensors",
              std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + data);
  Model model;
  load_hf_weights(folder.path(), config, model.find()).value();
  const auto bits_of = [](float value) { return std::bit_cast<u32>(value); };
  for (u32 i = 0; i < 64; ++i) {
    EXPECT_EQ(bits_of(model.tensors.at("final_norm.weight")[i]), (i * 257U) << 16U);
  }
  // binary16, by its definition; NaN and infinity keep sign and payload.
  const std::vector<float>& embed = model.tensors.at("embed.weight");
  for (u32 i = 0; i < 320 * 64; ++i) {
    const u32 bits = (i * 257U) & 0xffffU;
    const u32 exponent = (bits >> 10U) & 31U;
    const double mantissa = bits & 1023U;
    const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
    if (exponent == 31) {
      ASSERT_EQ(bits_of(embed[i]), ((bits & 0x8000U) << 16U) | 0x7f800000U | ((bits & 1023U) << 13U));
    } else {
      const double value = exponent == 0 ? std::ldexp(mantissa, -24)
                                         : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
      ASSERT_EQ(static_cast<double>(embed[i]), sign * value) << bits;
    }
  }
}

TEST(HfWeights, Bf16RoundsToNearestEvenAndKeepsWhatIsNotANumber) {
  const auto rounded = [](u32 bits) { return static_cast<u32>(bf16(std::bit_cast<float>(bits)).bits); };
  EXPECT_EQ(rounded(0x3f808000U), 0x3f80U);  // a tie goes to even
  EXPECT_EQ(rounded(0x3f818000U), 0x3f82U);
  EXPECT_EQ(rounded(0x3f808001U), 0x3f81U);
  EXPECT_EQ(rounded(0x7f7fffffU), 0x7f80U);  // the largest float is infinity
  EXPECT_EQ(rounded(0xff800000U), 0xff80U);
  EXPECT_EQ(rounded(0x7f800001U), 0x7fc0U);  // a NaN stays one, quiet
  EXPECT_EQ(rounded(0xffa50000U), 0xffe5U);  // with sign and payload
  EXPECT_EQ(rounded(0x80000000U), 0x8000U);
}

TEST(HfWeights, RefusesIncompleteFolders) {
  Model model;
  const ModelConfig config = golden_config("olmoe");
  const ScratchFolder folder;
  expect_contains(load_hf_weights(folder.path(), config, model.find()).error().text(), "model.safetensors");
  fs::copy(golden("olmoe", "model.safetensors"), folder / "part.safetensors");
  const auto index_error = [&](const std::string& index) {
    write_bytes(folder / "model.safetensors.index.json", index);
    const Expected<void> loaded = load_hf_weights(folder.path(), config, model.find());
    return loaded ? std::string() : loaded.error().text();
  };
  expect_contains(index_error("{}"), "has no object \"weight_map\"");
  expect_contains(index_error("{\"weight_map\":{\"a\":\"../b\"}}"), "expected a file of this folder");
  expect_contains(index_error("{\"weight_map\":{\"a\":\"gone.safetensors\"}}"), "gone.safetensors");
  expect_contains(index_error("{\"weight_map\":{\"a\":\"part.safetensors\"}}"),
                  "a: is not there, though the index");
  expect_contains(index_error("{\"weight_map\":"), "malformed JSON");
}

}  // namespace
}  // namespace wych::io
