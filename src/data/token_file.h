// Token files of every format (token_format.h): mapped, never read whole; ids are checked as they are read.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/expected.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/types.h"
#include "data/megatron_index.h"
#include "data/token_format.h"

namespace wych::data {

// XXH3 of the size and of the first, middle and last 64 KiB: tells contents apart without reading them.
u64 sample_hash(std::span<const std::byte> bytes);

// A mapped token file; move-only. Errors are kData and name the file.
class TokenFile {
 public:
  // `path` is the file; of a Megatron pair either file or their common prefix. `raw_type` and `vocab_size`
  // (0: unknown) matter for files without a header only: detect_layout says how.
  static Expected<TokenFile> open(const std::string& path, std::optional<TokenType> raw_type = {},
                                  i64 vocab_size = 0);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] TokenFormat format() const { return layout_.format; }
  [[nodiscard]] TokenType type() const { return layout_.type; }
  [[nodiscard]] i64 num_tokens() const { return layout_.num_tokens; }
  // Ids of a row of a two-dimensional file; 0 if it has one dimension.
  [[nodiscard]] i64 columns() const { return layout_.columns; }
  // As the header says; 0: it does not.
  [[nodiscard]] i64 vocab_size() const { return layout_.vocab_size; }
  // Where documents begin, where the format says so (Megatron); else nullptr.
  [[nodiscard]] const MegatronIndex* index() const { return index_ ? &*index_ : nullptr; }

  // XXH3 of the file; reads all of it.
  [[nodiscard]] u64 hash() const;
  [[nodiscard]] u64 sample_hash() const { return data::sample_hash(file_.bytes()); }

  // Copies the ids [begin, begin + out.size()), a range within the file (CHECKed). A negative id or one >=
  // vocab_size is an Error with its position. Does not allocate unless it fails.
  Expected<void> read(i64 begin, i64 vocab_size, std::span<i32> out) const;
  // The same unchecked; a negative id comes out above 2^63.
  void read_unchecked(i64 begin, std::span<u64> out) const;

 private:
  [[nodiscard]] const std::byte* at(i64 token, std::size_t count) const;

  MappedFile file_;
  std::string path_;
  TokenLayout layout_;
  std::optional<MegatronIndex> index_;
};

// A raw token file being written from front to back. Move-only.
class TokenWriter {
 public:
  // Creates or replaces `path`; `header` goes in front of the ids.
  static Expected<TokenWriter> create(const std::string& path, TokenType type, std::string_view header = {});
  // Every id must fit the type (CHECKed).
  Expected<void> append(std::span<const i32> tokens);
  [[nodiscard]] i64 num_tokens() const { return num_tokens_; }
  // Makes the content durable; returns its XXH3. Nothing may follow.
  Expected<u64> finish();

 private:
  FileWriter file_;
  Hasher hasher_;
  TokenType type_ = TokenType::kU16;
  i64 num_tokens_ = 0;
};

// A whole raw file at once. Returns the content's XXH3.
Expected<u64> write_token_file(const std::string& path, TokenType type, std::span<const i32> tokens);

}  // namespace wych::data
