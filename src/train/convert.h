// Models from one format to another: a run, a checkpoint or a Hugging Face folder becomes a Hugging Face
// folder or a run folder whose one checkpoint holds the weights alone. Invariant: the target appears under
// its name complete, and verified if that was asked for, or not at all.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/expected.h"
#include "base/thread_pool.h"
#include "config/config.h"

namespace wych::train {

enum class ModelFormat { kHuggingFace, kWych };

struct ConvertRequest {
  std::string from;
  std::string to;
  ModelFormat format = ModelFormat::kHuggingFace;
  DType dtype = DType::kF32;        // of the weights; kBF16 rounds to nearest even (Hugging Face only)
  bool verify = false;              // compare the logits of both sides
  bool replace = false;             // a model folder under the target's name
  i64 shard_bytes = 5'000'000'000;  // of one file of a Hugging Face folder
  // Called with the bytes written so far and in all.
  std::function<void(i64 done, i64 total)> progress = [](i64, i64) {};
};

// Logits of both sides over the same tokens, by a prefill and single steps from the cache.
struct Verification {
  i64 positions = 0;
  double largest_logit = 0;
  double largest_difference = 0;
};

struct Conversion {
  config::ModelConfig model;
  std::string source;  // the folder the weights came from
  i64 bytes = 0;       // of the weights written
  std::optional<Verification> verification = std::nullopt;
};

// Errors: those of reading the source; kUsage for a model without a Hugging Face class (naming each key), a
// target that exists or lies in the source; kData when the target cannot be written (the disk is full) or
// when verification finds another model.
Expected<Conversion> convert(const ConvertRequest& request, ThreadPool& pool);

}  // namespace wych::train
