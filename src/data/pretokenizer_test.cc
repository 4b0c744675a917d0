// The cuts of the pattern in pretokenizer.h, case by case; whole texts against an oracle: tokenizer_test.cc.
#include "data/pretokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace wych::data {
namespace {

std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> result;
  for_each_pretoken(text, [&](std::string_view piece) { result.emplace_back(piece); });
  return result;
}

using Pieces = std::vector<std::string>;

TEST(Pretokenizer, KeepsOneSpaceWithTheWord) {
  EXPECT_EQ(pieces("In the  beginning"), (Pieces{"In", " the", " ", " beginning"}));
  EXPECT_EQ(pieces(" a 12 !?"), (Pieces{" a", " 12", " !?"}));
  EXPECT_EQ(pieces("\ta\nb"), (Pieces{"\t", "a", "\n", "b"}));
}

TEST(Pretokenizer, LeavesTheLastSpaceOfARunToTheNextPiece) {
  EXPECT_EQ(pieces("a \n\n  b"), (Pieces{"a", " \n\n ", " b"}));
  EXPECT_EQ(pieces("a  \n"), (Pieces{"a", "  \n"}));
  EXPECT_EQ(pieces("\r\n\r\nx"), (Pieces{"\r\n\r", "\n", "x"}));
  EXPECT_EQ(pieces(" "), Pieces{" "});
}

TEST(Pretokenizer, SplitsEnglishContractionsOnly) {
  EXPECT_EQ(pieces("he'll it's 'tis I'M"), (Pieces{"he", "'ll", " it", "'s", " '", "tis", " I", "'", "M"}));
  EXPECT_EQ(pieces("''s"), (Pieces{"''", "s"}));
  EXPECT_EQ(pieces("x'"), (Pieces{"x", "'"}));
  EXPECT_EQ(pieces("'r"), (Pieces{"'", "r"}));
}

TEST(Pretokenizer, UsesUnicodeClasses) {
  EXPECT_EQ(pieces("na\u00efve\u00bd"), (Pieces{"na\u00efve", "\u00bd"}));
  EXPECT_EQ(pieces("e\u0301x"), (Pieces{"e", "\u0301", "x"}));            // a mark is no letter
  EXPECT_EQ(pieces("a\u00a0b"), (Pieces{"a", "\u00a0", "b"}));            // only U+0020 joins the word
  EXPECT_EQ(pieces("\u3000\u3000b"), (Pieces{"\u3000", "\u3000", "b"}));  // the run's last is three bytes
  EXPECT_EQ(pieces("a\u0085"), (Pieces{"a", "\u0085"}));
  EXPECT_EQ(pieces("\u200b\u0085."), (Pieces{"\u200b", "\u0085", "."}));
}

TEST(Pretokenizer, TreatsMalformedBytesAsOtherCharacters) {
  EXPECT_EQ(pieces("a\xff\xfe!b"), (Pieces{"a", "\xff\xfe!", "b"}));
  EXPECT_EQ(pieces("a\xc3"), (Pieces{"a", "\xc3"}));
  EXPECT_EQ(pieces("\xed\xa0\x80"), Pieces{"\xed\xa0\x80"});  // a surrogate
}

TEST(Pretokenizer, PiecesConcatenateToTheText) {
  std::mt19937 random(1);
  const std::string_view alphabet("a'sr 1\n\t.\xc2\xa0\xe3\x80\xff\x80", 16);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (std::size_t i = random() % 20; i > 0; --i) {
      text += alphabet[random() % alphabet.size()];
    }
    std::string joined;
    for (const std::string& piece : pieces(text)) {
      ASSERT_FALSE(piece.empty());
      joined += piece;
    }
    ASSERT_EQ(joined, text);
  }
}

}  // namespace
}  // namespace wych::data
