// Behaviours, the constructs that are rewritten or refused, and bytes that are not UTF-8.
#include "data/regex_split.h"

#include <gtest/gtest.h>

#include "data/cpu_seconds.h"

namespace wych::data {
namespace {

using Pieces = std::vector<std::string>;

RegexSplit compile(std::string_view pattern, SplitBehavior behavior = SplitBehavior::kIsolated,
                   bool invert = false) {
  return RegexSplit::compile(pattern, false, behavior, invert).value();
}

Pieces split(const RegexSplit& regex, std::string_view text) {
  RegexScratch scratch;
  std::vector<std::string_view> pieces;
  regex.split(text, scratch, pieces);
  return {pieces.begin(), pieces.end()};
}

std::string refusal(std::string_view pattern) {
  const auto result = RegexSplit::compile(pattern, false, SplitBehavior::kIsolated, false);
  return result.has_value() ? "accepted" : result.error().what;
}

// As the documentation of Hugging Face's Split has it for "the-final--countdown".
TEST(RegexSplit, HandlesMatchesAsTheBehaviorSays) {
  const std::string_view text = "the-final--countdown";
  EXPECT_EQ(split(compile("-"), text), (Pieces{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split(compile("-", SplitBehavior::kRemoved), text), (Pieces{"the", "final", "countdown"}));
  EXPECT_EQ(split(compile("-", SplitBehavior::kContiguous), text),
            (Pieces{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(split(compile("-", SplitBehavior::kMergedWithPrevious), text),
            (Pieces{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split(compile("-", SplitBehavior::kMergedWithNext), text),
            (Pieces{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split(compile("-", SplitBehavior::kRemoved, true), text), (Pieces{"-", "-", "-"}));
  EXPECT_EQ(split(compile("-"), ""), Pieces{});
}

TEST(RegexSplit, TakesALiteralAsItIs) {
  const RegexSplit regex = RegexSplit::compile(".*", true, SplitBehavior::kIsolated, false).value();
  EXPECT_EQ(split(regex, "a.*b"), (Pieces{"a", ".*", "b"}));
}

TEST(RegexSplit, KeepsTheUnicodeMeaningOfClasses) {
  EXPECT_EQ(split(compile("\\s+"), "a\u0085\u3000\u180eb"), (Pieces{"a", "\u0085\u3000", "\u180eb"}));
  EXPECT_EQ(split(compile("[\\S]+"), "\u180e\u0085"), (Pieces{"\u180e", "\u0085"}));
  EXPECT_EQ(split(compile("\\w+"), "-e\u0301\u203f9-"), (Pieces{"-", "e\u0301\u203f9", "-"}));
  EXPECT_EQ(split(compile("\\d+"), "x\u0663\u00bd"), (Pieces{"x", "\u0663", "\u00bd"}));
  EXPECT_EQ(split(compile("\\p{Han}+"), "\u3001\u4e2d"), (Pieces{"\u3001", "\u4e2d"}));  // by Script alone
  EXPECT_EQ(split(compile("(?i:s)"), "\u017f"), Pieces{"\u017f"});
  EXPECT_EQ(split(compile("x$"), "x\nx"), (Pieces{"x", "\n", "x"}));
  EXPECT_EQ(split(compile("\\u4e2d"), "a\u4e2d"), (Pieces{"a", "\u4e2d"}));
}

TEST(RegexSplit, NamesTheConstructItRefuses) {
  EXPECT_NE(refusal("a\\h").find("\\h at byte 1"), std::string::npos) << refusal("a\\h");
  EXPECT_NE(refusal("[a[b]]").find("class within a class"), std::string::npos);
  EXPECT_NE(refusal("[a&&b]").find("&&"), std::string::npos);
  EXPECT_NE(refusal("a{1,3}+").find("}+"), std::string::npos);
  EXPECT_NE(refusal("(?m:.)").find("(?m"), std::string::npos);
  EXPECT_NE(refusal("(*UTF)").find("(*"), std::string::npos);
  EXPECT_NE(refusal("[\\W]").find("\\W"), std::string::npos);
  EXPECT_NE(refusal("a\\").find("\\"), std::string::npos);
  EXPECT_NE(refusal("\\u12").find("\\u"), std::string::npos);
  EXPECT_NE(refusal("\\pL").find("\\p"), std::string::npos);
  EXPECT_NE(refusal("\\p{Nonsense}").find("not understood"), std::string::npos);
  EXPECT_NE(refusal("(").find("not understood"), std::string::npos);
  EXPECT_NE(refusal("a*").find("empty"), std::string::npos);
}

TEST(RegexSplit, MatchesAMalformedByteAsTheReplacementCharacter) {
  EXPECT_EQ(split(compile("\\p{L}+"),
                  "ab\xff\xc3"
                  "cd\xe4\xb8"),
            (Pieces{"ab", "\xff\xc3", "cd", "\xe4\xb8"}));
  EXPECT_EQ(split(compile("\ufffd"), "\xff\ufffd\x80"), (Pieces{"\xff", "\ufffd", "\x80"}));
  EXPECT_EQ(split(compile("."), "\x80"), Pieces{"\x80"});
}

// \s+$ tries every end from every start; without cuts this is 10^12 steps.
TEST(RegexSplit, StaysLinearWhereBacktrackingIsQuadratic) {
  const RegexSplit regex = compile("\\s+$");
  const std::string text = std::string(1 << 20, ' ') + "x";
  const CpuSeconds spent;
  std::size_t bytes = 0;
  for (const std::string& piece : split(regex, text)) {
    bytes += piece.size();
  }
  EXPECT_EQ(bytes, text.size());
  EXPECT_LT(spent(), 60);
}

TEST(RegexSplit, SurvivesDeepRecursion) {
  const RegexSplit regex = compile("(?:a|b)+(?=c)");
  std::string text;
  for (int i = 0; i < 50000; ++i) {
    text += "ab"[i % 2];
  }
  std::size_t bytes = 0;
  for (const std::string& piece : split(regex, text)) {
    bytes += piece.size();
  }
  EXPECT_EQ(bytes, text.size());
}

}  // namespace
}  // namespace wych::data
