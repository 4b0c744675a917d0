// Layout: magic (9 bytes), u64 version, u8 type, u64 sequences, u64 document indices; then i32 lengths, i64
// byte offsets, i64 document indices and, in files for several modalities, i8 modes.
#include "data/megatron_index.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace wych::data {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr i64 kHeaderBytes = 34;
constexpr i64 kVersion = 1;
// The codes of types whose ids can be read; 6 and 7 are floats.
constexpr std::array<std::pair<u8, TokenType>, 6> kTypeCodes = {{{u8{1}, TokenType::kU8},
                                                                 {u8{2}, TokenType::kI8},
                                                                 {u8{3}, TokenType::kI16},
                                                                 {u8{4}, TokenType::kI32},
                                                                 {u8{5}, TokenType::kI64},
                                                                 {u8{8}, TokenType::kU16}}};

Error fault(const std::string& path, std::string what, std::string hint = "write the pair of files again") {
  return {ErrorKind::kData, path, std::move(what), std::move(hint), {}};
}

template <class T>
T value_at(std::span<const std::byte> bytes, i64 offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

template <class T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

bool MegatronIndex::is_index(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

i64 MegatronIndex::word_at(i64 offset) const { return value_at<i64>(file_.bytes(), offset); }

i64 MegatronIndex::sequence_start(i64 sequence) const {
  return sequence == num_sequences_
             ? num_tokens_
             : word_at(kHeaderBytes + 4 * num_sequences_ + 8 * sequence) / token_bytes(type_);
}

i64 MegatronIndex::document_start(i64 index) const {
  WYCH_CHECK(index >= 0 && index <= num_documents_, "document {} of {}", index, num_documents_);
  return sequence_start(word_at(kHeaderBytes + 12 * num_sequences_ + 8 * index));
}

Expected<MegatronIndex> MegatronIndex::open(const std::string& path) {
  MegatronIndex index;
  WYCH_TRY(index.file_, MappedFile::open(path, ErrorKind::kData));
  const std::span<const std::byte> bytes = index.file_.bytes();
  const auto size = static_cast<i64>(bytes.size());
  if (!is_index(bytes) || size < kHeaderBytes) {
    return fault(path, "is not the index of a Megatron token file");
  }
  if (value_at<i64>(bytes, 9) != kVersion) {
    return fault(path,
                 fmt::format("has version {}; this program reads {}", value_at<i64>(bytes, 9), kVersion));
  }
  const u8 code = value_at<u8>(bytes, 17);
  bool known = false;
  for (const auto& [known_code, type] : kTypeCodes) {
    if (known_code == code) {
      index.type_ = type;
      known = true;
    }
  }
  if (!known) {
    return fault(path, fmt::format("has ids of type code {}, which are no integers", code));
  }
  const i64 sequences = value_at<i64>(bytes, 18);
  const i64 indices = value_at<i64>(bytes, 26);
  const bool sane = sequences >= 0 && indices >= 1 && sequences <= size / 12 && indices <= size / 8;
  const i64 wanted = sane ? kHeaderBytes + 12 * sequences + 8 * indices : 0;
  if (!sane || (size != wanted && size != wanted + sequences)) {
    return fault(path, fmt::format("has {} bytes, which {} sequences and {} document indices do not fill",
                                   size, sequences, indices));
  }
  index.num_sequences_ = sequences;
  for (i64 i = 0; i < sequences; ++i) {
    const i64 length = value_at<i32>(bytes, kHeaderBytes + 4 * i);
    const i64 place = index.word_at(kHeaderBytes + 4 * sequences + 8 * i);
    if (length < 0 || place != index.num_tokens_ * token_bytes(index.type_)) {
      return fault(path, fmt::format("sequence {} of length {} is at byte {}; expected byte {}", i, length,
                                     place, index.num_tokens_ * token_bytes(index.type_)));
    }
    index.num_tokens_ += length;
  }
  i64 last = 0;
  for (i64 i = 0; i < indices; ++i) {
    const i64 sequence = index.word_at(kHeaderBytes + 12 * sequences + 8 * i);
    if (sequence < last || sequence > sequences || (i == 0 && sequence != 0)) {
      return fault(path, fmt::format("document {} begins at sequence {} of {}", i, sequence, sequences));
    }
    last = sequence;
  }
  if (last != sequences) {
    return fault(path, fmt::format("its documents end at sequence {} of {}", last, sequences));
  }
  index.num_documents_ = indices - 1;
  return index;
}

std::string megatron_index_bytes(TokenType type, std::span<const i32> document_lengths) {
  u8 code = 0;
  for (const auto& [known_code, known_type] : kTypeCodes) {
    code = known_type == type ? known_code : code;
  }
  WYCH_CHECK(code != 0, "no type code for {}", token_type_name(type));
  std::string out(kMagic);
  append(out, kVersion);
  append(out, code);
  append(out, static_cast<i64>(document_lengths.size()));
  append(out, static_cast<i64>(document_lengths.size()) + 1);
  for (const i32 length : document_lengths) {
    append(out, length);
  }
  i64 place = 0;
  for (const i32 length : document_lengths) {
    append(out, place);
    place += length * token_bytes(type);
  }
  for (i64 i = 0; i <= static_cast<i64>(document_lengths.size()); ++i) {
    append(out, i);
  }
  return out;
}

bool megatron_holds(TokenType type) {
  for (const auto& [code, known_type] : kTypeCodes) {
    if (known_type == type) {
      return true;
    }
  }
  return false;
}

}  // namespace wych::data
