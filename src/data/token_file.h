// Token files as OLMo-core and Dolma write them: a raw little-endian array of u16 or u32 ids, no header,
// every document ended by the end-of-text id. The width is not in the file: it comes from dataset.h or from
// the vocabulary. Mapped, never read whole; ids are checked as they are read.
#pragma once

#include <span>
#include <string>

#include "base/expected.h"
#include "base/file.h"
#include "base/types.h"

namespace wych::data {

// The value is the bytes of one id.
enum class TokenType : u8 { kU16 = 2, kU32 = 4 };

constexpr i64 token_bytes(TokenType type) { return static_cast<i64>(type); }
// "u16", "u32".
std::string_view token_type_name(TokenType type);
// The smallest type that holds ids below `vocab_size`, as OLMo-core chooses where nothing is said.
constexpr TokenType token_type_for(i64 vocab_size) {
  return vocab_size <= (i64{1} << 16U) ? TokenType::kU16 : TokenType::kU32;
}

// A mapped token file; move-only. Errors are kData and name the file.
class TokenFile {
 public:
  // Refused: a missing or empty file, a size that is not a multiple of the id's, a NumPy header.
  static Expected<TokenFile> open(const std::string& path, TokenType type);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] TokenType type() const { return type_; }
  [[nodiscard]] i64 num_tokens() const { return static_cast<i64>(file_.bytes().size()) / token_bytes(type_); }
  // XXH3 of the content; reads all of it.
  [[nodiscard]] u64 hash() const;

  // Copies the ids [begin, begin + out.size()), a range within the file (CHECKed). An id >= vocab_size is an
  // Error with its position. Does not allocate unless it fails.
  Expected<void> read(i64 begin, i64 vocab_size, std::span<i32> out) const;

 private:
  MappedFile file_;
  std::string path_;
  TokenType type_ = TokenType::kU16;
};

// Creates or replaces `path`. Every id must fit the type (CHECKed). Returns the content's XXH3.
Expected<u64> write_token_file(const std::string& path, TokenType type, std::span<const i32> tokens);

}  // namespace wych::data
