// The data of a run: order, held-out text and tokenizer, ready to read, with the sizes people want to see.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/expected.h"
#include "config/config.h"
#include "data/sampler.h"
#include "data/tokenizer.h"

namespace wych::train {

struct RunData {
  std::string description;          // "data/laptop: 2.21 M training tokens, vocabulary 2048"
  std::vector<std::string> shares;  // of a mixture: a line per source, exact counts
  data::Sampler sampler;
  std::optional<data::EvalReader> valid;  // none: there is no held-out text
  std::optional<data::Tokenizer> tokenizer;
  // What the order of training instances is a function of, but for the batch size.
  u64 fingerprint = 0;
};

// Errors: data::open_data's; too little data for a batch; a source that cannot give its share; samples asked
// for without a tokenizer (kUsage). Packing reads all training files here.
Expected<RunData> open_run_data(const config::Config& config, i64 evaluation_sequences);

}  // namespace wych::train
