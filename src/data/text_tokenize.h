// Text files to a data folder to train on: token files, the tokenizer, dataset.json. Streams: memory does not
// grow with the text. What is written depends on the files and options alone, not on threads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/expected.h"
#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "base/types.h"
#include "data/dataset.h"
#include "data/text_reader.h"

namespace wych::data {

struct TokenizeOptions {
  std::vector<std::string> files;  // or patterns
  std::string tokenizer;           // tokenizer.json
  std::string folder;              // must not exist, or be empty
  TextOptions text = {};
  std::string domain = "text";
  std::optional<TokenType> type =
      {};           // u8 to u64; none: the smaller of u16 and u32 that holds the vocabulary
  i64 eos_id = -1;  // -1: the tokenizer's
  // Of every 1 / fraction documents one is held out, chosen by a hash; of plain text sections of about 32
  // KiB. 0: none.
  double valid_fraction = 0.0;
  i64 batch_bytes = i64{32} << 20U;  // of text encoded at a time: memory is about 6 times this
  i64 shard_tokens = i64{1} << 30U;  // a token file ends with the document that reaches this
};

struct TokenizeProgress {
  i64 bytes_read = 0;  // of the files, as they are
  i64 total_bytes = 0;
  i64 text_bytes = 0;  // encoded
  i64 tokens = 0;
};

struct TokenizeReport {
  Dataset dataset;
  i64 text_bytes = 0;
  i64 documents = 0;
  i64 empty = 0;    // documents without text, left out
  i64 invalid = 0;  // TextBatch::invalid
};

// Writes FOLDER as a whole or not at all; calls `progress` after every batch. Errors: kUsage for options,
// kData for files and text.
Expected<TokenizeReport> tokenize_text(const TokenizeOptions& options, ThreadPool& pool,
                                       FunctionRef<void(const TokenizeProgress&)> progress);

}  // namespace wych::data
