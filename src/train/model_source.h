// A model on disk, whatever wrote it, tensor by tensor in float32: what conversion reads. Nothing is
// allocated for the model; files are mapped.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/expected.h"
#include "config/config.h"
#include "io/checkpoint.h"
#include "io/huggingface.h"

namespace wych::train {

class ModelSource {
 public:
  // A run folder (its latest checkpoint), a checkpoint folder or a Hugging Face folder. Errors: none of them;
  // for a Hugging Face folder every fault of its config and tensors.
  static Expected<ModelSource> open(const std::string& dir);

  [[nodiscard]] const config::Config& config() const { return config_; }
  [[nodiscard]] bool is_hugging_face() const { return hugging_face_.has_value(); }
  // Steps, tokens and seed of the checkpoint; zero for a Hugging Face folder.
  [[nodiscard]] io::CheckpointMeta meta() const;
  // The folder with the weights, and the one with the tokenizer (a run's own).
  [[nodiscard]] const std::string& weights_folder() const { return weights_folder_; }
  [[nodiscard]] const std::string& tokenizer_folder() const { return tokenizer_folder_; }
  // Special tokens: of config.json, of a generation_config.json beside a run's tokenizer, or that tokenizer's
  // end of text.
  [[nodiscard]] Expected<io::HfTokenIds> token_ids() const;

  // The elements of a tensor of model::parameters, row-major; float64 is rounded. Errors (kCheckpoint):
  // missing, wrongly shaped or damaged.
  Expected<void> read(const std::string& name, std::span<const i64> shape, std::span<float> out) const;

 private:
  config::Config config_;
  std::string weights_folder_;
  std::string tokenizer_folder_;
  std::optional<io::HfWeights> hugging_face_;
  std::optional<io::CheckpointReader> checkpoint_;
};

}  // namespace wych::train
