// What a token file looks like inside: the type of its ids, where they begin, how many there are. Found from
// the file's own bytes where it has a header, else from its name, else from what the caller knows. The
// formats are described in docs/data.md.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/expected.h"
#include "base/types.h"

namespace wych::data {

enum class TokenType : u8 { kU8, kU16, kU32, kU64, kI8, kI16, kI32, kI64 };

// Bytes of one id.
constexpr i64 token_bytes(TokenType type) { return i64{1} << (static_cast<unsigned>(type) & 3U); }
constexpr bool is_signed(TokenType type) { return type >= TokenType::kI8; }
// "u16", "i32".
std::string_view token_type_name(TokenType type);
// The other way round; nothing for an unknown name.
std::optional<TokenType> token_type_from_name(std::string_view name);
// The smallest of u16 and u32 that holds ids below `vocab_size`.
constexpr TokenType token_type_for(i64 vocab_size) {
  return vocab_size <= (i64{1} << 16U) ? TokenType::kU16 : TokenType::kU32;
}
// Ids up to this fit the type (and i32).
i64 largest_id(TokenType type);

enum class TokenFormat : u8 {
  kRaw,       // ids without a header: OLMo-core's and Dolma's .npy, nanoGPT's .bin
  kNumpy,     // numpy.save, one- or two-dimensional
  kMegatron,  // PREFIX.bin with PREFIX.idx
  kLlmC,      // llm.c: 256 header words, u16 or u32 ids
  kLlmq,      // LLMQ: "BIN.TOK"
};
// "raw", "numpy", "megatron", "llm.c", "llmq".
std::string_view token_format_name(TokenFormat format);

struct TokenLayout {
  TokenFormat format = TokenFormat::kRaw;
  TokenType type = TokenType::kU16;
  i64 offset = 0;  // bytes before the first id
  i64 num_tokens = 0;
  i64 columns = 0;     // ids of a row of a two-dimensional file; 0: one-dimensional
  i64 vocab_size = 0;  // as the header says; 0: it does not
};

// The layout of a file that is no Megatron pair, from its bytes. A headerless file has the type `raw_type`;
// if that is not given the smallest for `vocab_size`, as OLMo-core chooses; if that is 0 too, u16 for a
// .bin file, as nanoGPT writes. Errors (kData): empty, cut, of a type or version not read, type unknown.
Expected<TokenLayout> detect_layout(const std::string& path, std::span<const std::byte> bytes,
                                    std::optional<TokenType> raw_type, i64 vocab_size);

// Header of a one- or two-dimensional numpy file: magic to newline, a multiple of 64 bytes.
std::string numpy_header(TokenType type, i64 num_tokens, i64 columns);
// The 1024 bytes in front of llm.c's ids. u16 (GPT-2) or u32 (Llama 3), fewer than 2^31 tokens (CHECKed).
std::string llm_c_header(TokenType type, i64 num_tokens);

}  // namespace wych::data
