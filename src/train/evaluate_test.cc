// Models on disk that do not fit what they are asked to read.
#include "train/evaluate.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace wych::train {
namespace {

constexpr const char* kModel = "tests/golden/olmoe";

class Evaluate : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "wych_evaluate_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

TEST_F(Evaluate, RefusesATokenizerThatIsLargerThanTheModel) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  tokens.emplace_back();
  std::ofstream(folder_ + "/tokenizer.json") << data::Tokenizer(tokens, {}, 256).to_json();
  EXPECT_TRUE(load_model_tokenizer(folder_, 257).has_value());
  const Expected<data::Tokenizer> refused = load_model_tokenizer(folder_, 256);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind, ErrorKind::kData);
  EXPECT_NE(refused.error().text().find("has 257 tokens; the model has 256"), std::string::npos)
      << refused.error().text();
}

TEST_F(Evaluate, RefusesASequenceThatIsLongerThanTheFile) {
  const std::string file = folder_ + "/tokens";
  std::ofstream(file, std::ios::binary) << std::string(2 * 30, '\0');
  ThreadPool pool(1);
  const Expected<FileEvaluation> refused = evaluate_file(kModel, file, i64{1} << 24U, std::nullopt, pool);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind, ErrorKind::kData);
  EXPECT_NE(refused.error().text().find("has 30 tokens, fewer than one sequence of 16777216"),
            std::string::npos)
      << refused.error().text();
  const Expected<FileEvaluation> accepted = evaluate_file(kModel, file, 10, std::nullopt, pool);
  ASSERT_TRUE(accepted.has_value()) << accepted.error().text();
  EXPECT_EQ(accepted->targets, 27);
}

}  // namespace
}  // namespace wych::train
