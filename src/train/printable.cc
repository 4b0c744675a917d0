// Widths and categories are utf8proc's; a byte that is not UTF-8 counts as one column.
#include "train/printable.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

namespace wych::train {
namespace {

struct Character {
  utf8proc_int32_t code = -1;  // -1: the byte is not part of well-formed UTF-8
  std::size_t bytes = 1;
};

Character first_character(std::string_view text) {
  Character character;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const utf8proc_ssize_t length =
      utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size()), &character.code);
  if (length > 0) {
    character.bytes = static_cast<std::size_t>(length);
  } else {
    character.code = -1;
  }
  return character;
}

// Characters that show something, or combine with one that does. Formatting characters (category Cf) may
// reverse the direction of the rest of the line.
bool is_visible(utf8proc_int32_t code) {
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

int width_of(const Character& character) {
  return character.code < 0 ? 1 : std::max(0, utf8proc_charwidth(character.code));
}

// The line of `text` that starts at its beginning: where it ends, and where the next one starts.
struct Cut {
  std::size_t end;
  std::size_t next;
};

Cut cut_line(std::string_view text, int columns) {
  const std::size_t line_break = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, line_break);
  const std::string_view fitting = fit_columns(line, columns);
  if (fitting.size() == line.size()) {
    return {line_break, line_break + 1};
  }
  if (fitting.empty()) {
    const std::size_t bytes = first_character(line).bytes;
    return {bytes, bytes};
  }
  const std::size_t space = line[fitting.size()] == ' ' ? fitting.size() : fitting.rfind(' ');
  const bool has_word_before = space != std::string_view::npos && fitting.find_first_not_of(' ') < space;
  return has_word_before ? Cut{space, space + 1} : Cut{fitting.size(), fitting.size()};
}

}  // namespace

std::string printable(std::string_view text, LineBreaks line_breaks) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_character(text);
    if (character.code == '\n') {
      out += line_breaks == LineBreaks::kKeep ? "\n" : "\\n";
    } else if (character.code == '\t') {
      out += "    ";
    } else if (character.code >= 0 && is_visible(character.code)) {
      out += text.substr(0, character.bytes);
    } else if (character.code < 0x80) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    } else {
      out += fmt::format("\\u{{{:x}}}", character.code);
    }
    text.remove_prefix(character.bytes);
  }
  return out;
}

int display_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const Character character = first_character(text);
    width += width_of(character);
    text.remove_prefix(character.bytes);
  }
  return width;
}

std::string_view fit_columns(std::string_view text, int columns) {
  int width = 0;
  std::size_t end = 0;
  while (end < text.size()) {
    const Character character = first_character(text.substr(end));
    width += width_of(character);
    if (width > columns) {
      break;
    }
    end += character.bytes;
  }
  return text.substr(0, end);
}

std::vector<std::string_view> wrap(std::string_view text, int columns) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const Cut cut = cut_line(text.substr(begin), columns);
    lines.push_back(text.substr(begin, cut.end));
    begin += cut.next;
  }
  return lines;
}

}  // namespace wych::train
