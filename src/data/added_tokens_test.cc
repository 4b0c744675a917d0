// Which token is found where. The flags' meaning is that of the package `tokenizers`.
#include "data/added_tokens.h"

#include <gtest/gtest.h>

namespace wych::data {
namespace {

// Text as it is, tokens as <id>.
std::string split(const AddedTokenMatcher& matcher, std::string_view text,
                  SpecialText special = SpecialText::kToken) {
  std::string result;
  matcher.split(
      text, special,
      [&](std::string_view part) {
        EXPECT_FALSE(part.empty());
        result += "[" + std::string(part) + "]";
      },
      [&](i32 id) { result += std::to_string(id); });
  return result;
}

TEST(AddedTokens, TakesTheLongestFromTheLeft) {
  const AddedTokenMatcher matcher(
      {{.content = "ab", .id = 1}, {.content = "abc", .id = 2}, {.content = "bcd", .id = 3}});
  EXPECT_EQ(split(matcher, "abcd"), "2[d]");
  EXPECT_EQ(split(matcher, "xabbcd"), "[x]13");
  EXPECT_EQ(split(matcher, "ab"), "1");
  EXPECT_EQ(split(matcher, "a"), "[a]");
  EXPECT_EQ(split(matcher, ""), "");
  EXPECT_EQ(split(AddedTokenMatcher(), "ab"), "[ab]");
}

TEST(AddedTokens, LeavesSpecialTokensInTextUnlessAsked) {
  const AddedTokenMatcher matcher({{.content = "<e>", .id = 1, .special = true}, {.content = "e", .id = 2}});
  EXPECT_EQ(split(matcher, "a<e>e", SpecialText::kToken), "[a]12");
  // The special token's text still hides what is within it.
  EXPECT_EQ(split(matcher, "a<e>e", SpecialText::kText), "[a<e>]2");
}

TEST(AddedTokens, HonoursItsFlags) {
  const AddedTokenMatcher words({{.content = "in", .id = 1, .single_word = true}});
  EXPECT_EQ(split(words, "in inn in. win \u00e9in in"), "1[ inn ]1[. win \u00e9in ]1");
  const AddedTokenMatcher strips(
      {{.content = "<l>", .id = 1, .lstrip = true}, {.content = "<r>", .id = 2, .rstrip = true}});
  EXPECT_EQ(split(strips, "a \u3000<l> b"), "[a]1[ b]");
  EXPECT_EQ(split(strips, "a <r>\n\u3000b"), "[a ]2[b]");
  EXPECT_EQ(split(strips, "<r>  <l>"), "21");
}

TEST(AddedTokens, FindsRunsOfSpaces) {
  std::vector<AddedToken> tokens;
  for (i32 length = 2; length <= 24; ++length) {
    tokens.push_back({.content = std::string(static_cast<std::size_t>(length), ' '), .id = length});
  }
  const AddedTokenMatcher matcher(tokens);
  EXPECT_EQ(split(matcher, "a b  c" + std::string(50, ' ') + "d"), "[a b]2[c]24242[d]");
}

}  // namespace
}  // namespace wych::data
