// The incremental trainer against its definition, recounted at every step.
#include "data/bpe_trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "data/pattern.h"

namespace wych::data {
namespace {

// The definition in bpe_trainer.h, recounted from nothing at every step.
std::vector<BpeMerge> slow_merges(const std::vector<std::string_view>& texts, i64 vocab_size) {
  std::vector<std::vector<i32>> pieces;
  for (const std::string_view text : texts) {
    for_each_piece(Pattern::kGpt2, text, [&](std::string_view piece) {
      std::vector<i32> symbols;
      for (const char byte : piece) {
        symbols.push_back(static_cast<unsigned char>(byte));
      }
      pieces.push_back(symbols);
    });
  }
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  std::vector<BpeMerge> merges;
  while (static_cast<i64>(tokens.size()) + 1 < vocab_size) {
    std::map<std::pair<i32, i32>, i64> counts;  // ascending: the first maximum has the smallest ids
    for (const auto& piece : pieces) {
      for (std::size_t i = 0; i + 1 < piece.size(); ++i) {
        ++counts[{piece[i], piece[i + 1]}];
      }
    }
    std::pair<i32, i32> best{-1, -1};
    i64 best_count = 1;
    for (const auto& [pair, count] : counts) {
      const std::string spelled =
          tokens[static_cast<std::size_t>(pair.first)] + tokens[static_cast<std::size_t>(pair.second)];
      if (count > best_count && std::find(tokens.begin(), tokens.end(), spelled) == tokens.end()) {
        best = pair;
        best_count = count;
      }
    }
    if (best.first < 0) {
      break;
    }
    const auto result = static_cast<i32>(tokens.size());
    tokens.push_back(tokens[static_cast<std::size_t>(best.first)] +
                     tokens[static_cast<std::size_t>(best.second)]);
    merges.push_back({best.first, best.second, result});
    for (auto& piece : pieces) {
      for (std::size_t i = 0; i + 1 < piece.size(); ++i) {
        if (piece[i] == best.first && piece[i + 1] == best.second) {
          piece[i] = result;
          piece.erase(piece.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
      }
    }
  }
  return merges;
}

void expect_same_merges(const std::vector<std::string_view>& texts, i64 vocab_size) {
  const Tokenizer tokenizer = train_bpe(texts, vocab_size);
  const std::vector<BpeMerge> expected = slow_merges(texts, vocab_size);
  ASSERT_EQ(tokenizer.merges().size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(tokenizer.merges()[i].left, expected[i].left) << "merge " << i;
    ASSERT_EQ(tokenizer.merges()[i].right, expected[i].right) << "merge " << i;
    ASSERT_EQ(tokenizer.merges()[i].result, expected[i].result) << "merge " << i;
  }
}

TEST(BpeTrainer, AgreesWithCountingAnew) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    std::string text;
    for (int i = 0; i < 600; ++i) {
      text += "aab bcd."[random() % (round % 2 == 0 ? 3 : 8)];  // few letters: overlaps and ties abound
    }
    expect_same_merges({text, "aaaaaaa aaaa", text.substr(100)}, 300);
  }
}

TEST(BpeTrainer, BreaksTiesTowardsSmallerIds) {
  const std::string_view texts[] = {"zy\nxw\nzy\nxw"};
  const Tokenizer tokenizer = train_bpe(texts, 258);
  ASSERT_EQ(tokenizer.merges().size(), 1U);
  EXPECT_EQ(tokenizer.token(256), "xw");
}

TEST(BpeTrainer, NumbersBytesThenMergesThenEndOfText) {
  const std::string_view texts[] = {"abab abab"};
  const Tokenizer tokenizer = train_bpe(texts, 259);
  EXPECT_EQ(tokenizer.vocab_size(), 259);
  EXPECT_EQ(tokenizer.token(97), "a");
  EXPECT_EQ(tokenizer.token(256), "ab");
  EXPECT_EQ(tokenizer.token(257), "abab");
  EXPECT_EQ(tokenizer.eos_id(), 258);
}

TEST(BpeTrainer, StopsWhenNoPairOccursTwice) {
  const std::string_view texts[] = {"abc abd"};
  const Tokenizer tokenizer = train_bpe(texts, 1000);
  EXPECT_EQ(tokenizer.vocab_size(), 256 + 1 + 1);  // "ab"
  EXPECT_EQ(train_bpe({}, 300).vocab_size(), 257);
}

TEST(BpeTrainer, NeverSpellsATokenTwice) {
  std::mt19937 random(13);
  std::string text;
  for (int i = 0; i < 4000; ++i) {
    text += "ab "[random() % 3];
  }
  const std::string_view texts[] = {text};
  const Tokenizer tokenizer = train_bpe(texts, 500);
  std::set<std::string_view> spelled;
  for (i32 id = 0; id < tokenizer.vocab_size(); ++id) {
    EXPECT_TRUE(spelled.insert(tokenizer.token(id)).second) << id;
  }
}

}  // namespace
}  // namespace wych::data
