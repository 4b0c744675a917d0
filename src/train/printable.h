// Text of unknown origin made safe and measurable for a terminal: nothing in it can move the cursor, change
// colours or reorder the line, and its width in columns is known. Model output goes through here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace wych::train {

enum class LineBreaks { kKeep, kEscape };

// `text` with invalid bytes as "\xNN", control and formatting characters as "\xNN" or "\u{NNNN}", tabs as
// four spaces. Line breaks stay, or become "\n" in two characters.
std::string printable(std::string_view text, LineBreaks line_breaks);

// Columns that printable text without line breaks takes: wide characters count two, combining ones none.
int display_width(std::string_view text);

// The longest beginning of printable text that takes at most `columns`.
std::string_view fit_columns(std::string_view text, int columns);

// Printable text as lines of at most `columns` (>= 1) columns, cut at line breaks and else at spaces where
// there are any. The lines are pieces of `text`. A wide character that does not fit stands alone.
std::vector<std::string_view> wrap(std::string_view text, int columns);

}  // namespace wych::train
