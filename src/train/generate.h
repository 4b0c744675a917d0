// Text from a model: prefill, then one token at a time from the key/value cache.
#pragma once

#include <string>
#include <string_view>

#include "base/expected.h"
#include "base/function_ref.h"
#include "config/config.h"
#include "data/tokenizer.h"
#include "train/engine.h"

namespace wych::train {

struct GenerateOptions {
  i64 max_new_tokens = 64;
  double temperature = 1.0;  // 0: always the most likely token
  u64 seed = 0;              // the same seed gives the same text
};

// Continues `prompt` (an empty one starts a document) and returns the continuation; `emit` receives it piece
// by piece, in whole UTF-8 characters. Ends at end-of-text, after max_new_tokens, or when the engine's cache
// is full. The engine must have generation programs. kUsage if the prompt leaves no room in the cache,
// kNonFinite if a logit is not a finite number.
Expected<std::string> generate(Engine& engine, const data::Tokenizer& tokenizer, std::string_view prompt,
                               const GenerateOptions& options, FunctionRef<void(std::string_view)> emit);

}  // namespace wych::train
