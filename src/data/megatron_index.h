// The .idx of a Megatron pair: lengths and places of the sequences in the .bin, and which sequence begins a
// document. Mapped; only pairs whose sequences lie back to back are read, which is what Megatron's builders
// write.
#pragma once

#include <span>
#include <string>

#include "base/expected.h"
#include "base/file.h"
#include "base/types.h"
#include "data/token_format.h"

namespace wych::data {

class MegatronIndex {
 public:
  // Errors (kData): not an index, cut, another version, ids that are no integers, gaps between sequences.
  static Expected<MegatronIndex> open(const std::string& path);
  // Whether a file begins as an index does.
  static bool is_index(std::span<const std::byte> bytes);

  [[nodiscard]] TokenType type() const { return type_; }
  [[nodiscard]] i64 num_tokens() const { return num_tokens_; }
  [[nodiscard]] i64 num_documents() const { return num_documents_; }
  // The first token of document `index` in [0, num_documents()]; the last value is num_tokens().
  [[nodiscard]] i64 document_start(i64 index) const;

 private:
  [[nodiscard]] i64 word_at(i64 offset) const;  // an i64 of the file
  [[nodiscard]] i64 sequence_start(i64 sequence) const;

  MappedFile file_;
  TokenType type_ = TokenType::kI32;
  i64 num_sequences_ = 0;
  i64 num_documents_ = 0;
  i64 num_tokens_ = 0;
};

// The bytes of an index of documents that are one sequence each.
std::string megatron_index_bytes(TokenType type, std::span<const i32> document_lengths);
// The .idx knows the types u8, u16, i8, i16, i32 and i64.
bool megatron_holds(TokenType type);

}  // namespace wych::data
