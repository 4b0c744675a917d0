// Ids are copied out with memcpy (a mapping promises bytes, not objects) and checked by one maximum a read,
// so that the check costs nothing beside the copy.
#include "data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"

namespace wych::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

// Calls body(T{}) with the C++ type of the ids.
template <class Body>
auto with_type(TokenType type, Body body) {
  switch (type) {
    case TokenType::kU8:
      return body(u8{});
    case TokenType::kU16:
      return body(u16{});
    case TokenType::kU32:
      return body(u32{});
    case TokenType::kU64:
      return body(u64{});
    case TokenType::kI8:
      return body(std::int8_t{});
    case TokenType::kI16:
      return body(std::int16_t{});
    case TokenType::kI32:
      return body(i32{});
    case TokenType::kI64:
      break;
  }
  return body(i64{});
}

// Copies ids of type T into `out` and returns the largest; a negative one is the largest of all.
template <class T, class Out>
u64 copy_ids(const std::byte* source, std::span<Out> out) {
  // The narrow comparison vectorises.
  using Wide = std::conditional_t<std::is_unsigned_v<T> && sizeof(T) <= 4, u32, u64>;
  Wide largest = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    T id;
    std::memcpy(&id, source + i * sizeof(T), sizeof(T));
    // Of a negative id: above 2^63. An i8 is widened first, which says that its sign is meant to be kept.
    const Wide wide = static_cast<Wide>(static_cast<std::conditional_t<std::is_signed_v<T>, i64, T>>(id));
    out[i] = static_cast<Out>(wide);
    largest = std::max(largest, wide);
  }
  return largest;
}

std::vector<std::byte> to_bytes(TokenType type, std::span<const i32> tokens) {
  std::vector<std::byte> bytes(tokens.size() * static_cast<std::size_t>(token_bytes(type)));
  const i64 largest = largest_id(type);
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      WYCH_CHECK(tokens[i] >= 0 && tokens[i] <= largest, "id {} does not fit {}", tokens[i],
                 token_type_name(type));
      const T id = static_cast<T>(tokens[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &id, sizeof(T));
    }
  });
  return bytes;
}

bool begins_as_index(const std::string& path) {
  std::error_code failure;
  if (!std::filesystem::is_regular_file(path, failure)) {
    return false;
  }
  const Expected<MappedFile> file = MappedFile::open(path, ErrorKind::kData);
  return file && MegatronIndex::is_index(file->bytes());
}

// The common prefix of the Megatron pair that `path` names; empty if it names none.
std::string megatron_prefix(const std::string& path) {
  std::error_code failure;
  const bool has_suffix = path.ends_with(".idx") || path.ends_with(".bin");
  std::string prefix = has_suffix ? path.substr(0, path.size() - 4) : path;
  if (path.ends_with(".idx")) {
    return prefix;
  }
  const bool wanted = path.ends_with(".bin") || !std::filesystem::exists(path, failure);
  return wanted && begins_as_index(prefix + ".idx") ? prefix : "";
}

}  // namespace

u64 sample_hash(std::span<const std::byte> bytes) {
  constexpr std::size_t kSample = std::size_t{1} << 16U;
  const std::size_t length = std::min(kSample, bytes.size());
  Hasher hasher;
  hasher.update(fmt::format("{}", bytes.size()));
  hasher.update(bytes.first(length));
  hasher.update(bytes.subspan((bytes.size() - length) / 2, length));
  hasher.update(bytes.last(length));
  return hasher.digest();
}

Expected<TokenFile> TokenFile::open(const std::string& path, std::optional<TokenType> raw_type,
                                    i64 vocab_size) {
  TokenFile result;
  result.path_ = path;
  const std::string prefix = megatron_prefix(path);
  if (prefix.empty()) {
    WYCH_TRY(result.file_, MappedFile::open(path, ErrorKind::kData));
    WYCH_TRY(result.layout_, detect_layout(path, result.file_.bytes(), raw_type, vocab_size));
    return result;
  }
  WYCH_TRY(MegatronIndex index, MegatronIndex::open(prefix + ".idx"));
  WYCH_TRY(result.file_, MappedFile::open(prefix + ".bin", ErrorKind::kData));
  result.layout_ = {.format = TokenFormat::kMegatron, .type = index.type(), .num_tokens = index.num_tokens()};
  const auto size = static_cast<i64>(result.file_.bytes().size());
  if (size != index.num_tokens() * token_bytes(index.type()) || size == 0) {
    return Error{ErrorKind::kData,
                 prefix + ".bin",
                 fmt::format("has {} bytes; its index says {} ids of {}", size, index.num_tokens(),
                             token_type_name(index.type())),
                 "the two files are not of one pair, or one is cut short: copy or write both again",
                 {}};
  }
  result.index_ = std::move(index);
  return result;
}

u64 TokenFile::hash() const { return hash_bytes(file_.bytes()); }

const std::byte* TokenFile::at(i64 token, std::size_t count) const {
  WYCH_CHECK(token >= 0 && token + static_cast<i64>(count) <= num_tokens(), "{}: tokens [{}, {}) of {}",
             path_, token, token + static_cast<i64>(count), num_tokens());
  return file_.bytes().data() + layout_.offset + token * token_bytes(type());
}

Expected<void> TokenFile::read(i64 begin, i64 vocab_size, std::span<i32> out) const {
  const std::byte* source = at(begin, out.size());
  const u64 largest = with_type(type(), [&](auto zero) { return copy_ids<decltype(zero)>(source, out); });
  if (largest < static_cast<u64>(vocab_size) || out.empty()) {
    return {};
  }
  std::vector<u64> ids(out.size());
  read_unchecked(begin, ids);
  const auto bad =
      std::find_if(ids.begin(), ids.end(), [&](u64 id) { return id >= static_cast<u64>(vocab_size); });
  return Error{
      ErrorKind::kData,
      path_,
      is_signed(type()) && static_cast<i64>(*bad) < 0
          ? fmt::format("token {} is {}, a negative number", begin + (bad - ids.begin()),
                        static_cast<i64>(*bad))
          : fmt::format("token {} is {}, outside the vocabulary of {}", begin + (bad - ids.begin()), *bad,
                        vocab_size),
      fmt::format("was it written with another tokenizer, or not as {}? `wych data inspect` looks closer",
                  token_type_name(type())),
      {}};
}

void TokenFile::read_unchecked(i64 begin, std::span<u64> out) const {
  const std::byte* source = at(begin, out.size());
  with_type(type(), [&](auto zero) { return copy_ids<decltype(zero)>(source, out); });
}

Expected<TokenWriter> TokenWriter::create(const std::string& path, TokenType type, std::string_view header) {
  TokenWriter writer;
  WYCH_TRY(writer.file_, FileWriter::create(path, ErrorKind::kData));
  writer.type_ = type;
  if (!header.empty()) {
    writer.hasher_.update(header);
    WYCH_TRY_VOID(writer.file_.write(header));
  }
  return writer;
}

Expected<void> TokenWriter::append(std::span<const i32> tokens) {
  constexpr std::size_t kPiece = std::size_t{1} << 20U;  // ids converted at a time
  for (std::size_t begin = 0; begin < tokens.size(); begin += kPiece) {
    const std::vector<std::byte> bytes =
        to_bytes(type_, tokens.subspan(begin, std::min(kPiece, tokens.size() - begin)));
    hasher_.update(bytes);
    WYCH_TRY_VOID(file_.write(bytes));
  }
  num_tokens_ += static_cast<i64>(tokens.size());
  return {};
}

Expected<u64> TokenWriter::finish() {
  WYCH_TRY_VOID(file_.sync());
  WYCH_TRY_VOID(file_.close());
  return hasher_.digest();
}

Expected<u64> write_token_file(const std::string& path, TokenType type, std::span<const i32> tokens) {
  WYCH_TRY(TokenWriter writer, TokenWriter::create(path, type));
  WYCH_TRY_VOID(writer.append(tokens));
  return writer.finish();
}

}  // namespace wych::data
