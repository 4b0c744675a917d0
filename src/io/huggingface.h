// Hugging Face model folders, in and out: config.json of both generations of the transformers library, the
// classes that wych models correspond to, and the exact places of all weights. Invariant: nothing that
// changes the model is ignored; what one side cannot say is an error that names the key or the tensor, and
// all errors of a folder come in one pass.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/expected.h"
#include "base/types.h"
#include "config/config.h"
#include "io/safetensors.h"

namespace wych::io {

// The classes of the transformers library that wych reads and writes.
enum class HfModel { kOlmoe, kFlexOlmo, kOlmo2, kOlmo3, kMixtral, kQwen3Moe };
inline constexpr std::array<HfModel, 6> kHfModels = {HfModel::kOlmoe, HfModel::kFlexOlmo, HfModel::kOlmo2,
                                                     HfModel::kOlmo3, HfModel::kMixtral,  HfModel::kQwen3Moe};

[[nodiscard]] std::string_view hf_model_type(HfModel model);    // "olmoe"
[[nodiscard]] std::string_view hf_architecture(HfModel model);  // "OlmoeForCausalLM"

// The class that computes what `model` computes. kUsage, one error for each key that no class has.
[[nodiscard]] Expected<HfModel> hf_model(const config::ModelConfig& model);

// Reads a config.json. A null counts as absent. The sequence length is max_position_embeddings; where the
// config asks for router logits, its auxiliary loss becomes the balance loss of scope hf_joint. Errors
// (kData): unsupported model_type or value, missing or malformed key.
[[nodiscard]] Expected<config::ModelConfig> read_hf_config(const std::string& path);

// Special tokens as a config.json says them: the JSON text of an id, of a list of ids, or "null".
struct HfTokenIds {
  std::string bos = "null";
  std::string eos = "null";
  std::string pad = "null";
};
[[nodiscard]] Expected<HfTokenIds> read_hf_token_ids(const std::string& path);

// A config.json that transformers 4 and 5 read alike and that read_hf_config reads back. `model` must have a
// class (hf_model).
[[nodiscard]] std::string hf_config_text(const config::ModelConfig& model, DType dtype,
                                         const HfTokenIds& ids);

// A generation_config.json: the special tokens that are known.
[[nodiscard]] std::string hf_generation_config_text(const HfTokenIds& ids);

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

// All tensors of a model that has a class, ordered by wych tensor and begin. The pieces of a wych tensor
// cover it, but for the padded rows of embedding and head.
[[nodiscard]] std::vector<WeightPiece> weight_pieces(const config::ModelConfig& model, ExpertNaming naming);

// A wych tensor's memory; dtype is f32 or f64.
struct Destination {
  DType dtype = DType::kF32;
  std::span<std::byte> bytes;
};
// Called once for each wych tensor with its name and shape; must return memory of exactly that many elements.
using FindDestination = std::function<Destination(const std::string& name, std::span<const i64> shape)>;

// The weights of a folder, checked to be exactly those of the model, read tensor by tensor.
class HfWeights {
 public:
  // A folder with model.safetensors, or model.safetensors.index.json and its shards, in either naming of the
  // experts. Errors (kData) name each file that cannot be read and each tensor that is missing, unexpected,
  // in two files, of the wrong shape or of a type that is not floating.
  static Expected<HfWeights> open(const std::string& dir, const config::ModelConfig& model);
  // The same for given files.
  static Expected<HfWeights> check(std::vector<SafetensorsFile> files, std::vector<WeightPiece> pieces);

  // Copies one wych tensor, converted; padded rows become zero. CHECKs name and size.
  void read(const std::string& wych_name, Destination destination) const;
  // Copies all of them.
  void read_all(const FindDestination& find) const;

 private:
  struct Folder;
  static Expected<void> check_count(const Folder& folder, const config::ModelConfig& model,
                                    ExpertNaming naming);
  static Expected<HfWeights> check(Folder folder, std::vector<WeightPiece> pieces);

  std::vector<SafetensorsFile> files_;
  std::vector<WeightPiece> pieces_;
  std::map<std::string, std::size_t, std::less<>> file_of_;      // Hugging Face tensor -> index of files_
  std::map<std::string, std::size_t, std::less<>> first_piece_;  // wych tensor -> index of pieces_
};

// HfWeights::open and read_all.
Expected<void> load_hf_weights(const std::string& dir, const config::ModelConfig& model,
                               const FindDestination& find);

// Fills a wych tensor's elements, row-major.
using ReadWeight =
    std::function<Expected<void>(const std::string& name, std::span<const i64> shape, std::span<float> out)>;

struct HfWriteOptions {
  DType dtype = DType::kF32;  // or kBF16: rounded to nearest even
  i64 shard_bytes = 5'000'000'000;
  HfTokenIds ids;
  // Called after every tensor with the bytes written so far and in all.
  std::function<void(i64 done, i64 total)> progress = [](i64, i64) {};
};

// Writes config.json, generation_config.json and the weights into an existing empty folder and syncs them;
// holds one wych tensor in memory. Returns the bytes of the weights. Errors: hf_model's, I/O (kData), or
// those of `read`.
Expected<i64> write_hf_folder(const std::string& dir, const config::ModelConfig& model,
                              const ReadWeight& read, const HfWriteOptions& options);

}  // namespace wych::io
