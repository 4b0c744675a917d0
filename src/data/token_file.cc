// Ids are copied out with memcpy (a mapping promises bytes, not objects) and checked by one maximum a read,
// so that the check costs nothing beside the copy.
#include "data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/hash.h"

namespace wych::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::string_view kNumpyMagic = "\x93NUMPY";

// Copies `out.size()` ids of type T from `source` and returns the largest.
template <class T>
u32 copy_ids(const std::byte* source, std::span<i32> out) {
  u32 largest = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    T id;
    std::memcpy(&id, source + i * sizeof(T), sizeof(T));
    out[i] = static_cast<i32>(id);
    largest = std::max(largest, static_cast<u32>(id));
  }
  return largest;
}

template <class T>
std::vector<std::byte> to_bytes(std::span<const i32> tokens) {
  std::vector<std::byte> bytes(tokens.size() * sizeof(T));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    WYCH_CHECK(tokens[i] >= 0 && static_cast<u32>(tokens[i]) <= std::numeric_limits<T>::max(),
               "id {} does not fit {} bytes", tokens[i], sizeof(T));
    const T id = static_cast<T>(tokens[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &id, sizeof(T));
  }
  return bytes;
}

}  // namespace

std::string_view token_type_name(TokenType type) { return type == TokenType::kU16 ? "u16" : "u32"; }

Expected<TokenFile> TokenFile::open(const std::string& path, TokenType type) {
  TokenFile result;
  WYCH_TRY(result.file_, MappedFile::open(path, ErrorKind::kData));
  result.path_ = path;
  result.type_ = type;
  const std::span<const std::byte> bytes = result.file_.bytes();
  if (bytes.empty()) {
    return Error{ErrorKind::kData, path, "is empty", "leave it out, or prepare the data again", {}};
  }
  if (bytes.size() >= kNumpyMagic.size() &&
      std::memcmp(bytes.data(), kNumpyMagic.data(), kNumpyMagic.size()) == 0) {
    return Error{ErrorKind::kData,
                 path,
                 "has a NumPy header; expected raw ids without one",
                 "write the array with tofile(), as OLMo-core does",
                 {}};
  }
  if (static_cast<i64>(bytes.size()) % token_bytes(type) != 0) {
    return Error{ErrorKind::kData,
                 path,
                 fmt::format("has {} bytes, not a multiple of {} ({} ids)", bytes.size(), token_bytes(type),
                             token_type_name(type)),
                 "the file is cut short, or its ids are of another type",
                 {}};
  }
  return result;
}

u64 TokenFile::hash() const { return hash_bytes(file_.bytes()); }

Expected<void> TokenFile::read(i64 begin, i64 vocab_size, std::span<i32> out) const {
  WYCH_CHECK(begin >= 0 && begin + static_cast<i64>(out.size()) <= num_tokens(), "{}: tokens [{}, {}) of {}",
             path_, begin, begin + static_cast<i64>(out.size()), num_tokens());
  const std::byte* source = file_.bytes().data() + begin * token_bytes(type_);
  const u32 largest = type_ == TokenType::kU16 ? copy_ids<u16>(source, out) : copy_ids<u32>(source, out);
  if (static_cast<i64>(largest) < vocab_size || out.empty()) {
    return {};
  }
  const auto bad = std::find_if(out.begin(), out.end(),
                                [&](i32 id) { return static_cast<i64>(static_cast<u32>(id)) >= vocab_size; });
  return Error{ErrorKind::kData,
               path_,
               fmt::format("token {} is {}, outside the vocabulary of {}", begin + (bad - out.begin()),
                           static_cast<u32>(*bad), vocab_size),
               fmt::format("was it written with another tokenizer, or not as {}?", token_type_name(type_)),
               {}};
}

Expected<u64> write_token_file(const std::string& path, TokenType type, std::span<const i32> tokens) {
  constexpr std::size_t kPiece = std::size_t{1} << 20U;  // ids converted at a time
  WYCH_TRY(FileWriter writer, FileWriter::create(path, ErrorKind::kData));
  Hasher hasher;
  for (std::size_t begin = 0; begin < tokens.size(); begin += kPiece) {
    const std::span<const i32> piece = tokens.subspan(begin, std::min(kPiece, tokens.size() - begin));
    const std::vector<std::byte> bytes =
        type == TokenType::kU16 ? to_bytes<u16>(piece) : to_bytes<u32>(piece);
    hasher.update(bytes);
    WYCH_TRY_VOID(writer.write(bytes));
  }
  WYCH_TRY_VOID(writer.sync());
  WYCH_TRY_VOID(writer.close());
  return hasher.digest();
}

}  // namespace wych::data
