// From installed packages to a folder a laptop can train on: text domains (corpus.h), a byte-pair tokenizer
// trained on their training part, token files and dataset.json (dataset.h). Deterministic; a few seconds on
// two cores.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "base/types.h"
#include "data/corpus.h"
#include "data/dataset.h"

namespace wych::data {

struct PrepareOptions {
  std::string folder;
  i64 vocab_size = 2048;  // end-of-text included; fewer if the text gives fewer merges
  std::vector<std::string> domains = {"bible", "jargon", "devil", "sources"};
  CorpusPlaces places;
  // A folder that was prepared from another recipe, or is damaged: prepare it anew instead of an Error.
  bool replace = false;
};

struct PrepareReport {
  Dataset dataset;
  bool reused = false;  // the folder was already there, complete and of the same recipe
};

// Writes per domain DOMAIN.train.npy and DOMAIN.valid.npy, tokenizer.json and dataset.json. Held out are 5 %
// of a domain's documents (at least one of two or more), those with the smallest hashes of domain and index;
// the tokenizer never sees them. The folder appears as a whole by a rename, or not at all. A folder of the
// same recipe (domains, vocabulary, version of this code's recipe) is kept as it is, even if the texts have
// changed since: a run that resumes finds its data. Errors: kUsage for options, kData for texts and files;
// a folder that holds anything but a dataset is never touched.
// `progress` is called on this thread with lines for people.
Expected<PrepareReport> prepare_laptop_data(const PrepareOptions& options, ThreadPool& pool,
                                            FunctionRef<void(std::string_view)> progress);

}  // namespace wych::data
