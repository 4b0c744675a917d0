#include "data/byte_alphabet.h"

#include <array>

#include "base/types.h"
#include "data/unicode.h"

namespace wych::data {
namespace {

constexpr i32 kFirstShifted = 0x100;
constexpr i32 kAlphabetEnd = kFirstShifted + 68;  // 188 bytes stand for themselves, 68 are shifted

constexpr bool stands_for_itself(i32 byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

struct Alphabet {
  std::array<i32, 256> to_character{};      // byte -> code point
  std::array<i32, kAlphabetEnd> to_byte{};  // code point -> byte, -1 if none
};

constexpr Alphabet kAlphabet = [] {
  Alphabet alphabet;
  alphabet.to_byte.fill(-1);
  i32 shifted = kFirstShifted;
  for (i32 byte = 0; byte < 256; ++byte) {
    const i32 character = stands_for_itself(byte) ? byte : shifted++;
    alphabet.to_character[static_cast<std::size_t>(byte)] = character;
    alphabet.to_byte[static_cast<std::size_t>(character)] = byte;
  }
  return alphabet;
}();

}  // namespace

std::string to_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    append_utf8(text, kAlphabet.to_character[static_cast<unsigned char>(byte)]);
  }
  return text;
}

std::optional<std::string> from_alphabet(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const i32 byte = c.value < kAlphabetEnd ? kAlphabet.to_byte[static_cast<std::size_t>(c.value)] : -1;
    if (byte < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(byte));
    at += c.length;
  }
  return bytes;
}

}  // namespace wych::data
