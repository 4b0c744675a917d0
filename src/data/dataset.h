// A data folder: token files, the tokenizer they were made with, and dataset.json, which says what token
// files alone cannot: the type of the ids, the domain and split of each file, the bytes of text behind it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "base/types.h"
#include "data/instances.h"
#include "data/token_file.h"
#include "data/tokenizer.h"

namespace wych::data {

enum class Split : u8 { kTrain, kValid };
// "train", "valid".
std::string_view split_name(Split split);

struct DatasetFile {
  std::string file;  // name within the folder
  std::string domain;
  Split split = Split::kTrain;
  i64 tokens = 0;  // one end-of-text a document included
  i64 documents = 0;
  i64 text_bytes = 0;  // of the documents before encoding
  u64 xxh3 = 0;        // of the file
};

struct DatasetDomain {
  std::string name;
  std::string licence;
};

struct Dataset {
  std::string folder;
  std::string recipe;  // what it was prepared from and how; equal recipes need not be prepared again
  TokenType type = TokenType::kU16;
  i64 vocab_size = 0;
  i32 eos_id = 0;
  std::string tokenizer;  // file name within the folder
  std::vector<DatasetDomain> domains;
  std::vector<DatasetFile> files;

  // Identifies content and order of the files of a split: a run that resumes must find the same value.
  [[nodiscard]] u64 fingerprint(Split split) const;
  // Sums over the files of a split, of one domain unless `domain` is empty.
  [[nodiscard]] i64 num_tokens(Split split, std::string_view domain = {}) const;
  [[nodiscard]] i64 text_bytes(Split split, std::string_view domain = {}) const;
};

// "a/b" of "a/./b/".
std::string plain_folder_name(const std::string& folder);

inline constexpr std::string_view kDatasetFileName = "dataset.json";
inline constexpr std::string_view kTokenizerFileName = "tokenizer.json";

// Writes FOLDER/tokenizer.json, and tokenizer_config.json, which names its end-of-text token: what is loaded
// from there is the same tokenizer.
Expected<void> save_tokenizer(const Tokenizer& tokenizer, const std::string& folder);

// Reads FOLDER/dataset.json. Errors (kData): missing, damaged, of another format version, out of range.
Expected<Dataset> load_dataset(const std::string& folder);
// Writes dataset.folder/dataset.json, atomically.
Expected<void> save_dataset(const Dataset& dataset);

// Opens one of the dataset's files. One whose length differs from dataset.json's is an Error. `verify`
// compares the hash too, which reads everything.
Expected<TokenFile> open_file(const Dataset& dataset, const DatasetFile& entry, bool verify = false);

// Opens the token files of a split in the dataset's order, of one domain unless `domain` is empty; to have
// none is an Error.
Expected<std::vector<InstanceFile>> open_split(const Dataset& dataset, Split split,
                                               std::string_view domain = {}, bool verify = false);

// Bits per byte of text from a mean loss in nats per target:
//   (nats_per_target / ln 2) * tokens / text_bytes,
// where tokens and text_bytes are of the whole held-out text. Targets count end-of-text ids, which stand for
// no byte, as tokens do; so tokenizers of any vocabulary compare.
double bits_per_byte(double nats_per_target, i64 tokens, i64 text_bytes);

}  // namespace wych::data
