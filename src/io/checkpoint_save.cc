// Writing checkpoints (checkpoint.h). Order of events: files, index, folder synced under a temporary name;
// rename; folder of checkpoints synced; `latest` replaced; old checkpoints removed. A crash between any two
// leaves `latest` on a complete checkpoint.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/staged_folder.h"
#include "io/checkpoint.h"
#include "io/checkpoint_format.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace wych::io {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kFiles = {"model.safetensors", "optimizer.safetensors",
                                                    "state.safetensors"};

Error system_error(const std::string& path, std::string_view verb, const std::error_code& code) {
  return file_error(ErrorKind::kCheckpoint, path, verb, code.value());
}

Expected<void> write_synced(const std::string& path, std::string_view content) {
  WYCH_TRY(FileWriter file, FileWriter::create(path, ErrorKind::kCheckpoint));
  WYCH_TRY_VOID(file.write(content));
  WYCH_TRY_VOID(file.sync());
  return file.close();
}

// Writes the tensors of one kind and appends their lines of the index to `lines`.
Expected<void> write_tensors(const std::string& dir, TensorKind kind, std::span<const NamedTensor> tensors,
                             std::vector<std::string>& lines) {
  std::vector<TensorSpec> specs;
  std::vector<const NamedTensor*> chosen;
  for (const NamedTensor& tensor : tensors) {
    if (tensor.kind == kind) {
      specs.push_back({tensor.name, tensor.dtype, tensor.shape});
      chosen.push_back(&tensor);
    }
  }
  if (chosen.empty()) {
    return {};
  }
  const std::string_view file = kFiles[static_cast<std::size_t>(kind)];
  WYCH_TRY(SafetensorsWriter writer, SafetensorsWriter::create(dir + "/" + std::string(file), specs,
                                                               {{"format", "pt"}}, ErrorKind::kCheckpoint));
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const NamedTensor& tensor = *chosen[i];
    const i64 elements = shape_elements(tensor.shape).value_or(-1);
    const std::span<const std::byte> bytes = tensor.content();
    WYCH_CHECK(elements * dtype_bytes(tensor.dtype) == static_cast<i64>(bytes.size()), "bytes of {}",
               tensor.name);
    WYCH_TRY_VOID(writer.write(bytes));
    JsonObject slice;
    slice.add("begin", 0).add("end", elements).add("file", file).add("offset", writer.offset(i));
    slice.add("xxh3", fmt::format("{:016x}", hash_bytes(bytes)));
    JsonObject line;
    line.add("name", tensor.name)
        .add("dtype", dtype_name(tensor.dtype))
        .add_raw("shape", json_list(tensor.shape));
    line.add_raw("slices", "[" + slice.text() + "]");
    lines.push_back(line.text());
  }
  return writer.finish();
}

std::string index_text(const CheckpointMeta& meta, std::string_view config_text,
                       const std::vector<std::string>& lines) {
  JsonObject head;
  head.add("format", kFormatName)
      .add("version", kFormatVersion)
      .add("step", meta.step)
      .add("tokens", meta.tokens);
  head.add("seed", meta.seed).add("config_xxh3", fmt::format("{:016x}", hash_bytes(config_text)));
  std::string text = head.text();
  text.pop_back();  // the object goes on
  text += ",\n\"tensors\":[";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    text += (i == 0 ? "\n" : ",\n") + lines[i];
  }
  text += "]";
  return text + fmt::format("{}\"{:016x}\"}}\n", kIndexHashKey, hash_bytes(std::string_view(text)));
}

// Removes what killed saves and removals left.
void remove_temporaries(const std::string& folder) {
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, code)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory(code) && name.starts_with("step") &&
        name.find(kTemporarySuffix) != std::string::npos) {
      fs::remove_all(entry.path(), code);
    }
  }
}

// Keeps the newest `keep` checkpoints of no later step than `step`; those of an abandoned future are left.
Expected<void> remove_old(const std::string& folder, i64 step, i64 keep) {
  std::set<i64> steps;
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, code)) {
    const std::optional<i64> found = step_of(entry.path().filename().string());
    if (found && *found <= step) {
      steps.insert(*found);
    }
  }
  while (static_cast<i64>(steps.size()) > keep) {
    const std::string path = folder + "/" + step_name(*steps.begin());
    const std::string temporary = path + std::string(kTemporarySuffix);
    fs::rename(path, temporary, code);  // first, so that a half-removed checkpoint never has a valid name
    if (!code) {
      fs::remove_all(temporary, code);
    }
    if (code) {
      return system_error(path, "remove", code);
    }
    steps.erase(steps.begin());
  }
  return {};
}

}  // namespace

std::string step_name(i64 step) { return fmt::format("step{:06}", step); }

std::optional<i64> step_of(std::string_view name) {
  i64 step = -1;
  if (!name.starts_with("step")) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(4);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  const bool whole = error == std::errc() && end == digits.data() + digits.size() && step >= 0;
  return whole && step_name(step) == name ? std::optional(step) : std::nullopt;
}

Expected<std::string> save_checkpoint(const std::string& run_dir, const CheckpointMeta& meta,
                                      std::span<const NamedTensor> tensors, std::string_view config_text,
                                      i64 keep) {
  std::set<std::string_view> names;
  for (const NamedTensor& tensor : tensors) {
    WYCH_CHECK(names.insert(tensor.name).second, "tensor {} twice", tensor.name);
  }
  const std::string folder = run_dir + "/" + std::string(kFolder);
  std::error_code code;
  fs::create_directories(folder, code);
  if (code) {
    return system_error(folder, "create", code);
  }
  WYCH_TRY_VOID(sync_directory(run_dir, ErrorKind::kCheckpoint));
  remove_temporaries(folder);
  const std::string final_name = folder + "/" + step_name(meta.step);
  // A save that fails gives its space back: on a full disk the rest of the run needs it.
  WYCH_TRY(StagedFolder staged, StagedFolder::create(final_name, ErrorKind::kCheckpoint));
  std::vector<std::string> lines;
  for (const TensorKind kind : {TensorKind::kModel, TensorKind::kOptimizer, TensorKind::kState}) {
    WYCH_TRY_VOID(write_tensors(staged.path(), kind, tensors, lines));
  }
  WYCH_TRY_VOID(write_synced(staged.path() + "/" + std::string(kConfigFile), config_text));
  WYCH_TRY_VOID(
      write_synced(staged.path() + "/" + std::string(kIndexFile), index_text(meta, config_text, lines)));
  WYCH_TRY_VOID(staged.publish());
  WYCH_TRY_VOID(write_file_atomic(folder + "/" + std::string(kLatestFile), step_name(meta.step) + "\n",
                                  ErrorKind::kCheckpoint));
  if (keep > 0) {
    WYCH_TRY_VOID(remove_old(folder, meta.step, keep));
  }
  return final_name;
}

}  // namespace wych::io
