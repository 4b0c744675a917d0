// The weights of Hugging Face folders: exact placement, every fault by name, half precision.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <map>

#include "config/model_size.h"
#include "io/golden_models.h"
#include "io/huggingface.h"
#include "io/json.h"
#include "io/scratch_folder.h"

namespace wych::io {
namespace {

namespace fs = std::filesystem;
using config::ModelConfig;

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

TEST(HfWeights, PiecesCoverEveryTensorOnceInBothNamings) {
  for (const std::string& name : golden_models()) {
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
