#include "train/printable.h"

#include <gtest/gtest.h>

namespace wych::train {
namespace {

std::string escaped(std::string_view text) { return printable(text, LineBreaks::kEscape); }

TEST(Printable, KeepsText) { EXPECT_EQ(escaped("Grüße, 漢字 é"), "Grüße, 漢字 é"); }

TEST(Printable, EscapesControlCharacters) {
  EXPECT_EQ(escaped("a\x1b[31mb\x07\x7f\r"), "a\\x1b[31mb\\x07\\x7f\\x0d");
  EXPECT_EQ(escaped(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(escaped("\xc2\x9b"), "\\u{9b}");        // a control sequence introducer in one character
  EXPECT_EQ(escaped("\xe2\x80\xae"), "\\u{202e}");  // right-to-left override
  EXPECT_EQ(escaped("\xe2\x80\xa8"), "\\u{2028}");  // line separator
  EXPECT_EQ(escaped("tab\tstop"), "tab    stop");
}

TEST(Printable, EscapesInvalidBytes) {
  EXPECT_EQ(escaped("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(escaped("\xe6\xbc"), "\\xe6\\xbc");           // an unfinished character
  EXPECT_EQ(escaped("\xc0\xaf"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(escaped("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half of a surrogate pair
}

TEST(Printable, KeepsOrEscapesLineBreaks) {
  EXPECT_EQ(printable("a\nb", LineBreaks::kKeep), "a\nb");
  EXPECT_EQ(printable("a\nb", LineBreaks::kEscape), "a\\nb");
}

TEST(DisplayWidth, CountsColumns) {
  EXPECT_EQ(display_width(""), 0);
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("漢字"), 4);
  EXPECT_EQ(display_width("e\xcc\x81"), 1);  // a combining accent
  EXPECT_EQ(display_width("━▄×⠉"), 4);
}

TEST(FitColumns, CutsAtCharacters) {
  EXPECT_EQ(fit_columns("漢字", 3), "漢");
  EXPECT_EQ(fit_columns("abc", 3), "abc");
  EXPECT_EQ(fit_columns("abc", 0), "");
  EXPECT_EQ(fit_columns("e\xcc\x81x", 1), "e\xcc\x81");
}

TEST(Wrap, BreaksAtSpaces) {
  EXPECT_EQ(wrap("the quick brown fox", 10), (std::vector<std::string_view>{"the quick", "brown fox"}));
  EXPECT_EQ(wrap("exactly10 more", 9), (std::vector<std::string_view>{"exactly10", "more"}));
}

TEST(Wrap, BreaksLongWordsAnywhere) {
  EXPECT_EQ(wrap("abcdefgh", 3), (std::vector<std::string_view>{"abc", "def", "gh"}));
  EXPECT_EQ(wrap("漢字漢", 3), (std::vector<std::string_view>{"漢", "字", "漢"}));
}

TEST(Wrap, KeepsLineBreaksAndIndentation) {
  EXPECT_EQ(wrap("a\n\n  b", 10), (std::vector<std::string_view>{"a", "", "  b"}));
  EXPECT_EQ(wrap("    abcdef", 6), (std::vector<std::string_view>{"    ab", "cdef"}));
}

TEST(Wrap, GoesOnWhenACharacterIsTooWide) {
  EXPECT_EQ(wrap("漢字", 1), (std::vector<std::string_view>{"漢", "字"}));
}

}  // namespace
}  // namespace wych::train
