// Witten-Bell by hand on six tokens, sums of probabilities, and which targets are scored.
#include "data/baselines.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/test_folder.h"

namespace wych::data {
namespace {

std::vector<TokenFile> write_files(const TestFolder& folder, const std::vector<std::vector<i32>>& contents) {
  std::vector<TokenFile> files;
  for (std::size_t i = 0; i < contents.size(); ++i) {
    const std::string path = folder.path("f" + std::to_string(i));
    (void)write_token_file(path, TokenType::kU16, contents[i]).value();
    files.push_back(TokenFile::open(path, TokenType::kU16).value());
  }
  return files;
}

// 0 1 0 1 0 2 | 1: N = 7, T = 3, V = 4; after 0: 1 1 2; after 1: 0 0 (not across files).
TEST(Baselines, FollowWittenAndBell) {
  const TestFolder folder;
  const Baselines model =
      Baselines::train(whole_files(write_files(folder, {{0, 1, 0, 1, 0, 2}, {1}})), 4).value();
  const auto unigram = [](double count) { return (count + 0.75) / 10.0; };
  EXPECT_DOUBLE_EQ(model.unigram_log_probability(0), std::log(unigram(3)));
  EXPECT_DOUBLE_EQ(model.unigram_log_probability(3), std::log(unigram(0)));
  EXPECT_DOUBLE_EQ(model.bigram_log_probability(0, 1), std::log((2 + 2 * unigram(3)) / 5));
  EXPECT_DOUBLE_EQ(model.bigram_log_probability(0, 3), std::log((0 + 2 * unigram(0)) / 5));
  EXPECT_DOUBLE_EQ(model.bigram_log_probability(1, 0), std::log((2 + 1 * unigram(3)) / 3));
  EXPECT_DOUBLE_EQ(model.bigram_log_probability(2, 0), std::log(unigram(3)));  // 2 has no successor
}

TEST(Baselines, ProbabilitiesSumToOne) {
  const TestFolder folder;
  const Baselines model =
      Baselines::train(whole_files(write_files(folder, {{5, 1, 4, 1, 5, 2, 2, 6, 1, 5}})), 8).value();
  double unigram = 0;
  for (i32 token = 0; token < 8; ++token) {
    unigram += std::exp(model.unigram_log_probability(token));
    double bigram = 0;
    for (i32 next = 0; next < 8; ++next) {
      bigram += std::exp(model.bigram_log_probability(token, next));
    }
    EXPECT_NEAR(bigram, 1.0, 1e-14) << token;
  }
  EXPECT_NEAR(unigram, 1.0, 1e-14);
}

TEST(Baselines, ScoreTheTargetsOfTheReader) {
  const TestFolder folder;
  const Baselines model =
      Baselines::train(whole_files(write_files(folder, {{0, 1, 0, 1, 0, 2, 3}})), 4).value();
  BatchOptions options;
  options.sequence_length = 3;
  options.sequences_per_batch = 2;
  options.vocab_size = 4;
  options.eos_id = 3;
  const EvalReader reader =
      EvalReader::create(write_files(folder, {{0, 1, 2, 1, 0, 3, 0, 0, 1, 2}}), options).value();
  const BaselineScores scores = model.score(reader).value();
  EXPECT_EQ(scores.targets, 6);
  double nats = 0;
  for (const auto& [previous, token] : {std::pair{0, 1}, {1, 2}, {1, 0}, {0, 3}, {0, 0}, {0, 1}}) {
    nats -= model.bigram_log_probability(previous, token) / 6;
  }
  EXPECT_NEAR(scores.bigram_nats, nats, 1e-12);
}

TEST(Baselines, RefuseForeignIds) {
  const TestFolder folder;
  EXPECT_FALSE(Baselines::train(whole_files(write_files(folder, {{0, 4}})), 4).has_value());
}

}  // namespace
}  // namespace wych::data
