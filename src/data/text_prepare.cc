// The steps, in order: load domains, hold documents out, train the tokenizer, encode and write, describe,
// rename. Whatever fails before the rename leaves nothing behind.
#include "data/text_prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/staged_folder.h"
#include "data/bpe_trainer.h"
#include "data/tokenizer.h"

namespace wych::data {
namespace {

namespace fs = std::filesystem;

constexpr i64 kRecipeVersion = 1;  // raise it when the same options begin to give other files
constexpr std::size_t kHeldOutPercent = 5;
constexpr std::string_view kTokenizerFile = "tokenizer.json";

std::string recipe_of(const PrepareOptions& options) {
  std::string domains;
  for (const std::string& domain : options.domains) {
    domains += domains.empty() ? domain : "," + domain;
  }
  return fmt::format("laptop {}: domains {}; vocabulary {}; {} % held out", kRecipeVersion, domains,
                     options.vocab_size, kHeldOutPercent);
}

Expected<void> check_options(const PrepareOptions& options) {
  constexpr i64 kMinVocabulary = 257;
  constexpr i64 kMaxVocabulary = 1 << 20U;
  if (options.folder.empty()) {
    return Error{ErrorKind::kUsage, "data prepare", "no folder is given", "say where with --out DIR", {}};
  }
  if (options.vocab_size < kMinVocabulary || options.vocab_size > kMaxVocabulary) {
    return Error{ErrorKind::kUsage,
                 "data prepare: vocabulary",
                 fmt::format("is {}; expected {} to {}", options.vocab_size, kMinVocabulary, kMaxVocabulary),
                 "2048 suits a laptop",
                 {}};
  }
  for (std::size_t i = 0; i < options.domains.size(); ++i) {
    if (std::find(options.domains.begin(), options.domains.begin() + static_cast<std::ptrdiff_t>(i),
                  options.domains[i]) != options.domains.begin() + static_cast<std::ptrdiff_t>(i)) {
      return Error{ErrorKind::kUsage,
                   "data prepare: domains",
                   fmt::format("\"{}\" is named twice", options.domains[i]),
                   "name each once",
                   {}};
    }
  }
  if (options.domains.empty()) {
    return Error{ErrorKind::kUsage,
                 "data prepare: domains",
                 "none is named",
                 fmt::format("choose from {}", known_domains()),
                 {}};
  }
  return {};
}

// Whether each document is held out.
std::vector<bool> choose_held_out(const Domain& domain) {
  const std::size_t count = domain.documents.size();
  const std::size_t wanted = count < 2 ? 0 : std::max<std::size_t>(1, (count * kHeldOutPercent + 50) / 100);
  std::vector<std::pair<u64, std::size_t>> order(count);
  for (std::size_t i = 0; i < count; ++i) {
    order[i] = {hash_bytes(fmt::format("{}/{}", domain.name, i)), i};
  }
  std::sort(order.begin(), order.end());
  std::vector<bool> held_out(count, false);
  for (std::size_t i = 0; i < wanted; ++i) {
    held_out[order[i].second] = true;
  }
  return held_out;
}

struct SplitDomain {
  Domain domain;
  std::vector<bool> held_out;
};

Tokenizer train_tokenizer(const std::vector<SplitDomain>& domains, i64 vocab_size) {
  std::vector<std::string_view> texts;
  for (const SplitDomain& part : domains) {
    for (std::size_t i = 0; i < part.held_out.size(); ++i) {
      if (!part.held_out[i]) {
        texts.push_back(part.domain.documents[i]);
      }
    }
  }
  return train_bpe(texts, vocab_size);
}

// Writes the token files of one domain and lists them in `dataset`.
Expected<void> write_domain(const SplitDomain& part, const Tokenizer& tokenizer, ThreadPool& pool,
                            Dataset& dataset) {
  const std::vector<std::vector<i32>> encoded = tokenizer.encode_all(part.domain.documents, pool);
  for (const Split split : {Split::kTrain, Split::kValid}) {
    DatasetFile file;
    file.file = fmt::format("{}.{}.npy", part.domain.name, split_name(split));
    file.domain = part.domain.name;
    file.split = split;
    std::vector<i32> tokens;
    for (std::size_t i = 0; i < encoded.size(); ++i) {
      if (part.held_out[i] == (split == Split::kValid)) {
        tokens.insert(tokens.end(), encoded[i].begin(), encoded[i].end());
        tokens.push_back(tokenizer.eos_id());
        ++file.documents;
        file.text_bytes += static_cast<i64>(part.domain.documents[i].size());
      }
    }
    if (tokens.empty()) {
      continue;
    }
    file.tokens = static_cast<i64>(tokens.size());
    WYCH_TRY(file.xxh3,
             write_token_file(fmt::format("{}/{}", dataset.folder, file.file), dataset.type, tokens));
    dataset.files.push_back(std::move(file));
  }
  dataset.domains.push_back({part.domain.name, part.domain.licence});
  return {};
}

// Everything into the existing folder `folder`.
Expected<Dataset> build(const PrepareOptions& options, const std::string& folder, ThreadPool& pool,
                        FunctionRef<void(std::string_view)> progress) {
  std::vector<SplitDomain> domains;
  for (const std::string& name : options.domains) {
    WYCH_TRY(Domain domain, load_domain(name, options.places));
    std::size_t bytes = 0;
    for (const std::string& document : domain.documents) {
      bytes += document.size();
    }
    progress(fmt::format("{}: {} documents, {:.2f} MB", name, domain.documents.size(),
                         static_cast<double>(bytes) * 1e-6));
    std::vector<bool> held_out = choose_held_out(domain);
    domains.push_back({std::move(domain), std::move(held_out)});
  }
  const Tokenizer tokenizer = train_tokenizer(domains, options.vocab_size);
  progress(fmt::format("tokenizer: {} tokens", tokenizer.vocab_size()));
  WYCH_TRY_VOID(
      write_file_atomic(fmt::format("{}/{}", folder, kTokenizerFile), tokenizer.to_json(), ErrorKind::kData));
  Dataset dataset;
  dataset.folder = folder;
  dataset.recipe = recipe_of(options);
  dataset.type = token_type_for(tokenizer.vocab_size());
  dataset.vocab_size = tokenizer.vocab_size();
  dataset.eos_id = tokenizer.eos_id();
  dataset.tokenizer = kTokenizerFile;
  for (const SplitDomain& part : domains) {
    WYCH_TRY_VOID(write_domain(part, tokenizer, pool, dataset));
  }
  WYCH_TRY_VOID(save_dataset(dataset));
  progress(fmt::format("{} training and {} held-out tokens", dataset.num_tokens(Split::kTrain),
                       dataset.num_tokens(Split::kValid)));
  return dataset;
}

// The dataset in `folder` if it is complete: description, tokenizer and all token files.
Expected<Dataset> load_complete(const std::string& folder) {
  WYCH_TRY(Dataset dataset, load_dataset(folder));
  WYCH_TRY(const Tokenizer tokenizer, Tokenizer::load(fmt::format("{}/{}", folder, dataset.tokenizer)));
  if (tokenizer.vocab_size() != dataset.vocab_size || tokenizer.eos_id() != dataset.eos_id) {
    return Error{ErrorKind::kData,
                 fmt::format("{}/{}", folder, dataset.tokenizer),
                 "is not the tokenizer of this dataset",
                 "prepare the data again",
                 {}};
  }
  for (const DatasetFile& file : dataset.files) {
    if (Expected<TokenFile> opened = open_file(dataset, file); !opened) {
      return std::move(opened).error();
    }
  }
  return dataset;
}

// What is in the way at the target: the finished dataset, nothing, or an Error.
Expected<std::optional<Dataset>> find_existing(const PrepareOptions& options, const std::string& folder) {
  std::error_code failure;
  if (!fs::exists(folder, failure) || (fs::is_directory(folder, failure) && fs::is_empty(folder, failure))) {
    return std::optional<Dataset>();
  }
  if (!fs::exists(fmt::format("{}/{}", folder, kDatasetFileName), failure)) {
    return Error{ErrorKind::kUsage, folder, "exists and is not a dataset", "choose another folder", {}};
  }
  Expected<Dataset> dataset = load_complete(folder);
  if (dataset && dataset->recipe == recipe_of(options)) {
    return std::optional<Dataset>(std::move(dataset).value());
  }
  if (options.replace) {
    return std::optional<Dataset>();
  }
  if (!dataset) {
    return std::move(dataset).error();
  }
  return Error{ErrorKind::kUsage,
               folder,
               fmt::format("was prepared as \"{}\"; now wanted \"{}\"", dataset->recipe, recipe_of(options)),
               "choose another folder, or say that it may be replaced",
               {}};
}

}  // namespace

Expected<PrepareReport> prepare_laptop_data(const PrepareOptions& options, ThreadPool& pool,
                                            FunctionRef<void(std::string_view)> progress) {
  WYCH_TRY_VOID(check_options(options));
  const std::string folder = plain_folder_name(options.folder);
  WYCH_TRY(std::optional<Dataset> existing, find_existing(options, folder));
  if (existing) {
    progress(fmt::format("{} is ready", folder));
    return PrepareReport{std::move(*existing), true};
  }
  std::error_code failure;
  fs::create_directories(fs::absolute(folder).parent_path(), failure);  // a failure shows in what follows
  WYCH_TRY(StagedFolder staged, StagedFolder::create(folder, ErrorKind::kData));
  WYCH_TRY(Dataset dataset, build(options, staged.path(), pool, progress));
  WYCH_TRY_VOID(staged.publish());
  dataset.folder = folder;
  return PrepareReport{std::move(dataset), false};
}

}  // namespace wych::data
