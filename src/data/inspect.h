// What is in a data folder or a token file, for people, and what is wrong with it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/expected.h"
#include "base/types.h"
#include "data/token_file.h"
#include "data/tokenizer.h"

namespace wych::data {

// A text about a data folder: per file domain, split, documents, tokens, bytes per token; the beginning of
// each. Checks the hashes and every id on the way.
Expected<std::string> inspect_dataset(const std::string& folder);

struct InspectOptions {
  std::optional<TokenType> raw_type = {};  // of a file without a header; none: guessed if nothing tells
  i64 vocab_size = 0;                      // 0: the tokenizer's, or unknown
  i64 eos_id = -1;                         // -1: the tokenizer's, or unknown
  const Tokenizer* tokenizer = nullptr;    // shows the first tokens as text
};

struct Inspection {
  std::string text;                 // format, type, tokens, documents, largest id, beginning
  std::vector<std::string> faults;  // what was found and what to do; empty: nothing is wrong
};

// Reads all of a token file. Faults are what a file can be read with and still not be meant by: ids of a type
// twice or half as wide, ids outside the vocabulary, no end-of-text id among the first million tokens,
// nothing but zeros at the end, a sidecar that does not fit. Errors (kData): what cannot be read at all.
Expected<Inspection> inspect_token_file(const std::string& path, const InspectOptions& options);

}  // namespace wych::data
