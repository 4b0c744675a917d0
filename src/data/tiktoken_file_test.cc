// Rank files: what they leave open, and every kind of damage. Ids of real ones: tokenizer_vectors_test.cc.
#include <gtest/gtest.h>

#include "base/file.h"
#include "data/tokenizer.h"

namespace wych::data {
namespace {

std::string real_ranks() { return read_file("tests/data/tokenizer/gpt2.tiktoken", ErrorKind::kData).value(); }

std::string refusal(const std::string& ranks, const std::string& where = "gpt2.tiktoken",
                    const TokenizerOptions& options = {}) {
  const auto result = Tokenizer::from_ranks(ranks, where, options);
  return result.has_value() ? "accepted" : result.error().text();
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(RankFile, TakesPatternAndSpecialTokensFromItsName) {
  const Tokenizer tokenizer = Tokenizer::from_ranks(real_ranks(), "folder/gpt2.tiktoken").value();
  EXPECT_EQ(tokenizer.eos_id(), 50256);
  EXPECT_EQ(tokenizer.vocab_size(), 50257);
  EXPECT_EQ(tokenizer.parts().pretokenizer.description(), "gpt2");
}

TEST(RankFile, TakesThemFromOptions) {
  const TokenizerOptions options{
      .end_of_text = "<end>", .pattern = "qwen2", .special_tokens = {{"<a>", 60000}, {"<end>", 60001}}};
  const Tokenizer tokenizer = Tokenizer::from_ranks(real_ranks(), "x", options).value();
  EXPECT_EQ(tokenizer.eos_id(), 60001);
  EXPECT_EQ(tokenizer.encode("<a>", SpecialText::kToken), std::vector<i32>{60000});
  EXPECT_EQ(tokenizer.parts().pretokenizer.description(), "qwen2");
}

TEST(RankFile, SaysWhatIsMissing) {
  EXPECT_TRUE(contains(refusal(real_ranks(), "x.tiktoken"), "--pattern"))
      << refusal(real_ranks(), "x.tiktoken");
  const TokenizerOptions no_special{.end_of_text = {}, .pattern = "llama3", .special_tokens = {}};
  EXPECT_TRUE(contains(refusal(real_ranks(), "x", no_special), "--special"));
  const TokenizerOptions taken{
      .end_of_text = {}, .pattern = "gpt2", .special_tokens = {{"<|endoftext|>", 5}}};
  EXPECT_TRUE(contains(refusal(real_ranks(), "x", taken), "cannot have id 5"));
  const TokenizerOptions no_end{.end_of_text = {}, .pattern = "gpt2", .special_tokens = {{"<x>", 60000}}};
  EXPECT_TRUE(contains(refusal(real_ranks(), "x", no_end), "end-of-text"));
}

TEST(RankFile, NamesTheLineThatIsDamaged) {
  const std::string good = real_ranks();
  EXPECT_TRUE(contains(refusal("IQ== 0\n???? 1\n"), "line 2"));
  EXPECT_TRUE(contains(refusal("IQ== 0\nIg== x\n"), "line 2"));
  EXPECT_TRUE(contains(refusal("IQ== 0\nIg==\n"), "line 2"));
  EXPECT_TRUE(contains(refusal("IQ== 0\nIg== -1\n"), "line 2"));
  EXPECT_TRUE(contains(refusal("IQ== 0\nIg== 99999999999\n"), "line 2"));
  EXPECT_TRUE(contains(refusal("IQ== 0\nIg== 0\n"), "rank 0 is taken twice"));
  EXPECT_TRUE(contains(refusal(good + "IQ== 50255\n"), "are the same token"));
  EXPECT_TRUE(contains(refusal("IQ== 0\n"), "0x00"));
  EXPECT_TRUE(contains(refusal(""), "0x00"));
}

TEST(RankFile, LeavesTheRankOfAnEmptyTokenUnused) {
  EXPECT_EQ(refusal(real_ranks() + "= 50255\n"), "accepted");
}

TEST(RankFile, AllowsCarriageReturnsAndEmptyLines) {
  std::string text;
  for (const char c : real_ranks()) {
    text += c == '\n' ? "\r\n" : std::string(1, c);
  }
  EXPECT_EQ(refusal(text + "\r\n\n"), "accepted");
}

}  // namespace
}  // namespace wych::data
