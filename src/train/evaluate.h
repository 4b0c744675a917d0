// Models on disk, whatever wrote them: a run folder (its latest checkpoint), a checkpoint folder, or a
// Hugging Face folder; and the loss of one on a token file.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/expected.h"
#include "config/config.h"
#include "data/token_format.h"
#include "data/tokenizer.h"
#include "train/engine.h"

namespace wych::train {

struct LoadedModel {
  config::Config config;
  std::unique_ptr<Engine> engine;  // weights loaded
  std::string source;              // the folder the weights came from
};

// The configuration of the model in a folder, without its weights. kCheckpoint if it is none of the three, or
// if a checkpoint's configuration is no longer the one it was saved with.
Expected<config::Config> read_model_config(const std::string& dir);

// Loads the weights into an engine with the requested programs.
Expected<LoadedModel> load_model(const std::string& dir, const ProgramRequest& request, ThreadPool& pool);

// The tokenizer of a model: a copy lies in every run folder, which is looked up from its checkpoints too.
// kData if there is none, or if it has more tokens than the model (`vocab_size`).
Expected<data::Tokenizer> load_model_tokenizer(const std::string& dir, i64 vocab_size);

struct FileEvaluation {
  double ce = 0;  // summed cross-entropy / targets, nats
  i64 targets = 0;
  i64 dropped = 0;  // tokens in the tail
};
// The loss of a token file of any format. One-dimensional: cut to `sequence` tokens (0: the model's), its
// tail dropped and counted; two-dimensional: each row is an instance (another `sequence` is a kUsage error).
// A file without a header has ids of `raw_type`, by default the smallest for the model's vocabulary. kData if
// the file is shorter than one sequence, kNonFinite if the loss is not a finite number.
Expected<FileEvaluation> evaluate_file(const std::string& dir, const std::string& file, i64 sequence,
                                       std::optional<data::TokenType> raw_type, ThreadPool& pool);

}  // namespace wych::train
