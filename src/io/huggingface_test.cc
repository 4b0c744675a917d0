// Hugging Face folders: both generations of config.json, exact placement of every weight, named refusals.
#include "io/huggingface.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <numeric>

#include "config/model_size.h"
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
