// Paths to files, files to sources. Nothing is read but headers, indices and the samples of the fingerprint.
#include "data/sources.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "data/dataset.h"
#include "data/tokenizer.h"

namespace wych::data {
namespace {

constexpr std::string_view kTokenizerPlaceholder = "{TOKENIZER}";

std::optional<TokenType> raw_type(config::IdType type) {
  switch (type) {
    case config::IdType::kAuto:
      break;
    case config::IdType::kU8:
      return TokenType::kU8;
    case config::IdType::kU16:
      return TokenType::kU16;
    case config::IdType::kU32:
      return TokenType::kU32;
    case config::IdType::kU64:
      return TokenType::kU64;
  }
  return std::nullopt;
}

Error too_many_ids(const std::string& where, i64 ids, i64 vocab_size) {
  return {.kind = ErrorKind::kUsage,
          .where = "model.vocab_size",
          .what = fmt::format("{}, but the ids of {} go up to {}", vocab_size, where, ids - 1),
          .hint = fmt::format("set --model.vocab_size={}", ids),
          .more = {}};
}

// Files of one list with their masks.
class FileList {
 public:
  FileList(const config::Config& config, std::string key, std::string domain = "text")
      : config_(config), key_(std::move(key)), domain_(std::move(domain)) {}

  Expected<std::vector<InstanceFile>> open(const std::vector<std::string>& patterns,
                                           const std::vector<std::string>& mask_patterns) const {
    WYCH_TRY(const std::vector<std::string> paths, expand(patterns, key_));
    WYCH_TRY(const std::vector<std::string> masks, expand(mask_patterns, key_ + ": label masks"));
    if (!masks.empty() && masks.size() != paths.size()) {
      return Error{ErrorKind::kData,
                   key_,
                   fmt::format("names {} token files, its label masks {}", paths.size(), masks.size()),
                   "give a mask for every file, in the same order",
                   {}};
    }
    std::vector<InstanceFile> files;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      WYCH_TRY(InstanceFile file, open_one(paths[i]));
      if (!masks.empty()) {
        WYCH_TRY(file.label_mask, LabelMask::open(masks[i], file.tokens));
      }
      files.push_back(std::move(file));
    }
    return files;
  }

  Expected<InstanceFile> open_one(const std::string& path) const {
    const i64 vocab_size = config_.model.vocab_size;
    WYCH_TRY(TokenFile tokens, TokenFile::open(path, raw_type(config_.data.dtype), vocab_size));
    if (tokens.vocab_size() > vocab_size) {
      return too_many_ids(path, tokens.vocab_size(), vocab_size);
    }
    return InstanceFile{.tokens = std::move(tokens), .domain = domain_};
  }

 private:
  static Expected<std::vector<std::string>> expand(const std::vector<std::string>& patterns,
                                                   const std::string& key) {
    std::vector<std::string> paths;
    for (const std::string& pattern : patterns) {
      WYCH_TRY(const std::vector<std::string> found, expand_path(pattern, key));
      paths.insert(paths.end(), found.begin(), found.end());
    }
    // A file named twice would be read twice as often as anybody sees.
    std::set<std::string> seen;
    for (const std::string& path : paths) {
      if (!seen.insert(std::filesystem::weakly_canonical(path).string()).second) {
        return Error{ErrorKind::kData,
                     key,
                     fmt::format("names {} twice", path),
                     "name each file once; to read one more often give a source max_repetition",
                     {}};
      }
    }
    return paths;
  }

  const config::Config& config_;
  std::string key_;
  std::string domain_;
};

Expected<OpenedData> open_folder(const config::Config& config) {
  const std::string& folder = config.data.dir;
  std::error_code failure;
  if (!std::filesystem::exists(fmt::format("{}/{}", folder, kDatasetFileName), failure)) {
    return Error{
        ErrorKind::kData,
        folder,
        fmt::format("is not a data folder: there is no {}", kDatasetFileName),
        fmt::format("make it with `wych data prepare --out {}`, or name another with --data.dir", folder),
        {}};
  }
  WYCH_TRY(const Dataset dataset, load_dataset(folder));
  if (dataset.vocab_size > config.model.vocab_size) {
    return too_many_ids(folder, dataset.vocab_size, config.model.vocab_size);
  }
  OpenedData data;
  data.description = folder;
  data.vocab_size = dataset.vocab_size;
  data.eos_id = dataset.eos_id;
  data.tokenizer = fmt::format("{}/{}", folder, dataset.tokenizer);
  data.fingerprint = dataset.fingerprint(Split::kTrain);
  SourceFiles& source = data.sources.emplace_back();
  WYCH_TRY(source.train, open_split(dataset, Split::kTrain));
  if (dataset.num_tokens(Split::kValid) > 0) {
    WYCH_TRY(source.valid, open_split(dataset, Split::kValid));
  }
  return data;
}

Expected<SourceFiles> open_mix(const config::Config& config) {
  const config::DataConfig& data = config.data;
  WYCH_TRY(const std::vector<MixRow> rows, read_mix(data.mix, data.mix_root, data.mix_tokenizer));
  SourceFiles source;
  for (const MixRow& row : rows) {
    WYCH_TRY(const std::vector<std::string> paths, expand_path(row.path, data.mix + ": " + row.label));
    for (const std::string& path : paths) {
      WYCH_TRY(InstanceFile file, FileList(config, data.mix, row.label).open_one(path));
      source.train.push_back(std::move(file));
    }
  }
  return source;
}

Expected<OpenedData> open_lists(const config::Config& config) {
  const config::DataConfig& data = config.data;
  OpenedData opened;
  if (data.source.empty()) {
    SourceFiles source;
    if (data.mix.empty()) {
      WYCH_TRY(source.train, FileList(config, "data.paths").open(data.paths, data.label_masks));
    } else {
      WYCH_TRY(source, open_mix(config));
    }
    WYCH_TRY(source.valid,
             FileList(config, "data.valid_paths").open(data.valid_paths, data.valid_label_masks));
    opened.description = fmt::format("{} file{}", source.train.size(), source.train.size() == 1 ? "" : "s");
    opened.sources.push_back(std::move(source));
  } else {
    for (const auto& [name, entry] : data.source) {
      const std::string key = fmt::format("data.source.{}", name);
      const std::string& label = entry.label.empty() ? name : entry.label;
      SourceFiles source{.name = name, .train = {}, .valid = {}};
      if (entry.weight > 0) {
        WYCH_TRY(source.train, FileList(config, key + ".paths", label).open(entry.paths, entry.label_masks));
      }
      WYCH_TRY(
          source.valid,
          FileList(config, key + ".valid_paths", label).open(entry.valid_paths, entry.valid_label_masks));
      opened.sources.push_back(std::move(source));
    }
    opened.description = fmt::format("{} sources", opened.sources.size());
  }
  opened.tokenizer = data.tokenizer;
  Hasher hasher;
  for (const SourceFiles& source : opened.sources) {
    for (const InstanceFile& file : source.train) {
      hasher.update(fmt::format("{} {} {} {:016x} {:016x}\n", token_type_name(file.tokens.type()),
                                file.tokens.num_tokens(), file.tokens.columns(), file.tokens.sample_hash(),
                                file.label_mask ? file.label_mask->sample_hash() : 0));
    }
  }
  opened.fingerprint = hasher.digest();
  return opened;
}

// Fills the end-of-text id from the configuration, else from the tokenizer, and checks both.
Expected<void> settle_tokenizer(const config::Config& config, OpenedData& data) {
  const i64 vocab_size = config.model.vocab_size;
  const bool folder = !config.data.dir.empty();
  if (!data.tokenizer.empty()) {
    WYCH_TRY(const Tokenizer tokenizer, Tokenizer::load(data.tokenizer));
    if (folder && tokenizer.vocab_size() != data.vocab_size) {
      return Error{ErrorKind::kData,
                   data.tokenizer,
                   fmt::format("has {} tokens; {} was made with one of {}", tokenizer.vocab_size(),
                               config.data.dir, data.vocab_size),
                   "put the tokenizer back that the data was made with, or make the data again",
                   {}};
    }
    if (tokenizer.vocab_size() > vocab_size) {
      return too_many_ids(data.tokenizer, tokenizer.vocab_size(), vocab_size);
    }
    data.vocab_size = tokenizer.vocab_size();
    data.eos_id = folder ? data.eos_id : tokenizer.eos_id();
  }
  if (config.data.eos_id >= 0) {
    data.eos_id = static_cast<i32>(std::min<i64>(config.data.eos_id, vocab_size));
  }
  if (data.eos_id < 0 || data.eos_id >= vocab_size) {
    return Error{ErrorKind::kUsage,
                 "data.eos_id",
                 data.eos_id < 0 ? fmt::format("{} names no end-of-text token", data.tokenizer)
                                 : fmt::format("is {}, outside the vocabulary of {}",
                                               std::max<i64>(config.data.eos_id, data.eos_id), vocab_size),
                 "set --data.eos_id to the id that ends a document",
                 {}};
  }
  return {};
}

}  // namespace

i64 OpenedData::train_tokens() const {
  i64 sum = 0;
  for (const SourceFiles& source : sources) {
    for (const InstanceFile& file : source.train) {
      sum += file.tokens.num_tokens();
    }
  }
  return sum;
}

Expected<OpenedData> open_data(const config::Config& config) {
  WYCH_TRY(OpenedData data, config.data.dir.empty() ? open_lists(config) : open_folder(config));
  WYCH_TRY_VOID(settle_tokenizer(config, data));
  return data;
}

Expected<std::vector<std::string>> expand_path(const std::string& path, std::string_view key) {
  if (path.find_first_of("*?[{") == std::string::npos) {
    return std::vector<std::string>{path};
  }
  struct Free {
    void operator()(glob_t* found) const { globfree(found); }
  };
  glob_t found = {};
  const int result = ::glob(path.c_str(), GLOB_BRACE, nullptr, &found);
  const std::unique_ptr<glob_t, Free> owner(&found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + (result == 0 ? found.gl_pathc : 0));
  std::sort(paths.begin(), paths.end());
  if (paths.empty()) {
    return Error{ErrorKind::kData,
                 std::string(key),
                 fmt::format("\"{}\" matches no file", path),
                 "check the path; patterns are relative to the folder wych was started in",
                 {}};
  }
  return paths;
}

Expected<std::vector<MixRow>> read_mix(const std::string& path, const std::string& root,
                                       const std::string& tokenizer) {
  WYCH_TRY(const std::string text, read_file(path, ErrorKind::kData));
  std::vector<MixRow> rows;
  i64 line_number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (line.empty() || line.front() == '#') {
      continue;
    }
    const std::size_t comma = line.find(',');
    MixRow row{line.substr(0, comma), comma == std::string::npos ? "" : line.substr(comma + 1)};
    const std::string where = fmt::format("{}:{}", path, line_number);
    if (row.label.empty() || row.path.empty()) {
      return Error{ErrorKind::kData, where, fmt::format("\"{}\"; expected label,path", line), "", {}};
    }
    for (std::size_t at = row.path.find(kTokenizerPlaceholder); at != std::string::npos;
         at = row.path.find(kTokenizerPlaceholder, at + tokenizer.size())) {
      if (tokenizer.empty()) {
        return Error{ErrorKind::kData, where, "names {TOKENIZER}", "say it with data.mix_tokenizer", {}};
      }
      row.path.replace(at, kTokenizerPlaceholder.size(), tokenizer);
    }
    row.path = root.empty() ? row.path : (std::filesystem::path(root) / row.path).string();
    rows.push_back(std::move(row));
  }
  if (rows.empty()) {
    return Error{ErrorKind::kData, path, "names no file", "a line is label,path", {}};
  }
  return rows;
}

}  // namespace wych::data
