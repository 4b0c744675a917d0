// UTF-8 and the classes of characters that tokenizers cut by. Any bytes are accepted: a byte that is not part
// of well-formed UTF-8 is a character of its own, of one byte, and counts as U+FFFD wherever a class is asked
// for. The Unicode version is utf8proc's (docs/tokenizer.md).
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/types.h"

namespace wych::data {

// Classes of a character, as bits: a pattern's class is a mask. A character without any bit is punctuation, a
// symbol, a control character or unassigned.
using CharKind = u8;
inline constexpr CharKind kSpaceKind = 1;      // White_Space
inline constexpr CharKind kNumberKind = 2;     // N
inline constexpr CharKind kUpperKind = 4;      // Lu, Lt
inline constexpr CharKind kLowerKind = 8;      // Ll
inline constexpr CharKind kCaselessKind = 16;  // Lm, Lo
inline constexpr CharKind kMarkKind = 32;      // M
inline constexpr CharKind kLineEndKind = 64;   // \r and \n, which are kSpaceKind too
inline constexpr CharKind kLetterKinds = kUpperKind | kLowerKind | kCaselessKind;

struct Character {
  CharKind kind = 0;
  u32 length = 1;  // bytes
};

struct CodePoint {
  i32 value = 0xfffd;
  u32 length = 1;  // bytes
  bool is_valid = false;
};

inline constexpr std::array<CharKind, 128> kAsciiKinds = [] {
  std::array<CharKind, 128> kinds{};
  for (std::size_t c = 0; c < kinds.size(); ++c) {
    const bool is_line_end = c == '\n' || c == '\r';
    const bool is_space = c == ' ' || (c >= '\t' && c <= '\r');
    kinds[c] = is_line_end            ? kSpaceKind | kLineEndKind
               : is_space             ? kSpaceKind
               : c >= '0' && c <= '9' ? kNumberKind
               : c >= 'A' && c <= 'Z' ? kUpperKind
               : c >= 'a' && c <= 'z' ? kLowerKind
                                      : CharKind{0};
  }
  return kinds;
}();

// The character that starts at text[position]; position < text.size().
CodePoint code_point_at(std::string_view text, std::size_t position);

// The start of the last character of text[0, end); 0 < end <= text.size().
std::size_t last_character(std::string_view text, std::size_t end);

// As code_point_at, for its class.
Character wide_character_at(std::string_view text, std::size_t position);
inline Character character_at(std::string_view text, std::size_t position) {
  const auto byte = static_cast<unsigned char>(text[position]);
  return byte < 128 ? Character{kAsciiKinds[byte], 1} : wide_character_at(text, position);
}

// A letter, mark, decimal digit, connector or joiner: what \w is in regular expressions.
bool is_word_character(i32 code_point);

void append_utf8(std::string& text, i32 code_point);

}  // namespace wych::data
