// Classes of the basic plane come from a table made at first use; the rest is asked of utf8proc.
#include "data/unicode.h"

#include <utf8proc.h>

namespace wych::data {
namespace {

constexpr i32 kBasicPlaneEnd = 0x10000;

CharKind category_kind(i32 code_point) {
  constexpr i32 kNextLine = 0x85;  // a control character, yet white space
  if (code_point == kNextLine) {
    return kSpaceKind;
  }
  if (code_point < 128) {
    return kAsciiKinds[static_cast<std::size_t>(code_point)];
  }
  switch (utf8proc_category(code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return kUpperKind;
    case UTF8PROC_CATEGORY_LL:
      return kLowerKind;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kCaselessKind;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMarkKind;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kNumberKind;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return kSpaceKind;
    default:
      return 0;
  }
}

CharKind kind_of(i32 code_point) {
  static const std::array<CharKind, kBasicPlaneEnd> basic_plane = [] {
    std::array<CharKind, kBasicPlaneEnd> kinds{};
    for (i32 c = 0; c < kBasicPlaneEnd; ++c) {
      kinds[static_cast<std::size_t>(c)] = category_kind(c);
    }
    return kinds;
  }();
  return code_point < kBasicPlaneEnd ? basic_plane[static_cast<std::size_t>(code_point)]
                                     : category_kind(code_point);
}

}  // namespace

CodePoint code_point_at(std::string_view text, std::size_t position) {
  const auto lead = static_cast<unsigned char>(text[position]);
  if (lead < 0x80) {
    return {lead, 1, true};
  }
  // Lead bytes: C2..DF, E0..EF, F0..F4. Overlong forms, surrogates and values beyond U+10FFFF are ill-formed.
  const u32 length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() - position < length) {
    return {};
  }
  i32 value = lead & (0x7f >> length);
  for (u32 i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[position + i]);
    if ((byte & 0xc0) != 0x80) {
      return {};
    }
    value = (value << 6) | (byte & 0x3f);
  }
  const bool is_overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  if (is_overlong || (value >= 0xd800 && value <= 0xdfff) || value > 0x10ffff) {
    return {};
  }
  return {value, length, true};
}

std::size_t last_character(std::string_view text, std::size_t end) {
  for (std::size_t length = 2; length <= 4 && length <= end; ++length) {
    const CodePoint c = code_point_at(text.substr(0, end), end - length);
    if (c.length == length) {
      return end - length;
    }
  }
  return end - 1;
}

Character wide_character_at(std::string_view text, std::size_t position) {
  const CodePoint c = code_point_at(text, position);
  return {kind_of(c.value), c.length};
}

bool is_word_character(i32 code_point) {
  // Letters in circles and squares are alphabetic symbols.
  const bool is_enclosed_letter =
      (code_point >= 0x24b6 && code_point <= 0x24e9) || (code_point >= 0x1f130 && code_point <= 0x1f149) ||
      (code_point >= 0x1f150 && code_point <= 0x1f169) || (code_point >= 0x1f170 && code_point <= 0x1f189);
  const bool is_joiner = code_point == 0x200c || code_point == 0x200d;
  if (is_enclosed_letter || is_joiner || (kind_of(code_point) & (kLetterKinds | kMarkKind)) != 0) {
    return true;
  }
  const utf8proc_category_t category = utf8proc_category(code_point);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_PC;
}

void append_utf8(std::string& text, i32 code_point) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(code_point, bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
}

}  // namespace wych::data
