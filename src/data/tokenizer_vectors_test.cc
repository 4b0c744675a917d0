// Ids of the packages `tokenizers` and `tiktoken` for texts that are hard to cut, by real vocabularies of
// which tests/data/tokenizer holds as much as the texts need. scripts/check_tokenizers.py makes them and,
// with the whole vocabularies, compares more.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "data/tokenizer.h"

namespace wych::data {
namespace {

using Json = nlohmann::json;

constexpr const char* kFolder = "tests/data/tokenizer/";

class TokenizerVectors : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const Json root = Json::parse(std::ifstream(std::string(kFolder) + "torture.json"));
    texts_ = root.at("texts").get<std::vector<std::string>>();
    ASSERT_GT(texts_.size(), 30U);
    for (const Json& entry : root.at("tokenizers")) {
      if (entry.at("file") == GetParam()) {
        ids_ = entry.at("ids").get<std::vector<std::vector<i32>>>();
        special_ids_ = ids_;
        for (const auto& [index, ids] : entry.at("ids_with_special_tokens").items()) {
          special_ids_.at(static_cast<std::size_t>(std::stoi(index))) = ids.get<std::vector<i32>>();
        }
      }
    }
    ASSERT_EQ(ids_.size(), texts_.size());
    ASSERT_NE(ids_, special_ids_);
  }

  std::vector<std::string> texts_;
  std::vector<std::vector<i32>> ids_;
  std::vector<std::vector<i32>> special_ids_;
};

TEST_P(TokenizerVectors, GivesTheReferencesIds) {
  const Tokenizer tokenizer = Tokenizer::load(kFolder + GetParam()).value();
  const bool normalizes = !tokenizer.parts().normalizer.forms().empty();
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    EXPECT_EQ(tokenizer.encode(texts_[i]), ids_[i]) << texts_[i];
    EXPECT_EQ(tokenizer.encode(texts_[i], SpecialText::kToken), special_ids_[i]) << texts_[i];
    if (!normalizes) {
      EXPECT_EQ(tokenizer.decode(ids_[i]), texts_[i]);
    }
  }
  ThreadPool pool(2);
  EXPECT_EQ(tokenizer.encode_all(texts_, pool), ids_);
  EXPECT_EQ(tokenizer.encode_all(texts_, pool, SpecialText::kToken), special_ids_);
}

// What is written for another program gives the same ids here; what came from a tokenizer.json is not
// touched.
TEST_P(TokenizerVectors, SurvivesWriting) {
  const Tokenizer tokenizer = Tokenizer::load(kFolder + GetParam()).value();
  const std::string json = tokenizer.to_json();
  const Tokenizer again = Tokenizer::from_json(json, "written").value();
  EXPECT_EQ(again.to_json(), json);
  EXPECT_EQ(again.vocab_size(), tokenizer.vocab_size());
  EXPECT_EQ(again.eos_id(), tokenizer.eos_id());
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    EXPECT_EQ(again.encode(texts_[i], SpecialText::kToken), special_ids_[i]) << texts_[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Real, TokenizerVectors,
                         testing::Values("dolma2.json", "neox.json", "deepseek.json", "gpt2.tiktoken",
                                         "cl100k_base.tiktoken", "o200k_base.tiktoken",
                                         "trained-qwen2.json"));

}  // namespace
}  // namespace wych::data
