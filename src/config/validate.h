// Rules between keys: what the schema's per-key types and ranges cannot say. A combination that no code
// implements is refused here by name; nothing that passes is silently ignored or replaced.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/schema.h"

namespace wych::config {

enum class Purpose {
  kPlan,   // the model and its batch; no data, no length of the run
  kTrain,  // everything
};

// A broken rule. keys[0] is the key to change; a problem is dropped by the caller if one of its keys already
// has an error of its own.
struct Problem {
  std::vector<std::string_view> keys;
  std::string what;
  std::string hint;
};

// Fills what follows from other keys (run.dir, padded_vocab, n_kv_heads, batch_sequences from batch_tokens,
// parallel.dp from the number of ranks `world`; 0: as many as the config says) and notes it in `origins`.
// Leaves a key alone where the keys it follows from are invalid.
void resolve(Config& config, i64 world, Origins& origins);

// All broken rules of a resolved config.
[[nodiscard]] std::vector<Problem> validate(const Config& config, i64 world, Purpose purpose);

}  // namespace wych::config
