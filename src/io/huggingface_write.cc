// Writing a Hugging Face folder (huggingface.h): sizes and shards are known before the first byte, then each
// wych tensor is read once and its pieces follow each other in the files.
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "base/file.h"
#include "io/huggingface.h"
#include "io/json.h"

namespace wych::io {
namespace {

// Pieces [first, last) go to one file.
struct Shard {
  std::size_t first = 0;
  std::size_t last = 0;
};

i64 bytes_of(const WeightPiece& piece, DType dtype) {
  return shape_elements(piece.hf_shape).value_or(0) * dtype_bytes(dtype);
}

// As many pieces to a file as fit into `limit` bytes, at least one.
std::vector<Shard> make_shards(std::span<const WeightPiece> pieces, DType dtype, i64 limit) {
  std::vector<Shard> shards;
  i64 size = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const i64 bytes = bytes_of(pieces[i], dtype);
    if (shards.empty() || size + bytes > limit) {
      shards.push_back({i, i});
      size = 0;
    }
    size += bytes;
    shards.back().last = i + 1;
  }
  return shards;
}

std::string shard_name(std::size_t index, std::size_t count) {
  return count == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

Expected<void> write_text(const std::string& path, std::string_view text) {
  WYCH_TRY(FileWriter file, FileWriter::create(path, ErrorKind::kData));
  WYCH_TRY_VOID(file.write(text));
  WYCH_TRY_VOID(file.sync());
  return file.close();
}

std::string index_text(std::span<const WeightPiece> pieces, std::span<const Shard> shards, i64 total) {
  std::map<std::string_view, std::string> files;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    for (std::size_t i = shards[shard].first; i < shards[shard].last; ++i) {
      files[pieces[i].hf_name] = shard_name(shard, shards.size());
    }
  }
  std::string map;
  for (const auto& [tensor, file] : files) {
    map += fmt::format("{}\n    {}: {}", map.empty() ? "" : ",", json_string(tensor), json_string(file));
  }
  return fmt::format("{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"weight_map\": {{{}\n  }}\n}}\n", total,
                     map);
}

// The elements of one wych tensor; the one read last is kept.
class CurrentTensor {
 public:
  explicit CurrentTensor(const ReadWeight& read) : read_(read) {}

  Expected<std::span<const float>> elements_of(const WeightPiece& piece) {
    if (piece.wych_name != name_) {
      values_.resize(static_cast<std::size_t>(shape_elements(piece.wych_shape).value_or(0)));
      WYCH_TRY_VOID(read_(piece.wych_name, piece.wych_shape, values_));
      name_ = piece.wych_name;
    }
    return std::span<const float>(values_).subspan(
        static_cast<std::size_t>(piece.begin),
        static_cast<std::size_t>(shape_elements(piece.hf_shape).value_or(0)));
  }

 private:
  const ReadWeight& read_;
  std::string name_;
  std::vector<float> values_;
};

Expected<void> write_elements(SafetensorsWriter& writer, std::span<const float> values, DType dtype) {
  if (dtype == DType::kF32) {
    return writer.write(std::as_bytes(values));
  }
  std::array<bf16, 65536> rounded;
  for (std::size_t begin = 0; begin < values.size(); begin += rounded.size()) {
    const std::span<const float> part =
        values.subspan(begin, std::min(rounded.size(), values.size() - begin));
    for (std::size_t i = 0; i < part.size(); ++i) {
      rounded[i] = bf16(part[i]);
    }
    WYCH_TRY_VOID(writer.write(std::as_bytes(std::span(rounded).first(part.size()))));
  }
  return {};
}

}  // namespace

Expected<i64> write_hf_folder(const std::string& dir, const config::ModelConfig& model,
                              const ReadWeight& read, const HfWriteOptions& options) {
  WYCH_CHECK(options.dtype == DType::kF32 || options.dtype == DType::kBF16, "dtype {}",
             dtype_name(options.dtype));
  WYCH_TRY([[maybe_unused]] const HfModel type, hf_model(model));
  const std::vector<WeightPiece> pieces = weight_pieces(model, ExpertNaming::kPerExpert);
  const std::vector<Shard> shards = make_shards(pieces, options.dtype, options.shard_bytes);
  i64 total = 0;
  for (const WeightPiece& piece : pieces) {
    total += bytes_of(piece, options.dtype);
  }
  CurrentTensor tensor(read);
  i64 done = 0;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    const auto mine =
        std::span(pieces).subspan(shards[shard].first, shards[shard].last - shards[shard].first);
    std::vector<TensorSpec> specs;
    for (const WeightPiece& piece : mine) {
      specs.push_back({piece.hf_name, options.dtype, piece.hf_shape});
    }
    WYCH_TRY(SafetensorsWriter writer,
             SafetensorsWriter::create(dir + "/" + shard_name(shard, shards.size()), specs,
                                       {{"format", "pt"}}, ErrorKind::kData));
    for (const WeightPiece& piece : mine) {
      WYCH_TRY(const std::span<const float> values, tensor.elements_of(piece));
      WYCH_TRY_VOID(write_elements(writer, values, options.dtype));
      done += bytes_of(piece, options.dtype);
      options.progress(done, total);
    }
    WYCH_TRY_VOID(writer.finish());
  }
  if (shards.size() > 1) {
    WYCH_TRY_VOID(write_text(dir + "/model.safetensors.index.json", index_text(pieces, shards, total)));
  }
  WYCH_TRY_VOID(write_text(dir + "/generation_config.json", hf_generation_config_text(options.ids)));
  WYCH_TRY_VOID(write_text(dir + "/config.json", hf_config_text(model, options.dtype, options.ids)));
  return total;
}

}  // namespace wych::io
