#include "train/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "base/staged_folder.h"
#include "base/sticky_max.h"
#include "config/schema.h"
#include "data/tokenizer.h"
#include "io/json.h"
#include "model/parameters.h"
#include "train/engine.h"
#include "train/model_source.h"

namespace wych::train {
namespace {

namespace fs = std::filesystem;

// What else describes how a model is used; copied as it is.
constexpr std::array<const char*, 7> kSideFiles = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
    "merges.txt",     "chat_template.jinja",   "generation_config.json"};

Error usage_error(std::string where, std::string what, std::string hint) {
  return {ErrorKind::kUsage, std::move(where), std::move(what), std::move(hint), {}};
}

// Whether one of two folders is or contains the other.
bool overlap(const fs::path& a, const fs::path& b) {
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return in_a == a.end() || in_b == b.end();
}

// The target's absolute name, without a slash at its end.
Expected<std::string> check_target(const ConvertRequest& request) {
  std::error_code code;
  fs::path target = fs::weakly_canonical(request.to, code);
  if (!target.has_filename()) {
    target = target.parent_path();
  }
  if (code || target.empty()) {
    return usage_error(request.to, "is not a folder that can be written", "give another --to");
  }
  const std::string name = target.string();
  if (overlap(fs::weakly_canonical(request.from, code), target)) {
    return usage_error(name, fmt::format("is, contains or lies in the source, {}", request.from),
                       "give a folder outside of it");
  }
  if (!fs::exists(target)) {
    return name;
  }
  if (!request.replace) {
    return usage_error(name, "exists", "give another folder, or --replace");
  }
  if (!fs::exists(target / "config.json") && !fs::exists(target / "checkpoints")) {
    return usage_error(name, "is not a model folder, and so not replaced", "give another folder");
  }
  return name;
}

Expected<void> write_synced(const std::string& path, std::string_view text) {
  WYCH_TRY(FileWriter file, FileWriter::create(path, ErrorKind::kData));
  WYCH_TRY_VOID(file.write(text));
  WYCH_TRY_VOID(file.sync());
  return file.close();
}

Expected<void> copy_side_files(const ModelSource& source, const std::string& dir) {
  for (const char* file : kSideFiles) {
    const std::string path = fmt::format("{}/{}", source.tokenizer_folder(), file);
    if (fs::exists(path)) {
      WYCH_TRY(const std::string text, read_file(path, ErrorKind::kData));
      WYCH_TRY_VOID(write_synced(fmt::format("{}/{}", dir, file), text));
    }
  }
  return {};
}

Expected<i64> write_hugging_face(const ModelSource& source, const ConvertRequest& request,
                                 const std::string& dir) {
  io::HfWriteOptions options{
      .dtype = request.dtype, .shard_bytes = request.shard_bytes, .ids = {}, .progress = request.progress};
  WYCH_TRY(options.ids, source.token_ids());
  WYCH_TRY(const i64 bytes, io::write_hf_folder(
                                dir, source.config().model,
                                [&source](const std::string& name, std::span<const i64> shape,
                                          std::span<float> out) { return source.read(name, shape, out); },
                                options));
  WYCH_TRY_VOID(copy_side_files(source, dir));
  const std::string tokenizer_config = dir + "/tokenizer_config.json";
  if (fs::exists(dir + "/tokenizer.json") && !fs::exists(tokenizer_config)) {
    WYCH_TRY(const data::Tokenizer tokenizer, data::Tokenizer::load(dir + "/tokenizer.json"));
    io::JsonObject object;
    object.add("tokenizer_class", "PreTrainedTokenizerFast").add("eos_token", tokenizer.end_of_text());
    object.add("model_max_length", source.config().model.sequence_length);
    WYCH_TRY_VOID(write_synced(tokenizer_config, object.text() + "\n"));
  }
  return bytes;
}

// A run folder. All weights are in memory at once, in float32.
Expected<i64> write_wych(const ModelSource& source, const ConvertRequest& request, const std::string& dir) {
  config::Config config = source.config();
  config.precision.compute = config::Compute::kF32;
  const std::string text = config::to_toml(config);
  const std::vector<model::Parameter> parameters = model::parameters(config.model);
  std::vector<std::vector<float>> values;
  std::vector<io::NamedTensor> tensors;
  i64 bytes = 0;
  for (const model::Parameter& parameter : parameters) {
    const std::span<const i64> shape = parameter.shape.dims();
    std::vector<float>& elements = values.emplace_back(static_cast<std::size_t>(parameter.shape.elements()));
    WYCH_TRY_VOID(source.read(parameter.name, shape, elements));
    tensors.push_back({io::TensorKind::kModel,
                       parameter.name,
                       DType::kF32,
                       {shape.begin(), shape.end()},
                       [bytes = std::as_bytes(std::span(elements))] { return bytes; }});
    bytes += parameter.shape.elements() * dtype_bytes(DType::kF32);
  }
  WYCH_TRY_VOID(io::save_checkpoint(dir, source.meta(), tensors, text, 0));
  request.progress(bytes, bytes);
  WYCH_TRY_VOID(write_synced(dir + "/config.toml", text));
  if (source.is_hugging_face()) {
    WYCH_TRY(const io::HfTokenIds ids, source.token_ids());
    WYCH_TRY_VOID(write_synced(dir + "/generation_config.json", io::hf_generation_config_text(ids)));
  }
  WYCH_TRY_VOID(copy_side_files(source, dir));
  return bytes;
}

// The logits of a fixed sequence of tokens on this machine's processor: the row after a prefill, then a row
// per step.
Expected<std::vector<float>> sample_logits(const ModelSource& source, ThreadPool& pool) {
  constexpr i64 kPrefill = 32;
  constexpr i64 kSteps = 16;
  config::Config config = source.config();
  config.run.device = config::Device::kCpu;
  config.precision.compute = config::Compute::kF32;
  config.parallel = {.dp = 1};
  const i64 tokens = std::min(kPrefill + kSteps, config.model.sequence_length);
  const i64 prefill = std::max<i64>(tokens - kSteps, 1);
  WYCH_TRY(const std::unique_ptr<Engine> engine,
           Engine::create(config, {.prefill_tokens = prefill, .cache_length = tokens}, pool));
  for (const Engine::Tensor& tensor : engine->checkpoint_tensors()) {
    if (tensor.is_weight) {
      std::vector<float> values(static_cast<std::size_t>(tensor.type.elements()));
      WYCH_TRY_VOID(source.read(tensor.path, tensor.type.shape.dims(), values));
      engine->write(tensor.path, std::as_bytes(std::span(values)));
    }
  }
  std::vector<i32> ids;
  for (i64 t = 0; t < tokens; ++t) {
    ids.push_back(static_cast<i32>((7919 * t + 13) % config.model.vocab_size));
  }
  std::vector<float> logits;
  for (i64 begin = 0, end = prefill; begin < tokens; begin = end++) {
    const std::vector<float> row = engine->feed(
        std::span(ids).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)),
        begin);
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

Expected<Verification> verify(const ModelSource& source, const std::string& dir, DType dtype,
                              ThreadPool& pool) {
  WYCH_TRY(const ModelSource target, ModelSource::open(dir));
  WYCH_TRY(const std::vector<float> before, sample_logits(source, pool));
  WYCH_TRY(const std::vector<float> after, sample_logits(target, pool));
  const auto differ = [&dir](std::string what) {
    return Error{ErrorKind::kData, dir, std::move(what), "nothing was written", {}};
  };
  if (before.size() != after.size()) {
    return differ(fmt::format("has {} logits where the source has {}", after.size(), before.size()));
  }
  Verification result;
  result.positions = static_cast<i64>(before.size()) / source.config().model.vocab_size;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const auto logit = static_cast<double>(before[i]);
    result.largest_logit = sticky_max(result.largest_logit, std::abs(logit));
    result.largest_difference =
        sticky_max(result.largest_difference, std::abs(logit - static_cast<double>(after[i])));
  }
  const bool exact = dtype == DType::kF32;
  if (!std::isfinite(result.largest_difference) || (exact && result.largest_difference != 0.0)) {
    return differ(fmt::format("logits differ from the source's by up to {}, the largest being {}",
                              result.largest_difference, result.largest_logit));
  }
  return result;
}

}  // namespace

Expected<Conversion> convert(const ConvertRequest& request, ThreadPool& pool) {
  const bool hugging_face = request.format == ModelFormat::kHuggingFace;
  if (!hugging_face && request.dtype != DType::kF32) {
    return usage_error("--dtype",
                       fmt::format("is {}; wych's checkpoints hold f32", dtype_name(request.dtype)),
                       "leave it out, or use --format hf");
  }
  WYCH_TRY(const std::string name, check_target(request));
  WYCH_TRY(const ModelSource source, ModelSource::open(request.from));
  Conversion result{.model = source.config().model, .source = source.weights_folder()};
  if (hugging_face) {
    WYCH_TRY_VOID(io::hf_model(result.model));
  }
  WYCH_TRY(StagedFolder staged, StagedFolder::create(name, ErrorKind::kData));
  WYCH_TRY(result.bytes, hugging_face ? write_hugging_face(source, request, staged.path())
                                      : write_wych(source, request, staged.path()));
  if (request.verify) {
    WYCH_TRY(result.verification, verify(source, staged.path(), request.dtype, pool));
  }
  WYCH_TRY_VOID(staged.publish());
  return result;
}

}  // namespace wych::train
