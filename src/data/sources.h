// What the [data] section of a configuration names, opened: a data folder, lists of files, an OLMo mix file,
// or a mixture of named sources. The same configuration and files always give the same list.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "base/types.h"
#include "config/config.h"
#include "data/instances.h"

namespace wych::data {

// A part of the data with a share of its own. One that is not a mixture's has everything in one part.
struct SourceFiles {
  std::string name;  // of the source; empty: the run's only part
  std::vector<InstanceFile> train;
  std::vector<InstanceFile> valid;
};

struct OpenedData {
  std::string description;  // "data/laptop", "17 files", "3 sources": for people
  std::vector<SourceFiles> sources;
  std::string tokenizer;  // path; empty: none is named
  i64 vocab_size = 0;     // ids are below it, as far as the data says itself; 0: it does not
  i32 eos_id = 0;
  // Identifies the training files in their order, by content (a data folder) or by size and samples of
  // the content (other files and label masks): a run that resumes must find the same value.
  u64 fingerprint = 0;

  [[nodiscard]] i64 train_tokens() const;
};

// Ids of files without a header are read as config.data.dtype says, else as the smallest type for
// config.model.vocab_size. Errors (kData): a missing file or a pattern without a match names the key it
// came from; a data folder or tokenizer that does not fit the model (kUsage) says what would.
Expected<OpenedData> open_data(const config::Config& config);

// The files that a path or pattern (* ? [] {}) names, in order of names. None is an Error that begins with
// `key`.
Expected<std::vector<std::string>> expand_path(const std::string& path, std::string_view key);

// The rows of a mix file: label and path, {TOKENIZER} replaced, `root` put in front. Empty lines and those
// that begin with # are left out.
struct MixRow {
  std::string label;
  std::string path;
};
Expected<std::vector<MixRow>> read_mix(const std::string& path, const std::string& root,
                                       const std::string& tokenizer);

}  // namespace wych::data
