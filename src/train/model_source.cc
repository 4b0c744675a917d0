#include "train/model_source.h"

#include <fmt/format.h>

#include <filesystem>

#include "data/tokenizer.h"
#include "train/evaluate.h"

namespace wych::train {
namespace {

bool exists(const std::string& path) { return std::filesystem::exists(path); }

}  // namespace

Expected<ModelSource> ModelSource::open(const std::string& dir) {
  ModelSource source;
  WYCH_TRY(source.config_, read_model_config(dir));
  source.weights_folder_ = dir;
  source.tokenizer_folder_ = dir;
  if (exists(dir + "/config.json")) {
    WYCH_TRY(source.hugging_face_, io::HfWeights::open(dir, source.config_.model));
    return source;
  }
  WYCH_TRY(source.weights_folder_, io::find_checkpoint(dir));
  // A checkpoint lies in RUN/checkpoints/STEP; the tokenizer in RUN.
  const std::string run = source.weights_folder_ + "/../..";
  if (!exists(dir + "/tokenizer.json") && exists(run + "/tokenizer.json")) {
    source.tokenizer_folder_ = run;
  }
  WYCH_TRY(source.checkpoint_, io::CheckpointReader::open(source.weights_folder_));
  return source;
}

io::CheckpointMeta ModelSource::meta() const {
  return checkpoint_ ? checkpoint_->meta() : io::CheckpointMeta{};
}

Expected<io::HfTokenIds> ModelSource::token_ids() const {
  const std::string config =
      tokenizer_folder_ + (is_hugging_face() ? "/config.json" : "/generation_config.json");
  if (exists(config)) {
    return io::read_hf_token_ids(config);
  }
  io::HfTokenIds ids;
  const std::string tokenizer = tokenizer_folder_ + "/tokenizer.json";
  if (exists(tokenizer)) {
    WYCH_TRY(const data::Tokenizer loaded, data::Tokenizer::load(tokenizer));
    ids.eos = fmt::format("{}", loaded.eos_id());
  }
  return ids;
}

Expected<void> ModelSource::read(const std::string& name, std::span<const i64> shape,
                                 std::span<float> out) const {
  if (hugging_face_) {
    hugging_face_->read(name, {DType::kF32, std::as_writable_bytes(out)});
    return {};
  }
  const io::CheckpointReader::Entry* entry = checkpoint_->find(name);
  if (entry == nullptr || entry->dtype != DType::kF64) {
    return checkpoint_->read(name, DType::kF32, shape, std::as_writable_bytes(out));
  }
  std::vector<double> wide(out.size());
  WYCH_TRY_VOID(checkpoint_->read(name, DType::kF64, shape, std::as_writable_bytes(std::span(wide))));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(wide[i]);
  }
  return {};
}

}  // namespace wych::train
