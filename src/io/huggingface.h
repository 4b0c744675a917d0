// Hugging Face model folders: config.json of both generations to a ModelConfig, and the exact correspondence
// of tensor names and places, usable in both directions. Supported: olmoe, qwen3_moe. Whatever a config asks
// for that wych does not do is an error that names the key; nothing is ignored that changes the model.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/expected.h"
#include "base/types.h"
#include "config/config.h"
#include "io/safetensors.h"

namespace wych::io {

// Reads a config.json. A null counts as absent. The sequence length is max_position_embeddings; where the
// config asks for router logits, its auxiliary loss becomes the balance loss of scope hf_joint. Errors
// (kData): unsupported model_type or value, missing or malformed key; all of them in Error.more.
[[nodiscard]] Expected<config::ModelConfig> read_hf_config(const std::string& path);

// How the experts of a layer are stored: a tensor for each, as in published files, or stacked, as the
// transformers library holds them in memory (and in its gradients).
enum class ExpertNaming { kPerExpert, kStacked };

// One Hugging Face tensor and its place: elements [begin, begin + size) of the row-major wych tensor.
struct WeightPiece {
  std::string hf_name;
  std::vector<i64> hf_shape;
  std::string wych_name;
  std::vector<i64> wych_shape;
  i64 begin = 0;
};

// All tensors of a model that read_hf_config can return, ordered by wych tensor and begin. The pieces of a
// wych tensor cover it, but for the padded rows of embedding and head. CHECKs that the model has pre-norms
// and neither an embedding norm nor a shared expert.
[[nodiscard]] std::vector<WeightPiece> weight_pieces(const config::ModelConfig& model, ExpertNaming naming);

// A wych tensor's memory; dtype is f32 or f64.
struct Destination {
  DType dtype = DType::kF32;
  std::span<std::byte> bytes;
};
// Called once for each wych tensor with its name and shape; must return memory of exactly that many elements.
using FindDestination = std::function<Destination(const std::string& name, std::span<const i64> shape)>;

// Copies all pieces from `files` into the tensors' memory; padded rows become zero. Errors (kData) name each
// tensor that is missing, unexpected, in two files, of the wrong shape or of a dtype that is not floating.
Expected<void> load_pieces(std::span<const SafetensorsFile> files, std::span<const WeightPiece> pieces,
                           const FindDestination& find);

// The same for a folder with model.safetensors, or model.safetensors.index.json and its shards, in either
// naming of the experts.
Expected<void> load_hf_weights(const std::string& dir, const config::ModelConfig& model,
                               const FindDestination& find);

}  // namespace wych::io
