// Each branch below is one alternative of the pattern in pretokenizer.h, in its order.
#include "data/pretokenizer.h"

#include <utf8proc.h>

#include <array>

#include "base/types.h"

namespace wych::data {
namespace {

enum class CharClass : u8 { kSpace, kLetter, kNumber, kOther };

struct Character {
  CharClass kind = CharClass::kOther;
  std::size_t length = 1;  // bytes
};

constexpr CharClass ascii_class(unsigned char byte) {
  if (byte == ' ' || (byte >= '\t' && byte <= '\r')) {
    return CharClass::kSpace;
  }
  if ((byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z')) {
    return CharClass::kLetter;
  }
  return byte >= '0' && byte <= '9' ? CharClass::kNumber : CharClass::kOther;
}

constexpr std::array<CharClass, 128> kAsciiClasses = [] {
  std::array<CharClass, 128> classes{};
  for (std::size_t i = 0; i < classes.size(); ++i) {
    classes[i] = ascii_class(static_cast<unsigned char>(i));
  }
  return classes;
}();

CharClass unicode_class(utf8proc_int32_t code_point) {
  constexpr utf8proc_int32_t kNextLine = 0x85;  // a control character, yet white space
  if (code_point == kNextLine) {
    return CharClass::kSpace;
  }
  switch (utf8proc_category(code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharClass::kNumber;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return CharClass::kSpace;
    default:
      return CharClass::kOther;
  }
}

Character character_at(std::string_view text, std::size_t position) {
  const auto byte = static_cast<unsigned char>(text[position]);
  if (byte < 128) {
    return {kAsciiClasses[byte], 1};
  }
  utf8proc_int32_t code_point = -1;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + position);
  const auto available = static_cast<utf8proc_ssize_t>(text.size() - position);
  const utf8proc_ssize_t length = utf8proc_iterate(bytes, available, &code_point);
  if (length <= 0) {
    return {CharClass::kOther, 1};
  }
  return {unicode_class(code_point), static_cast<std::size_t>(length)};
}

// The end of the run of characters of class `kind` that starts at `position`.
std::size_t run_end(std::string_view text, std::size_t position, CharClass kind) {
  while (position < text.size()) {
    const Character character = character_at(text, position);
    if (character.kind != kind) {
      break;
    }
    position += character.length;
  }
  return position;
}

// Bytes of the English contraction at text[begin] == '\'', or 0.
std::size_t contraction_length(std::string_view text, std::size_t begin) {
  const std::string_view rest = text.substr(begin + 1, 2);
  if (rest.starts_with("re") || rest.starts_with("ve") || rest.starts_with("ll")) {
    return 3;
  }
  return !rest.empty() && std::string_view("stmd").find(rest[0]) != std::string_view::npos ? 2 : 0;
}

// \s+(?!\S)|\s+: a run that is followed by something else leaves its last character to the next piece.
std::size_t space_length(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  std::size_t last = begin;  // start of the run's last character
  while (end < text.size()) {
    const Character character = character_at(text, end);
    if (character.kind != CharClass::kSpace) {
      return (last > begin ? last : end) - begin;
    }
    last = end;
    end += character.length;
  }
  return end - begin;
}

}  // namespace

std::size_t pretoken_length(std::string_view text, std::size_t begin) {
  if (text[begin] == '\'') {
    if (const std::size_t length = contraction_length(text, begin); length > 0) {
      return length;
    }
  }
  // ` ?` in front of a run of letters, numbers or others.
  const std::size_t start = text[begin] == ' ' && begin + 1 < text.size() ? begin + 1 : begin;
  const Character first = character_at(text, start);
  if (first.kind != CharClass::kSpace) {
    return run_end(text, start + first.length, first.kind) - begin;
  }
  return space_length(text, begin);
}

}  // namespace wych::data
