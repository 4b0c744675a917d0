// GPT-2's cuts case by case, then every scanner against its own pattern, run by PCRE2, on random strings that
// dwell on what the alternatives look at. Real vocabularies: tokenizer_vectors_test.cc.
#include "data/pattern.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "data/regex_split.h"

namespace wych::data {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces(std::string_view text, Pattern pattern = Pattern::kGpt2) {
  Pieces result;
  for_each_piece(pattern, text, [&](std::string_view piece) { result.emplace_back(piece); });
  return result;
}

TEST(Pattern, KeepsOneSpaceWithTheWord) {
  EXPECT_EQ(pieces("In the  beginning"), (Pieces{"In", " the", " ", " beginning"}));
  EXPECT_EQ(pieces(" a 12 !?"), (Pieces{" a", " 12", " !?"}));
  EXPECT_EQ(pieces("\ta\nb"), (Pieces{"\t", "a", "\n", "b"}));
}

TEST(Pattern, LeavesTheLastSpaceOfARunToTheNextPiece) {
  EXPECT_EQ(pieces("a \n\n  b"), (Pieces{"a", " \n\n ", " b"}));
  EXPECT_EQ(pieces("a  \n"), (Pieces{"a", "  \n"}));
  EXPECT_EQ(pieces("\r\n\r\nx"), (Pieces{"\r\n\r", "\n", "x"}));
  EXPECT_EQ(pieces(" "), Pieces{" "});
}

TEST(Pattern, SplitsEnglishContractionsOnly) {
  EXPECT_EQ(pieces("he'll it's 'tis I'M"), (Pieces{"he", "'ll", " it", "'s", " '", "tis", " I", "'", "M"}));
  EXPECT_EQ(pieces("''s"), (Pieces{"''", "s"}));
  EXPECT_EQ(pieces("x'"), (Pieces{"x", "'"}));
  EXPECT_EQ(pieces("'r"), (Pieces{"'", "r"}));
}

TEST(Pattern, UsesUnicodeClasses) {
  EXPECT_EQ(pieces("na\u00efve\u00bd"), (Pieces{"na\u00efve", "\u00bd"}));
  EXPECT_EQ(pieces("e\u0301x"), (Pieces{"e", "\u0301", "x"}));            // a mark is no letter
  EXPECT_EQ(pieces("a\u00a0b"), (Pieces{"a", "\u00a0", "b"}));            // only U+0020 joins the word
  EXPECT_EQ(pieces("\u3000\u3000b"), (Pieces{"\u3000", "\u3000", "b"}));  // the run's last is three bytes
  EXPECT_EQ(pieces("a\u0085"), (Pieces{"a", "\u0085"}));
  EXPECT_EQ(pieces("\u200b\u0085."), (Pieces{"\u200b", "\u0085", "."}));
}

TEST(Pattern, CountsAMalformedByteAsTheReplacementCharacter) {
  EXPECT_EQ(pieces("a\xff\xfe!b"), (Pieces{"a", "\xff\xfe!", "b"}));
  EXPECT_EQ(pieces("a\xc3"), (Pieces{"a", "\xc3"}));
  EXPECT_EQ(pieces("\xed\xa0\x80"), Pieces{"\xed\xa0\x80"});  // a surrogate
  EXPECT_EQ(pieces("\xffun", Pattern::kLlama3), Pieces{"\xffun"});
}

TEST(Pattern, CutsNumbersAndLinesAsTheFamilySays) {
  EXPECT_EQ(pieces("12345", Pattern::kLlama3), (Pieces{"123", "45"}));
  EXPECT_EQ(pieces("123", Pattern::kQwen2), (Pieces{"1", "2", "3"}));
  EXPECT_EQ(pieces("a \n\n  b", Pattern::kLlama3), (Pieces{"a", " \n\n", " ", " b"}));
  EXPECT_EQ(pieces("a \n\n  ", Pattern::kLlama3), (Pieces{"a", " \n\n", "  "}));
  EXPECT_EQ(pieces("a \n\n  ", Pattern::kCl100k), (Pieces{"a", " \n\n  "}));
  EXPECT_EQ(pieces("X.\n\ny", Pattern::kLlama3), (Pieces{"X", ".\n\n", "y"}));
  EXPECT_EQ(pieces("IT'S he'\u017f", Pattern::kLlama3), (Pieces{"IT", "'S", " he", "'\u017f"}));
}

TEST(Pattern, CutsWordsAtCapitals) {
  EXPECT_EQ(pieces("getHTTPResponse", Pattern::kO200k), (Pieces{"get", "HTTPResponse"}));
  EXPECT_EQ(pieces("don'T I'LLx", Pattern::kO200k), (Pieces{"don'T", " I'LL", "x"}));
  EXPECT_EQ(pieces("don't", Pattern::kTekken), (Pieces{"don", "'t"}));
  // Back-tracking: the capital behind the caseless letter is left over.
  EXPECT_EQ(pieces("A\u4e2dB", Pattern::kO200k), (Pieces{"A\u4e2d", "B"}));
  EXPECT_EQ(pieces("\u0301ABC.", Pattern::kO200k), (Pieces{"\u0301", "ABC", "."}));
}

std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> alphabet = {
      "'",      "s",      "S",      "t",        "l",      "L",      "r",      "e",
      "\u017f", "D",      "A",      " ",        " ",      "\n",     "\r",     "\t",
      ".",      "/",      "!",      "1",        "2",      "\u00bd", "\u00a0", "\u0301",
      "\u20dd", "\u4e2d", "\u02b0", "\xc7\x85", "\u00e9", "\u00c9", "\u3000", "\U0001f600"};
  std::string text;
  for (std::size_t i = random() % 16; i > 0; --i) {
    text += alphabet[random() % alphabet.size()];
  }
  return text;
}

TEST(Pattern, AgreesWithItsRegularExpression) {
  std::mt19937 random(1);
  RegexScratch scratch;
  for (const Pattern pattern : kPatterns) {
    const RegexSplit regex =
        RegexSplit::compile(pattern_text(pattern), false, SplitBehavior::kIsolated, false).value();
    for (int round = 0; round < 20000; ++round) {
      const std::string text = random_text(random);
      std::vector<std::string_view> expected;
      regex.split(text, scratch, expected);
      ASSERT_EQ(pieces(text, pattern), Pieces(expected.begin(), expected.end()))
          << pattern_name(pattern) << ": " << text;
    }
  }
}

TEST(Pattern, PiecesConcatenateToAnyBytes) {
  std::mt19937 random(2);
  const std::string_view alphabet("a'sr 1\n\t.\xc2\xa0\xe3\x80\xff\x80", 16);
  for (const Pattern pattern : kPatterns) {
    for (int round = 0; round < 500; ++round) {
      std::string text;
      for (std::size_t i = random() % 20; i > 0; --i) {
        text += alphabet[random() % alphabet.size()];
      }
      std::string joined;
      for (const std::string& piece : pieces(text, pattern)) {
        ASSERT_FALSE(piece.empty());
        joined += piece;
      }
      ASSERT_EQ(joined, text);
    }
  }
}

TEST(Pattern, IsKnownByNameAndText) {
  for (const Pattern pattern : kPatterns) {
    EXPECT_EQ(pattern_by_name(pattern_name(pattern)), pattern);
    EXPECT_EQ(pattern_by_text(pattern_text(pattern)), pattern);
  }
  EXPECT_EQ(pattern_by_name("p50k_base"), Pattern::kGpt2);
  EXPECT_FALSE(pattern_by_name("gpt3").has_value());
  EXPECT_FALSE(pattern_by_text("\\s+").has_value());
}

}  // namespace
}  // namespace wych::data
