#include "train/evaluate.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <optional>

#include "config/load.h"
#include "data/sampler.h"
#include "data/token_file.h"
#include "io/checkpoint.h"
#include "io/huggingface.h"
#include "train/checkpointing.h"
#include "train/compute_device.h"

namespace wych::train {
namespace {

bool exists(const std::string& path) { return std::filesystem::exists(path); }

bool is_hugging_face(const std::string& dir) { return exists(dir + "/config.json"); }

Expected<config::Config> read_hugging_face_config(const std::string& dir) {
  config::Config config;
  WYCH_TRY(config.model, io::read_hf_config(dir + "/config.json"));
  config.data.batch_sequences = 1;
  return config;
}

Expected<void> read_weights(Engine& engine, const io::HfWeights& weights) {
  return receive_weights(engine, [&](const io::FindDestination& find) {
    weights.read_all(find);
    return Expected<void>();
  });
}

}  // namespace

Expected<config::Config> read_model_config(const std::string& dir) {
  if (is_hugging_face(dir)) {
    return read_hugging_face_config(dir);
  }
  WYCH_TRY(const std::string checkpoint, io::find_checkpoint(dir));
  WYCH_TRY(const io::CheckpointReader reader, io::CheckpointReader::open(checkpoint));
  WYCH_TRY([[maybe_unused]] const std::string intact, reader.config_text());
  WYCH_TRY(config::Loaded loaded,
           config::load(checkpoint + "/config.toml", {}, {.purpose = config::Purpose::kPlan}));
  // The model runs on what is here, wherever it was trained.
  config::Config& config = loaded.config;
  config.run.device = resolve_device(config::Device::kAuto);
  if (config.run.device == config::Device::kCpu && config.precision.compute == config::Compute::kBF16) {
    config.precision.compute = config::Compute::kF32;
  }
  if (config.run.device == config::Device::kCuda && config.precision.compute == config::Compute::kF64) {
    config.run.device = config::Device::kCpu;
  }
  return std::move(loaded.config);
}

Expected<LoadedModel> load_model(const std::string& dir, const ProgramRequest& request, ThreadPool& pool) {
  LoadedModel model;
  WYCH_TRY(model.config, read_model_config(dir));
  model.source = dir;
  // The weights before the engine: a config that is not theirs may ask for more than there is memory.
  std::optional<io::HfWeights> weights;
  if (is_hugging_face(dir)) {
    WYCH_TRY(weights, io::HfWeights::open(dir, model.config.model));
  }
  WYCH_TRY(model.engine, Engine::create(model.config, request, pool));
  if (weights) {
    WYCH_TRY_VOID(read_weights(*model.engine, *weights));
  } else {
    WYCH_TRY(model.source, io::find_checkpoint(dir));
    WYCH_TRY_VOID(load_weights(*model.engine, model.source));
  }
  return model;
}

Expected<data::Tokenizer> load_model_tokenizer(const std::string& dir, i64 vocab_size) {
  // A checkpoint lies in RUN/checkpoints/STEP; the tokenizer beside the run's configuration.
  for (const std::string& candidate : {dir + "/tokenizer.json", dir + "/../../tokenizer.json"}) {
    if (!exists(candidate)) {
      continue;
    }
    WYCH_TRY(data::Tokenizer tokenizer, data::Tokenizer::load(candidate));
    if (tokenizer.vocab_size() > vocab_size) {
      return Error{.kind = ErrorKind::kData,
                   .where = candidate,
                   .what = fmt::format("has {} tokens; the model has {}", tokenizer.vocab_size(), vocab_size),
                   .hint = "copy the tokenizer the model was trained with there",
                   .more = {}};
    }
    return tokenizer;
  }
  return Error{.kind = ErrorKind::kData,
               .where = dir,
               .what = "no tokenizer.json in the folder",
               .hint = "copy the tokenizer the model was trained with there",
               .more = {}};
}

Expected<FileEvaluation> evaluate_file(const std::string& dir, const std::string& file, i64 sequence,
                                       std::optional<data::TokenType> raw_type, ThreadPool& pool) {
  WYCH_TRY(const config::Config config, read_model_config(dir));
  // The file before the model: a sequence longer than the file may be longer than memory.
  WYCH_TRY(data::TokenFile tokens, data::TokenFile::open(file, raw_type, config.model.vocab_size));
  const bool other_rows = tokens.columns() > 0 && sequence > 0 && sequence != tokens.columns();
  if (other_rows || tokens.columns() == 1) {
    return Error{.kind = ErrorKind::kUsage,
                 .where = file,
                 .what = fmt::format("has rows of {} tokens, each an instance", tokens.columns()),
                 .hint = tokens.columns() == 1 ? "give a file with longer rows" : "leave --seq out",
                 .more = {}};
  }
  if (tokens.columns() > 0) {
    sequence = tokens.columns();
  } else if (sequence == 0) {
    sequence = config.model.sequence_length;
  }
  if (tokens.num_tokens() < sequence) {
    return Error{
        .kind = ErrorKind::kData,
        .where = file,
        .what = fmt::format("has {} tokens, fewer than one sequence of {}", tokens.num_tokens(), sequence),
        .hint = "give a longer file or a shorter --seq",
        .more = {}};
  }
  constexpr i64 kBatchTokens = 2048;
  const i64 sequences = std::max<i64>(1, kBatchTokens / sequence);
  WYCH_TRY(LoadedModel model,
           load_model(dir, {.evaluation_sequences = sequences, .evaluation_length = sequence}, pool));
  std::vector<data::TokenFile> files;
  files.push_back(std::move(tokens));
  WYCH_TRY(const data::EvalReader reader,
           data::EvalReader::create(std::move(files), {.sequence_length = sequence,
                                                       .sequences_per_batch = sequences,
                                                       .vocab_size = config.model.vocab_size,
                                                       .document_mask = false}));
  data::Batch batch;
  Evaluation sum;
  for (i64 index = 0; index < reader.num_batches(); ++index) {
    WYCH_TRY_VOID(reader.fill(index, batch));
    const Evaluation part = model.engine->evaluate(batch);
    sum.ce_sum += part.ce_sum;
    sum.targets += part.targets;
  }
  if (!std::isfinite(sum.ce_sum)) {
    return Error{.kind = ErrorKind::kNonFinite,
                 .where = model.source,
                 .what = fmt::format("the loss of {} is not finite", file),
                 .hint = "its weights are not, or make numbers too large for their type",
                 .more = {}};
  }
  return FileEvaluation{.ce = sum.ce_sum / sum.targets,
                        .targets = static_cast<i64>(sum.targets),
                        .dropped = reader.instances().tokens_dropped()};
}

}  // namespace wych::train
