// Reading checkpoints (checkpoint.h). The index ends in the hash of all its text before that hash, so that a
// damaged index is told from a damaged tensor. Writing is checkpoint_save.cc.
#include "io/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/file.h"
#include "base/hash.h"
#include "io/checkpoint_format.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace wych::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPointerHint =
    "delete this file to go on from the newest checkpoint that is there, or name one with --resume";

Error checkpoint_error(std::string where, std::string what, std::string hint = "") {
  return Error{ErrorKind::kCheckpoint, std::move(where), std::move(what), std::move(hint), {}};
}

std::optional<u64> parse_hash(const Json* value) {
  const std::string* text = value != nullptr ? value->get<std::string>() : nullptr;
  u64 hash = 0;
  if (text == nullptr || text->size() != 16) {
    return std::nullopt;
  }
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), hash, 16);
  return error == std::errc() && end == text->data() + text->size() ? std::optional(hash) : std::nullopt;
}

std::optional<i64> count(const Json& object, std::string_view key) {
  const Json* member = object.find(key);
  const i64* value = member != nullptr ? member->get<i64>() : nullptr;
  return value != nullptr && *value >= 0 ? std::optional(*value) : std::nullopt;
}

// A plain file name of this folder; anything else could lead outside it.
bool plain_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos;
}

// The index's text without its own hash; nullopt if there is no hash or it does not match.
bool index_is_intact(std::string_view text) {
  const std::size_t at = text.rfind(kIndexHashKey);
  return at != std::string_view::npos && text.substr(at + kIndexHashKey.size()) ==
                                             fmt::format("\"{:016x}\"}}\n", hash_bytes(text.substr(0, at)));
}

std::optional<CheckpointReader::Slice> parse_slice(const Json& json) {
  const std::optional<i64> begin = count(json, "begin");
  const std::optional<i64> end = count(json, "end");
  const std::optional<i64> offset = count(json, "offset");
  const std::optional<u64> hash = parse_hash(json.find("xxh3"));
  const Json* file = json.find("file");
  const std::string* name = file != nullptr ? file->get<std::string>() : nullptr;
  if (!begin || !end || *begin > *end || !offset || !hash || name == nullptr || !plain_name(*name)) {
    return std::nullopt;
  }
  return CheckpointReader::Slice{*begin, *end, *name, *offset, *hash};
}

// Fills `entry`; returns what is wrong, or an empty string.
std::string parse_entry(const Json& json, CheckpointReader::Entry& entry) {
  const Json* dtype = json.find("dtype");
  const std::string* dtype_text = dtype != nullptr ? dtype->get<std::string>() : nullptr;
  const std::optional<DType> type = dtype_text != nullptr ? parse_dtype(*dtype_text) : std::nullopt;
  if (!type) {
    return "unknown dtype";
  }
  entry.dtype = *type;
  const Json* shape = json.find("shape");
  const Json* slices = json.find("slices");
  if (shape == nullptr || shape->get<Json::Array>() == nullptr || slices == nullptr ||
      slices->get<Json::Array>() == nullptr) {
    return "has no shape or no slices";
  }
  for (const Json& extent : *shape->get<Json::Array>()) {
    entry.shape.push_back(extent.get<i64>() != nullptr ? *extent.get<i64>() : -1);
  }
  const std::optional<i64> elements = shape_elements(entry.shape);
  if (!elements) {
    return "shape " + shape_text(entry.shape) + " is not valid";
  }
  i64 end = 0;
  for (const Json& item : *slices->get<Json::Array>()) {
    std::optional<CheckpointReader::Slice> slice = parse_slice(item);
    if (!slice) {
      return fmt::format("slice {} is malformed", entry.slices.size());
    }
    if (slice->begin != end) {
      return fmt::format("elements [{}, {}) are {}", std::min(end, slice->begin), std::max(end, slice->begin),
                         slice->begin > end ? "missing" : "there twice");
    }
    end = slice->end;
    entry.slices.push_back(std::move(*slice));
  }
  if (end != *elements) {
    return fmt::format("slices end at element {}, shape {} has {}", end, shape_text(entry.shape), *elements);
  }
  return "";
}

}  // namespace

struct CheckpointReader::Files {
  std::map<std::string, MappedFile, std::less<>> by_name;
};

CheckpointReader::CheckpointReader() : files_(std::make_unique<Files>()) {}
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

Expected<CheckpointReader> CheckpointReader::open(const std::string& dir) {
  CheckpointReader reader;
  reader.dir_ = dir;
  WYCH_TRY_VOID(reader.parse_index());
  for (const Entry& entry : reader.entries_) {
    for (const Slice& slice : entry.slices) {
      if (!reader.files_->by_name.contains(slice.file)) {
        Expected<MappedFile> file = MappedFile::open(dir + "/" + slice.file, ErrorKind::kCheckpoint);
        if (!file) {
          Error error = std::move(file).error();
          error.what += fmt::format(" (it holds {})", entry.name);
          return error;
        }
        reader.files_->by_name.emplace(slice.file, *std::move(file));
      }
      const i64 size = static_cast<i64>(reader.files_->by_name.find(slice.file)->second.bytes().size());
      i64 bytes = 0;
      if (__builtin_mul_overflow(slice.end - slice.begin, dtype_bytes(entry.dtype), &bytes) || bytes > size ||
          slice.offset > size - bytes) {
        return checkpoint_error(fmt::format("{}/{}: {}", dir, slice.file, entry.name),
                                fmt::format("lies beyond the file's {} bytes", size),
                                "the file is incomplete");
      }
    }
  }
  return reader;
}

Expected<void> CheckpointReader::parse_index() {
  const std::string path = dir_ + "/" + std::string(kIndexFile);
  WYCH_TRY(const std::string text, read_file(path, ErrorKind::kCheckpoint));
  WYCH_TRY(const Json index, parse_json(text, path, ErrorKind::kCheckpoint));
  const Json* format = index.find("format");
  if (format == nullptr || format->get<std::string>() == nullptr ||
      *format->get<std::string>() != kFormatName) {
    return checkpoint_error(path, fmt::format("is not the index of a {}", kFormatName));
  }
  const std::optional<i64> version = count(index, "version");
  if (version != kFormatVersion) {
    return checkpoint_error(path, fmt::format("has format version {}, this program reads {}",
                                              version.value_or(-1), kFormatVersion));
  }
  if (!index_is_intact(text)) {
    return checkpoint_error(path, "does not match its own hash",
                            "the index is damaged; use another checkpoint");
  }
  const std::optional<i64> step = count(index, "step");
  const std::optional<i64> tokens = count(index, "tokens");
  const std::optional<i64> seed = count(index, "seed");
  const std::optional<u64> config_hash = parse_hash(index.find("config_xxh3"));
  const Json* tensors = index.find("tensors");
  if (!step || !tokens || !seed || !config_hash || tensors == nullptr ||
      tensors->get<Json::Array>() == nullptr) {
    return checkpoint_error(path, "lacks step, tokens, seed, config_xxh3 or tensors");
  }
  meta_ = {*step, *tokens, *seed, *config_hash};
  for (const Json& item : *tensors->get<Json::Array>()) {
    const Json* name = item.find("name");
    if (name == nullptr || name->get<std::string>() == nullptr) {
      return checkpoint_error(path, fmt::format("tensor {} has no name", entries_.size()));
    }
    Entry entry;
    entry.name = *name->get<std::string>();
    if (std::string fault = parse_entry(item, entry); !fault.empty()) {
      return checkpoint_error(path + ": " + entry.name, std::move(fault));
    }
    entries_.push_back(std::move(entry));
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(entries_.begin(), entries_.end(),
                                        [](const Entry& a, const Entry& b) { return a.name == b.name; });
  if (twice != entries_.end()) {
    return checkpoint_error(path + ": " + twice->name, "is there twice");
  }
  return {};
}

const CheckpointReader::Entry* CheckpointReader::find(std::string_view name) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const Entry& entry, std::string_view key) { return entry.name < key; });
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

Expected<std::string> CheckpointReader::config_text() const {
  const std::string path = dir_ + "/" + std::string(kConfigFile);
  WYCH_TRY(std::string text, read_file(path, ErrorKind::kCheckpoint));
  if (hash_bytes(std::string_view(text)) != meta_.config_hash) {
    return checkpoint_error(path, "was changed after the checkpoint was saved",
                            "put it back; settings of a run that goes on are changed on its command line");
  }
  return text;
}

Expected<std::span<const std::byte>> CheckpointReader::checked_bytes(const Entry& entry,
                                                                     const Slice& slice) const {
  const std::span<const std::byte> file = files_->by_name.find(slice.file)->second.bytes();
  const i64 size = (slice.end - slice.begin) * dtype_bytes(entry.dtype);
  const std::span<const std::byte> bytes =
      file.subspan(static_cast<std::size_t>(slice.offset), static_cast<std::size_t>(size));
  if (hash_bytes(bytes) != slice.hash) {
    return checkpoint_error(fmt::format("{}/{}: {}", dir_, slice.file, entry.name),
                            fmt::format("elements [{}, {}) do not match their hash", slice.begin, slice.end),
                            "the file is damaged; use another checkpoint");
  }
  return bytes;
}

Expected<void> CheckpointReader::read(std::string_view name, DType dtype, std::span<const i64> shape,
                                      std::span<std::byte> destination) const {
  const std::string where = fmt::format("{}: {}", dir_, name);
  const Entry* entry = find(name);
  if (entry == nullptr) {
    return checkpoint_error(where, "is not in this checkpoint", "does it belong to another model?");
  }
  if (entry->dtype != dtype ||
      !std::equal(shape.begin(), shape.end(), entry->shape.begin(), entry->shape.end())) {
    return checkpoint_error(
        where,
        fmt::format("is {} {} in the checkpoint, expected {} {}", dtype_name(entry->dtype),
                    shape_text(entry->shape), dtype_name(dtype), shape_text(shape)),
        "does it belong to another model?");
  }
  std::size_t at = 0;
  for (const Slice& slice : entry->slices) {
    WYCH_TRY(const std::span<const std::byte> bytes, checked_bytes(*entry, slice));
    WYCH_CHECK(at + bytes.size() <= destination.size(), "destination of {}", name);
    std::copy(bytes.begin(), bytes.end(), destination.begin() + static_cast<std::ptrdiff_t>(at));
    at += bytes.size();
  }
  WYCH_CHECK(at == destination.size(), "destination of {}", name);
  return {};
}

Expected<void> CheckpointReader::verify() const {
  for (const Entry& entry : entries_) {
    for (const Slice& slice : entry.slices) {
      WYCH_TRY([[maybe_unused]] const std::span<const std::byte> bytes, checked_bytes(entry, slice));
    }
  }
  WYCH_TRY([[maybe_unused]] const std::string config, config_text());
  return {};
}

Expected<void> CheckpointReader::refuse_unknown(const std::function<bool(std::string_view)>& known) const {
  for (const Entry& entry : entries_) {
    if (!known(entry.name)) {
      return checkpoint_error(fmt::format("{}: {}", dir_, entry.name), "is not part of this model",
                              "the checkpoint belongs to another one");
    }
  }
  return {};
}

std::vector<std::string> list_checkpoints(const std::string& run_dir) {
  const std::string folder = run_dir + "/" + std::string(kFolder);
  std::map<i64, std::string> by_step;
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, code)) {
    const std::string name = entry.path().filename().string();
    const std::optional<i64> step = step_of(name);
    if (step && fs::exists(entry.path() / std::string(kIndexFile), code)) {
      by_step.emplace(*step, folder + "/" + name);
    }
  }
  std::vector<std::string> paths;
  for (auto& [step, path] : by_step) {
    paths.push_back(std::move(path));
  }
  return paths;
}

Expected<std::optional<std::string>> latest_checkpoint(const std::string& run_dir) {
  const std::string folder = run_dir + "/" + std::string(kFolder);
  const std::string pointer = folder + "/" + std::string(kLatestFile);
  if (!fs::exists(pointer)) {  // the first save was killed before its last act, or somebody removed the file
    const std::vector<std::string> complete = list_checkpoints(run_dir);
    return complete.empty() ? std::optional<std::string>() : std::optional(complete.back());
  }
  WYCH_TRY(std::string name, read_file(pointer, ErrorKind::kCheckpoint));
  if (name.ends_with('\n')) {
    name.pop_back();
  }
  if (!step_of(name)) {
    return checkpoint_error(pointer,
                            fmt::format("holds {}, expected the name of a checkpoint", json_string(name)),
                            std::string(kPointerHint));
  }
  if (!fs::exists(folder + "/" + name + "/" + std::string(kIndexFile))) {
    return checkpoint_error(pointer, fmt::format("names {}, which is not there or is incomplete", name),
                            std::string(kPointerHint));
  }
  return std::optional(folder + "/" + name);
}

Expected<std::string> find_checkpoint(const std::string& dir) {
  if (fs::exists(dir + "/" + std::string(kIndexFile))) {
    return dir;
  }
  WYCH_TRY(std::optional<std::string> latest, latest_checkpoint(dir));
  if (!latest) {
    return checkpoint_error(dir, "is neither a checkpoint nor a run folder with one");
  }
  return *std::move(latest);
}

}  // namespace wych::io
