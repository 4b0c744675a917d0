// wych inspect: what is in a run, a checkpoint or a Hugging Face folder.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/commands.h"
#include "config/load.h"
#include "config/model_size.h"
#include "io/checkpoint.h"
#include "io/huggingface.h"
#include "io/safetensors.h"
#include "plan/report.h"
#include "train/evaluate.h"
#include "train/run_text.h"

namespace wych::cli {
namespace {

struct TensorRow {
  std::string name;
  std::string dtype;
  std::vector<i64> shape;
  i64 bytes = 0;
};

std::string table_text(const std::vector<TensorRow>& rows) {
  std::size_t name_width = 4;
  std::size_t shape_width = 5;
  i64 total = 0;
  for (const TensorRow& row : rows) {
    name_width = std::max(name_width, row.name.size());
    shape_width = std::max(shape_width, io::shape_text(row.shape).size());
    total += row.bytes;
  }
  std::string text = fmt::format("{:<{}}  {:<5}  {:<{}}  {:>14}\n", "name", name_width, "dtype", "shape",
                                 shape_width, "bytes");
  for (const TensorRow& row : rows) {
    text += fmt::format("{:<{}}  {:<5}  {:<{}}  {:>14}\n", row.name, name_width, row.dtype,
                        io::shape_text(row.shape), shape_width, train::grouped_digits(row.bytes));
  }
  return text + fmt::format("{} tensors, {}\n", rows.size(), plan::bytes_text(total));
}

std::string model_lines(const config::ModelConfig& model) {
  const config::ParameterCounts counts = config::count_parameters(model);
  const Expected<io::HfModel> type = io::hf_model(model);
  return fmt::format(
      "model       {}\nparameters  {} total, {} active per token\nclass       {}\n", train::model_text(model),
      train::grouped_digits(counts.total), train::grouped_digits(counts.active),
      type ? std::string(io::hf_architecture(*type))
           : fmt::format("none of Hugging Face's: {} {}", type.error().where, type.error().what));
}

Expected<void> inspect_checkpoint(const std::string& dir, bool verify) {
  WYCH_TRY(const std::string found, io::find_checkpoint(dir));
  WYCH_TRY(const io::CheckpointReader checkpoint, io::CheckpointReader::open(found));
  WYCH_TRY(const config::Config config, train::read_model_config(found));
  std::vector<TensorRow> rows;
  for (const io::CheckpointReader::Entry& entry : checkpoint.list()) {
    const i64 elements = entry.slices.empty() ? 0 : entry.slices.back().end;
    rows.push_back(
        {entry.name, std::string(dtype_name(entry.dtype)), entry.shape, elements * dtype_bytes(entry.dtype)});
  }
  fmt::print("checkpoint  {}\nstep        {}, {} tokens, seed {}\n{}\n{}", checkpoint.dir(),
             train::grouped_digits(checkpoint.meta().step), train::grouped_digits(checkpoint.meta().tokens),
             checkpoint.meta().seed, model_lines(config.model), table_text(rows));
  if (verify) {
    WYCH_TRY_VOID(checkpoint.verify());
    fmt::print("every byte agrees with its hash\n");
  }
  return {};
}

// The files that hold weights: model.safetensors or model-0000i-of-0000n.safetensors.
Expected<std::vector<std::string>> weight_files(const std::string& dir) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    if (entry.path().extension() == ".safetensors" && entry.path().stem().string().starts_with("model")) {
      paths.push_back(entry.path().string());
    }
  }
  if (error) {
    return file_error(ErrorKind::kData, dir, "list", error.value());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

Expected<void> inspect_hugging_face(const std::string& dir, bool verify) {
  if (verify) {
    return Error{.kind = ErrorKind::kUsage,
                 .where = "--verify",
                 .what = "a Hugging Face folder has no hashes to check",
                 .hint = "leave it out",
                 .more = {}};
  }
  WYCH_TRY(const std::vector<std::string> paths, weight_files(dir));
  std::vector<TensorRow> rows;
  for (const std::string& path : paths) {
    WYCH_TRY(const io::SafetensorsFile file, io::SafetensorsFile::open(path, ErrorKind::kData));
    for (const io::TensorView& tensor : file.tensors()) {
      rows.push_back({tensor.name, std::string(io::stored_name(tensor.type)), tensor.shape,
                      static_cast<i64>(tensor.bytes.size())});
    }
  }
  // A model that wych cannot run still has tensors to look at.
  const Expected<config::Config> config = train::read_model_config(dir);
  fmt::print("folder      {} (Hugging Face)\n{}\n{}", dir,
             config ? model_lines(config->model)
                    : fmt::format("model       not supported: {}\n", config.error().text()),
             table_text(rows));
  return {};
}

}  // namespace

Expected<int> run(const InspectOptions& options) {
  if (std::filesystem::exists(options.dir + "/dataset.json")) {
    return Error{.kind = ErrorKind::kUsage,
                 .where = options.dir,
                 .what = "is a data folder, not a model",
                 .hint = fmt::format("wych data inspect {}", options.dir),
                 .more = {}};
  }
  if (std::filesystem::exists(options.dir + "/config.json")) {
    WYCH_TRY_VOID(inspect_hugging_face(options.dir, options.verify));
  } else {
    WYCH_TRY_VOID(inspect_checkpoint(options.dir, options.verify));
  }
  return 0;
}

}  // namespace wych::cli
