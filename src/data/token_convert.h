// A token file in another format.
#pragma once

#include <string>

#include "base/expected.h"
#include "base/types.h"
#include "data/token_file.h"

namespace wych::data {

struct ConvertOptions {
  TokenFormat format = TokenFormat::kRaw;  // all but kLlmq
  TokenType type = TokenType::kU16;
  i64 vocab_size = 0;  // ids at or above are an Error; 0: any that fits the type
  i32 eos_id = -1;     // ends documents, for Megatron's index, where `from` has no index or sidecar
};

// Writes `path`, or PATH.bin and PATH.idx of a Megatron pair (the .idx last), under other names first and
// then renamed. Streams: memory does not grow with the file, but for 16 bytes a document of a Megatron pair.
// Errors: kUsage for a type that the format does not hold, 2^31 tokens or more for llm.c, no way to find
// documents; kData for ids and files.
Expected<void> convert_token_file(const TokenFile& from, const std::string& path,
                                  const ConvertOptions& options);

}  // namespace wych::data
