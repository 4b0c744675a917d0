// dataset.json in and out. Reading trusts nothing: every field is checked for type and range before use.
#include "data/dataset.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"

namespace wych::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "wych-dataset";
constexpr i64 kVersion = 1;
constexpr i64 kMaxVocabulary = i64{1} << 31U;

std::string hex(u64 value) { return fmt::format("{:016x}", value); }

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

// Takes fields out of one object; remembers the first that is missing or wrong.
class Fields {
 public:
  Fields(const Json& object, std::string where, std::string& problem)
      : object_(object), where_(std::move(where)), problem_(problem) {}

  std::string text(const char* key) {
    const Json* value = find(key);
    if (value == nullptr || !value->is_string()) {
      return fail(key, "a string"), std::string();
    }
    return value->get<std::string>();
  }
  // In [0, limit).
  i64 number(const char* key, i64 limit) {
    const Json* value = find(key);
    if (value == nullptr || !value->is_number_unsigned() || value->get<u64>() >= static_cast<u64>(limit)) {
      return fail(key, fmt::format("a number below {}", limit)), 0;
    }
    return static_cast<i64>(value->get<u64>());
  }
  u64 hash(const char* key) {
    const std::string digits = text(key);
    if (digits.size() != 16 || digits.find_first_not_of("0123456789abcdef") != std::string::npos) {
      return fail(key, "16 hexadecimal digits"), 0;
    }
    return std::stoull(digits, nullptr, 16);
  }
  std::string name(const char* key) {
    std::string value = text(key);
    if (!is_plain_name(value)) {
      fail(key, "a file name without a path");
    }
    return value;
  }
  template <class T>
  T choice(const char* key, std::span<const std::pair<std::string_view, T>> choices) {
    const std::string value = text(key);
    std::string names;
    for (const auto& [name, result] : choices) {
      if (name == value) {
        return result;
      }
      names += fmt::format("{}\"{}\"", names.empty() ? "" : " or ", name);
    }
    return fail(key, names), choices.front().second;
  }
  const Json& list(const char* key) {
    static const Json empty = Json::array();
    const Json* value = find(key);
    if (value == nullptr || !value->is_array()) {
      return fail(key, "a list"), empty;
    }
    return *value;
  }

 private:
  const Json* find(const char* key) const {
    const auto found = object_.is_object() ? object_.find(key) : object_.end();
    return object_.is_object() && found != object_.end() ? &*found : nullptr;
  }
  void fail(const char* key, std::string_view expected) {
    if (problem_.empty()) {
      problem_ = fmt::format("{}{}: expected {}", where_, key, expected);
    }
  }

  const Json& object_;
  const std::string where_;
  std::string& problem_;
};

constexpr std::pair<std::string_view, TokenType> kTypes[] = {
    {"u8", TokenType::kU8}, {"u16", TokenType::kU16}, {"u32", TokenType::kU32}, {"u64", TokenType::kU64}};
constexpr std::pair<std::string_view, Split> kSplits[] = {{"train", Split::kTrain}, {"valid", Split::kValid}};

void read_files(const Json& list, Dataset& dataset, std::string& problem) {
  constexpr i64 kLimit = i64{1} << 60U;
  for (std::size_t i = 0; i < list.size(); ++i) {
    Fields fields(list[i], fmt::format("files[{}].", i), problem);
    DatasetFile file;
    file.file = fields.name("file");
    file.domain = fields.text("domain");
    file.split = fields.choice<Split>("split", kSplits);
    file.tokens = fields.number("tokens", kLimit);
    file.documents = fields.number("documents", kLimit);
    file.text_bytes = fields.number("text_bytes", kLimit);
    file.xxh3 = fields.hash("xxh3");
    dataset.files.push_back(std::move(file));
  }
}

}  // namespace

std::string_view split_name(Split split) { return split == Split::kTrain ? "train" : "valid"; }

std::string plain_folder_name(const std::string& folder) {
  std::string name = std::filesystem::path(folder).lexically_normal().string();
  if (name.size() > 1 && name.ends_with('/')) {
    name.pop_back();
  }
  return name;
}

Expected<void> save_tokenizer(const Tokenizer& tokenizer, const std::string& folder) {
  WYCH_TRY_VOID(write_file_atomic(fmt::format("{}/{}", folder, kTokenizerFileName), tokenizer.to_json(),
                                  ErrorKind::kData));
  const Json settings = {{"eos_token", tokenizer.end_of_text()}};
  return write_file_atomic(folder + "/tokenizer_config.json", settings.dump(2) + "\n", ErrorKind::kData);
}

u64 Dataset::fingerprint(Split split) const {
  Hasher hasher;
  hasher.update(fmt::format("{} {} {}\n", token_type_name(type), vocab_size, eos_id));
  for (const DatasetFile& file : files) {
    if (file.split == split) {
      hasher.update(fmt::format("{} {} {}\n", file.file, file.tokens, hex(file.xxh3)));
    }
  }
  return hasher.digest();
}

i64 Dataset::num_tokens(Split split, std::string_view domain) const {
  i64 sum = 0;
  for (const DatasetFile& file : files) {
    sum += file.split == split && (domain.empty() || file.domain == domain) ? file.tokens : 0;
  }
  return sum;
}

i64 Dataset::text_bytes(Split split, std::string_view domain) const {
  i64 sum = 0;
  for (const DatasetFile& file : files) {
    sum += file.split == split && (domain.empty() || file.domain == domain) ? file.text_bytes : 0;
  }
  return sum;
}

Expected<Dataset> load_dataset(const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kDatasetFileName);
  const auto damaged = [&path](std::string what) {
    return Error{ErrorKind::kData, path, std::move(what), "prepare the data again (`wych data prepare`)", {}};
  };
  WYCH_TRY(const std::string text, read_file(path, ErrorKind::kData));
  const Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::string problem;
  Fields fields(root, "", problem);
  if (!root.is_object() || fields.text("format") != kFormat) {
    return damaged(fmt::format("is not a description of a dataset (format \"{}\")", kFormat));
  }
  if (const i64 version = fields.number("version", 1000); version != kVersion) {
    return damaged(fmt::format("has format version {}; this program reads {}", version, kVersion));
  }
  Dataset dataset;
  dataset.folder = folder;
  dataset.recipe = fields.text("recipe");
  dataset.type = fields.choice<TokenType>("dtype", kTypes);
  dataset.vocab_size = fields.number("vocab_size", kMaxVocabulary);
  dataset.eos_id = static_cast<i32>(fields.number("eos_id", std::max<i64>(dataset.vocab_size, 1)));
  dataset.tokenizer = fields.name("tokenizer");
  const Json& domains = fields.list("domains");
  for (std::size_t i = 0; i < domains.size(); ++i) {
    Fields domain(domains[i], fmt::format("domains[{}].", i), problem);
    dataset.domains.push_back({domain.text("name"), domain.text("licence")});
  }
  read_files(fields.list("files"), dataset, problem);
  if (!problem.empty()) {
    return damaged(problem);
  }
  return dataset;
}

Expected<void> save_dataset(const Dataset& dataset) {
  Json domains = Json::array();
  for (const DatasetDomain& domain : dataset.domains) {
    domains.push_back({{"name", domain.name}, {"licence", domain.licence}});
  }
  Json files = Json::array();
  for (const DatasetFile& file : dataset.files) {
    WYCH_CHECK(is_plain_name(file.file), "file name \"{}\"", file.file);
    files.push_back({{"file", file.file},
                     {"domain", file.domain},
                     {"split", split_name(file.split)},
                     {"tokens", file.tokens},
                     {"documents", file.documents},
                     {"text_bytes", file.text_bytes},
                     {"xxh3", hex(file.xxh3)}});
  }
  const Json root = {{"format", kFormat},
                     {"version", kVersion},
                     {"recipe", dataset.recipe},
                     {"dtype", token_type_name(dataset.type)},
                     {"vocab_size", dataset.vocab_size},
                     {"eos_id", dataset.eos_id},
                     {"tokenizer", dataset.tokenizer},
                     {"domains", std::move(domains)},
                     {"files", std::move(files)}};
  return write_file_atomic(fmt::format("{}/{}", dataset.folder, kDatasetFileName), root.dump(2) + "\n",
                           ErrorKind::kData);
}

Expected<TokenFile> open_file(const Dataset& dataset, const DatasetFile& entry, bool verify) {
  WYCH_TRY(TokenFile file, TokenFile::open(fmt::format("{}/{}", dataset.folder, entry.file), dataset.type));
  if (file.num_tokens() != entry.tokens) {
    return Error{ErrorKind::kData,
                 file.path(),
                 fmt::format("has {} tokens; {} says {}", file.num_tokens(), kDatasetFileName, entry.tokens),
                 "prepare the data again",
                 {}};
  }
  if (verify && file.hash() != entry.xxh3) {
    return Error{ErrorKind::kData,
                 file.path(),
                 fmt::format("is damaged: its hash is {}; {} says {}", hex(file.hash()), kDatasetFileName,
                             hex(entry.xxh3)),
                 "prepare the data again",
                 {}};
  }
  return file;
}

Expected<std::vector<InstanceFile>> open_split(const Dataset& dataset, Split split, std::string_view domain,
                                               bool verify) {
  std::vector<InstanceFile> files;
  for (const DatasetFile& entry : dataset.files) {
    if (entry.split == split && (domain.empty() || entry.domain == domain)) {
      WYCH_TRY(TokenFile file, open_file(dataset, entry, verify));
      files.push_back({.tokens = std::move(file), .domain = entry.domain, .text_bytes = entry.text_bytes});
    }
  }
  if (files.empty()) {
    return Error{ErrorKind::kData,
                 fmt::format("{}/{}", dataset.folder, kDatasetFileName),
                 fmt::format("has no {} file{}", split_name(split),
                             domain.empty() ? "" : fmt::format(" of domain \"{}\"", domain)),
                 "see what there is with `wych data inspect`",
                 {}};
  }
  return files;
}

double bits_per_byte(double nats_per_target, i64 tokens, i64 text_bytes) {
  WYCH_CHECK(text_bytes > 0, "bits per byte of no text");
  return nats_per_target / std::numbers::ln2 * static_cast<double>(tokens) / static_cast<double>(text_bytes);
}

}  // namespace wych::data
