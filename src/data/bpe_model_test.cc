// The encoder's three ways (short, long, cached) against the definition, and against each other.
#include "data/bpe_model.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace wych::data {
namespace {

// Bytes, then random merges; few letters, so that pairs overlap and make the same token in several ways.
BpeModel random_model(std::mt19937& random, MergeRank rank, bool whole_pieces) {
  std::vector<std::string> tokens;
  std::map<std::string, i32> ids;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
    ids[tokens.back()] = byte;
  }
  std::vector<i32> used = {'a', 'b', 'c'};
  std::vector<BpeMerge> merges;
  std::map<std::pair<i32, i32>, bool> seen;
  for (int i = 0; i < 150; ++i) {
    const i32 left = used[random() % used.size()];
    const i32 right = used[random() % used.size()];
    const std::string whole =
        tokens[static_cast<std::size_t>(left)] + tokens[static_cast<std::size_t>(right)];
    if (whole.size() > 6 || seen[{left, right}]) {
      continue;
    }
    seen[{left, right}] = true;
    const auto [entry, is_new] = ids.emplace(whole, static_cast<i32>(tokens.size()));
    if (is_new) {
      tokens.push_back(whole);
      used.push_back(entry->second);
    }
    merges.push_back({left, right, entry->second});
  }
  return BpeModel(std::move(tokens), std::move(merges), rank, whole_pieces);
}

// The definition: the lowest rank, the leftmost of equals, until none is left.
std::vector<i32> slow_encode(const BpeModel& model, const std::string& piece) {
  std::vector<i32> ids;
  for (const char byte : piece) {
    ids.push_back(static_cast<unsigned char>(byte));
  }
  if (model.whole_pieces()) {
    for (std::size_t id = 0; id < model.tokens().size(); ++id) {
      if (model.tokens()[id] == piece) {
        return {static_cast<i32>(id)};
      }
    }
  }
  while (true) {
    std::size_t best = ids.size();
    i64 best_rank = -1;
    i32 result = -1;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      for (std::size_t m = 0; m < model.merges().size(); ++m) {
        const BpeMerge& merge = model.merges()[m];
        const i64 rank = model.rank() == MergeRank::kPosition ? static_cast<i64>(m) : merge.result;
        if (merge.left == ids[i] && merge.right == ids[i + 1] && (best_rank < 0 || rank < best_rank)) {
          best = i;
          best_rank = rank;
          result = merge.result;
        }
      }
    }
    if (best_rank < 0) {
      return ids;
    }
    ids[best] = result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(BpeModel, AgreesWithTheDefinition) {
  std::mt19937 random(17);
  for (int round = 0; round < 12; ++round) {
    const BpeModel model =
        random_model(random, round % 2 == 0 ? MergeRank::kPosition : MergeRank::kResult, round % 3 == 0);
    PieceCache cache;
    for (int i = 0; i < 150; ++i) {
      std::string piece;
      for (std::size_t size = 1 + random() % (i % 10 == 0 ? 90 : 12); size > 0; --size) {
        piece += "aabbcd"[random() % 6];
      }
      const std::vector<i32> expected = slow_encode(model, piece);
      std::vector<i32> ids;
      model.encode(piece, ids);
      ASSERT_EQ(ids, expected) << piece;
      for (int again = 0; again < 2; ++again) {
        ids.clear();
        model.encode(piece, cache, ids);
        ASSERT_EQ(ids, expected) << piece;
      }
    }
  }
}

TEST(BpeModel, DistinguishesZeroBytesInTheCache) {
  std::mt19937 random(1);
  const BpeModel model = random_model(random, MergeRank::kPosition, false);
  PieceCache cache;
  std::vector<i32> ids;
  for (const std::string_view piece : {std::string_view("x\0", 2), std::string_view("x\0\0", 3)}) {
    model.encode(piece, cache, ids);
  }
  EXPECT_EQ(ids, (std::vector<i32>{'x', 0, 'x', 0, 0}));
}

TEST(TokenIndex, FindsEveryTokenAndNothingElse) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 5000; ++i) {
    tokens.push_back(i % 7 == 0 ? "" : "t" + std::to_string(i));
  }
  tokens.emplace_back("t1");  // a repetition: the first counts
  const TokenIndex index(tokens);
  for (std::size_t id = 0; id < 5000; ++id) {
    EXPECT_EQ(index.find(tokens[id], tokens), tokens[id].empty() ? -1 : static_cast<i32>(id));
  }
  EXPECT_EQ(index.find("t", tokens), -1);
}

TEST(BpeModelDeathTest, ChecksItsTables) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  const auto model = [&](std::vector<std::string> with, std::vector<BpeMerge> merges) {
    return BpeModel(std::move(with), std::move(merges), MergeRank::kPosition, false);
  };
  std::vector<std::string> lacking = tokens;
  lacking['q'] = "qq";
  EXPECT_DEATH(model(lacking, {}), "0x71");
  lacking = tokens;
  lacking[0xff] = "";  // UTF-8 never has it
  EXPECT_TRUE(model(lacking, {}).covers("abc"));
  EXPECT_FALSE(model(lacking, {}).covers("\xff"));
  tokens.emplace_back("ab");
  EXPECT_DEATH(model(tokens, {{'a', 'c', 256}}), "concatenate");
  EXPECT_DEATH(model(tokens, {{'a', 'b', 256}, {'a', 'b', 256}}), "twice");
}

}  // namespace
}  // namespace wych::data
