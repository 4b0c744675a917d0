// Headers, one function a format. Every size is checked against the file before it is used.
#include "data/token_format.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"

namespace wych::data {
namespace {

constexpr std::array<std::string_view, 8> kTypeNames = {"u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"};
constexpr std::array<std::string_view, 5> kFormatNames = {"raw", "numpy", "megatron", "llm.c", "llmq"};

constexpr std::string_view kNumpyMagic = "\x93NUMPY";
constexpr std::string_view kLlmqMagic = "BIN.TOK\n";
constexpr i32 kLlmCMagicU16 = 20240520;
constexpr i32 kLlmCMagicU32 = 20240801;
constexpr i32 kLlmCMagicEvaluation = 20240522;
constexpr i32 kLlmCVersionU16 = 1;
constexpr i32 kLlmCVersionU32 = 7;
constexpr i64 kWordHeaderBytes = 1024;  // 256 words: llm.c and LLMQ

Error fault(const std::string& path, std::string what, std::string hint) {
  return {ErrorKind::kData, path, std::move(what), std::move(hint), {}};
}

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

i32 word(std::span<const std::byte> bytes, std::size_t index) {
  i32 value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

// The ids must fill the file from the offset to its end.
Expected<TokenLayout> check_size(const std::string& path, std::size_t file_bytes, const TokenLayout& layout) {
  const i64 wanted = layout.offset + layout.num_tokens * token_bytes(layout.type);
  if (static_cast<i64>(file_bytes) != wanted) {
    return fault(path,
                 fmt::format("has {} bytes; its {} header says {} ids of {}, {} bytes in all", file_bytes,
                             token_format_name(layout.format), layout.num_tokens,
                             token_type_name(layout.type), wanted),
                 "the file is cut short or damaged: copy or write it again");
  }
  if (layout.num_tokens == 0) {
    return fault(path, "holds no ids", "leave it out, or prepare the data again");
  }
  return layout;
}

// What follows 'key': in the header's dictionary; empty if the key is not there.
std::string_view dictionary_value(std::string_view header, std::string_view key) {
  const std::size_t found = header.find(fmt::format("'{}':", key));
  if (found == std::string_view::npos) {
    return {};
  }
  std::string_view value = header.substr(found + key.size() + 3);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

// "(3,)", "(2, 3)": rows and columns, the latter 0 if there is one dimension. Nothing for anything else.
std::optional<std::pair<i64, i64>> parse_shape(std::string_view text) {
  if (text.empty() || text.front() != '(') {
    return std::nullopt;
  }
  std::array<i64, 2> extents = {0, 0};
  std::size_t count = 0;
  std::size_t at = 1;
  while (at < text.size() && text[at] != ')') {
    if (text[at] == ' ' || text[at] == ',') {
      ++at;
      continue;
    }
    if (count == extents.size()) {
      return std::nullopt;
    }
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), extents[count]);
    constexpr i64 kMaxExtent = i64{1} << 58U;
    if (error != std::errc() || extents[count] < 0 || extents[count] > kMaxExtent) {
      return std::nullopt;
    }
    at = static_cast<std::size_t>(end - text.data());
    ++count;
  }
  if (count == 0 || at >= text.size()) {
    return std::nullopt;
  }
  return std::pair(extents[0], count == 2 ? extents[1] : 0);
}

// "'<u2'" and the like: little-endian integers of 1 to 8 bytes.
std::optional<TokenType> parse_numpy_type(std::string_view descr) {
  for (unsigned index = 0; index < kTypeNames.size(); ++index) {
    const auto type = static_cast<TokenType>(index);
    const i64 bytes = token_bytes(type);
    const std::string name =
        fmt::format("{}{}{}", bytes == 1 ? '|' : '<', is_signed(type) ? 'i' : 'u', bytes);
    if (descr.starts_with(fmt::format("'{}'", name))) {
      return type;
    }
  }
  return std::nullopt;
}

Expected<TokenLayout> numpy_layout(const std::string& path, std::span<const std::byte> bytes) {
  const Error cut = fault(path, "is cut inside its NumPy header", "copy or write the file again");
  const std::size_t prefix = kNumpyMagic.size() + 2;
  if (bytes.size() < prefix + 4) {
    return cut;
  }
  const auto version = static_cast<unsigned>(bytes[kNumpyMagic.size()]);
  u32 length = 0;
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  std::memcpy(&length, bytes.data() + prefix, length_bytes);
  const std::size_t offset = prefix + length_bytes + length;
  if (version < 1 || version > 3) {
    return fault(path, fmt::format("has a NumPy header of version {}", version), "save it with numpy.save");
  }
  if (offset > bytes.size()) {
    return cut;
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + prefix + length_bytes, length);
  const std::string_view descr = dictionary_value(header, "descr");
  const std::optional<TokenType> type = parse_numpy_type(descr);
  if (!type) {
    return fault(path,
                 fmt::format("is a NumPy array of {}; expected little-endian integers",
                             descr.substr(0, descr.find(','))),
                 "save it as numpy.uint16 or numpy.uint32");
  }
  const std::string_view shape_text = dictionary_value(header, "shape");
  const auto shape = parse_shape(shape_text);
  if (!shape || (shape->second > 0 && shape->first > (i64{1} << 58U) / shape->second)) {
    return fault(path,
                 fmt::format("is a NumPy array of shape {}; expected one or two dimensions",
                             shape_text.substr(0, shape_text.find(')') + 1)),
                 "save one row of ids per instance, or all ids in one row");
  }
  const auto [rows, columns] = *shape;
  if (columns > 0 && rows > 1 && !dictionary_value(header, "fortran_order").starts_with("False")) {
    return fault(path, "is a NumPy array in Fortran order", "save numpy.ascontiguousarray of it");
  }
  return check_size(path, bytes.size(),
                    {.format = TokenFormat::kNumpy,
                     .type = *type,
                     .offset = static_cast<i64>(offset),
                     .num_tokens = columns > 0 ? rows * columns : rows,
                     .columns = columns});
}

Expected<TokenLayout> llm_c_layout(const std::string& path, std::span<const std::byte> bytes) {
  const bool wide = word(bytes, 0) == kLlmCMagicU32;
  return check_size(path, bytes.size(),
                    {.format = TokenFormat::kLlmC,
                     .type = wide ? TokenType::kU32 : TokenType::kU16,
                     .offset = kWordHeaderBytes,
                     .num_tokens = word(bytes, 2)});
}

// Whether the first two words are llm.c's. A magic alone could be two ids of a raw file.
bool is_llm_c(std::span<const std::byte> bytes, i32 magic, i32 version) {
  return static_cast<i64>(bytes.size()) >= kWordHeaderBytes && word(bytes, 0) == magic &&
         word(bytes, 1) == version && word(bytes, 2) >= 0;
}

Expected<TokenLayout> llmq_layout(const std::string& path, std::span<const std::byte> bytes) {
  if (static_cast<i64>(bytes.size()) < kWordHeaderBytes) {
    return fault(path, "is cut inside its LLMQ header", "copy or write the file again");
  }
  const i32 version = word(bytes, 2);
  const i32 id_bytes = word(bytes, 3);
  const bool has_masks = version >= 2 && word(bytes, 6) != 0;
  if (version < 1 || version > 2 || id_bytes != 4 || has_masks || word(bytes, 4) < 0) {
    return fault(path,
                 fmt::format("is an LLMQ file of version {} with ids of {} bytes{}; expected version 1 or 2, "
                             "4 bytes and no masks",
                             version, id_bytes, has_masks ? " and masks" : ""),
                 "write it without masks, and give a label-mask file of one byte a token");
  }
  return check_size(path, bytes.size(),
                    {.format = TokenFormat::kLlmq,
                     .type = TokenType::kI32,
                     .offset = kWordHeaderBytes,
                     .num_tokens = word(bytes, 4),
                     .vocab_size = version == 2 ? word(bytes, 5) : 0});
}

Expected<TokenLayout> raw_layout(const std::string& path, std::size_t file_bytes,
                                 std::optional<TokenType> type, i64 vocab_size) {
  if (!type && vocab_size > 0) {
    type = token_type_for(vocab_size);
  } else if (!type && path.ends_with(".bin")) {
    type = TokenType::kU16;
  } else if (!type) {
    return fault(path, "has no header that tells the type of its ids", "say it: u8, u16, u32 or u64");
  }
  if (static_cast<i64>(file_bytes) % token_bytes(*type) != 0) {
    return fault(path,
                 fmt::format("has {} bytes, not a multiple of {} ({} ids)", file_bytes, token_bytes(*type),
                             token_type_name(*type)),
                 "the file is cut short, or its ids are of another type");
  }
  return TokenLayout{.type = *type, .num_tokens = static_cast<i64>(file_bytes) / token_bytes(*type)};
}

}  // namespace

std::string_view token_type_name(TokenType type) { return kTypeNames[static_cast<std::size_t>(type)]; }

std::optional<TokenType> token_type_from_name(std::string_view name) {
  for (std::size_t index = 0; index < kTypeNames.size(); ++index) {
    if (kTypeNames[index] == name) {
      return static_cast<TokenType>(index);
    }
  }
  return std::nullopt;
}

i64 largest_id(TokenType type) {
  const i64 bits = 8 * token_bytes(type) - (is_signed(type) ? 1 : 0);
  return bits >= 31 ? i64{std::numeric_limits<i32>::max()} : (i64{1} << bits) - 1;
}

std::string_view token_format_name(TokenFormat format) {
  return kFormatNames[static_cast<std::size_t>(format)];
}

Expected<TokenLayout> detect_layout(const std::string& path, std::span<const std::byte> bytes,
                                    std::optional<TokenType> raw_type, i64 vocab_size) {
  if (bytes.empty()) {
    return fault(path, "is empty", "leave it out, or prepare the data again");
  }
  if (starts_with(bytes, kNumpyMagic)) {
    return numpy_layout(path, bytes);
  }
  if (starts_with(bytes, kLlmqMagic)) {
    return llmq_layout(path, bytes);
  }
  if (is_llm_c(bytes, kLlmCMagicU16, kLlmCVersionU16) || is_llm_c(bytes, kLlmCMagicU32, kLlmCVersionU32)) {
    return llm_c_layout(path, bytes);
  }
  if (is_llm_c(bytes, kLlmCMagicEvaluation, 1)) {
    return fault(path, "is an llm.c file of multiple-choice questions, not of text", "give a token file");
  }
  return raw_layout(path, bytes.size(), raw_type, vocab_size);
}

std::string numpy_header(TokenType type, i64 num_tokens, i64 columns) {
  const std::string shape =
      columns > 0 ? fmt::format("({}, {})", num_tokens / columns, columns) : fmt::format("({},)", num_tokens);
  std::string dictionary =
      fmt::format("{{'descr': '{}{}{}', 'fortran_order': False, 'shape': {}, }}",
                  token_bytes(type) == 1 ? '|' : '<', is_signed(type) ? 'i' : 'u', token_bytes(type), shape);
  const std::size_t prefix = kNumpyMagic.size() + 4;
  dictionary.append(63 - (prefix + dictionary.size()) % 64, ' ');
  dictionary += '\n';
  const auto length = static_cast<u16>(dictionary.size());
  std::string header(kNumpyMagic);
  header += '\x01';
  header += '\0';
  header += static_cast<char>(length & 0xffU);
  header += static_cast<char>(length >> 8U);
  return header + dictionary;
}

std::string llm_c_header(TokenType type, i64 num_tokens) {
  WYCH_CHECK(type == TokenType::kU16 || type == TokenType::kU32, "llm.c holds no {}", token_type_name(type));
  WYCH_CHECK(num_tokens >= 0 && num_tokens < (i64{1} << 31U), "{} tokens", num_tokens);
  const bool wide = type == TokenType::kU32;
  const std::array<i32, 3> words = {wide ? kLlmCMagicU32 : kLlmCMagicU16,
                                    wide ? kLlmCVersionU32 : kLlmCVersionU16, static_cast<i32>(num_tokens)};
  std::string header(static_cast<std::size_t>(kWordHeaderBytes), '\0');
  std::memcpy(header.data(), words.data(), sizeof(words));
  return header;
}

}  // namespace wych::data
