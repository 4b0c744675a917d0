// dataset.json in and out, damaged in many ways, and against token files that changed since.
#include "data/dataset.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "data/test_folder.h"

namespace wych::data {
namespace {

// A folder with two domains, of which the second has no held-out file.
Dataset write_dataset(const TestFolder& folder) {
  Dataset dataset;
  dataset.folder = folder.path("");
  dataset.folder.pop_back();
  dataset.recipe = "test";
  dataset.vocab_size = 10;
  dataset.eos_id = 9;
  dataset.tokenizer = "tokenizer.json";
  dataset.domains = {{"a", "free"}, {"b", "\"quoted\""}};
  const auto add = [&](const char* name, const char* domain, Split split, std::vector<i32> tokens,
                       i64 bytes) {
    const u64 hash = write_token_file(folder.path(name), dataset.type, tokens).value();
    dataset.files.push_back({name, domain, split, static_cast<i64>(tokens.size()), 1, bytes, hash});
  };
  add("a.train.npy", "a", Split::kTrain, {1, 2, 3, 9}, 30);
  add("a.valid.npy", "a", Split::kValid, {4, 9}, 7);
  add("b.train.npy", "b", Split::kTrain, {5, 6, 9}, 20);
  save_dataset(dataset).value();
  return dataset;
}

TEST(Dataset, ReadsWhatItWrote) {
  const TestFolder folder;
  const Dataset written = write_dataset(folder);
  const Dataset read = load_dataset(written.folder).value();
  EXPECT_EQ(read.recipe, "test");
  EXPECT_EQ(read.type, TokenType::kU16);
  EXPECT_EQ(read.vocab_size, 10);
  EXPECT_EQ(read.eos_id, 9);
  EXPECT_EQ(read.tokenizer, "tokenizer.json");
  ASSERT_EQ(read.domains.size(), 2U);
  EXPECT_EQ(read.domains[1].licence, "\"quoted\"");
  ASSERT_EQ(read.files.size(), 3U);
  EXPECT_EQ(read.files[1].split, Split::kValid);
  EXPECT_EQ(read.files[2].xxh3, written.files[2].xxh3);
  EXPECT_EQ(read.num_tokens(Split::kTrain), 7);
  EXPECT_EQ(read.num_tokens(Split::kTrain, "b"), 3);
  EXPECT_EQ(read.text_bytes(Split::kTrain), 50);
  EXPECT_EQ(read.text_bytes(Split::kValid, "a"), 7);
  const auto train = open_split(read, Split::kTrain, "", true).value();
  ASSERT_EQ(train.size(), 2U);
  EXPECT_EQ(train[1].tokens.num_tokens(), 3);
}

TEST(Dataset, FingerprintFollowsTheContentOfItsSplit) {
  const TestFolder folder;
  Dataset dataset = write_dataset(folder);
  const u64 train = dataset.fingerprint(Split::kTrain);
  const u64 valid = dataset.fingerprint(Split::kValid);
  EXPECT_NE(train, valid);
  dataset.files[1].xxh3 ^= 1U;
  EXPECT_EQ(dataset.fingerprint(Split::kTrain), train);
  EXPECT_NE(dataset.fingerprint(Split::kValid), valid);
  std::swap(dataset.files[0], dataset.files[2]);
  EXPECT_NE(dataset.fingerprint(Split::kTrain), train);
}

TEST(Dataset, FindsFilesThatChangedSince) {
  const TestFolder folder;
  const Dataset dataset = write_dataset(folder);
  const auto message = [&](Split split, std::string_view domain, bool verify) {
    const auto result = open_split(dataset, split, domain, verify);
    return result ? std::string() : result.error().text();
  };
  EXPECT_NE(message(Split::kValid, "b", false).find("no valid file of domain \"b\""), std::string::npos);
  (void)write_token_file(folder.path("a.train.npy"), TokenType::kU16, std::vector<i32>{1, 2, 4, 9}).value();
  EXPECT_EQ(message(Split::kTrain, "", false), "");
  EXPECT_NE(message(Split::kTrain, "", true).find("a.train.npy: is damaged"), std::string::npos);
  (void)write_token_file(folder.path("a.train.npy"), TokenType::kU16, std::vector<i32>{1, 2}).value();
  EXPECT_NE(message(Split::kTrain, "", false).find("has 2 tokens; dataset.json says 4"), std::string::npos);
}

TEST(Dataset, NamesTheFieldThatIsWrong) {
  const TestFolder folder;
  const Dataset dataset = write_dataset(folder);
  const std::string path = folder.path("dataset.json");
  const std::string good = read_file(path, ErrorKind::kData).value();
  struct Change {
    const char* from;
    const char* to;
    const char* message;
  };
  const Change changes[] = {
      {"wych-dataset", "other", "not a description of a dataset"},
      {"\"version\": 1", "\"version\": 2", "format version 2"},
      {"\"u16\"", "\"i8\"", "dtype: expected \"u8\" or \"u16\" or \"u32\" or \"u64\""},
      {"\"vocab_size\": 10", "\"vocab_size\": -10", "vocab_size"},
      {"\"eos_id\": 9", "\"eos_id\": 10", "eos_id: expected a number below 10"},
      {"\"tokenizer.json\"", "\"../tokenizer.json\"", "tokenizer: expected a file name"},
      {"\"a.valid.npy\"", "\"..\"", "files[1].file"},
      {"\"tokens\": 3", "\"tokens\": 3.5", "files[2].tokens"},
      {"\"split\": \"valid\"", "\"split\": \"test\"", "files[1].split"},
      {"\"xxh3\": \"", "\"xxh3\": \"0", "files[0].xxh3"},
      {"\"domains\": [", "\"domain\": [", "domains: expected a list"},
  };
  for (const Change& change : changes) {
    std::string changed = good;
    const std::size_t at = changed.find(change.from);
    ASSERT_NE(at, std::string::npos) << change.from;
    changed.replace(at, std::string_view(change.from).size(), change.to);
    (void)folder.write("dataset.json", changed);
    const auto result = load_dataset(dataset.folder);
    ASSERT_FALSE(result.has_value()) << change.to;
    EXPECT_NE(result.error().text().find(change.message), std::string::npos) << result.error().text();
    EXPECT_NE(result.error().text().find("dataset.json"), std::string::npos) << result.error().text();
  }
}

TEST(Dataset, SurvivesDamage) {
  const TestFolder folder;
  const Dataset dataset = write_dataset(folder);
  const std::string good = read_file(folder.path("dataset.json"), ErrorKind::kData).value();
  for (std::size_t size = 0; size + 3 < good.size(); size += 11) {
    (void)folder.write("dataset.json", good.substr(0, size));
    EXPECT_FALSE(load_dataset(dataset.folder).has_value()) << size;
  }
  std::mt19937 random(17);
  for (int round = 0; round < 200; ++round) {
    std::string damaged = good;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    (void)folder.write("dataset.json", damaged);
    if (const auto result = load_dataset(dataset.folder); result) {
      (void)open_split(*result, Split::kTrain, "", true).has_value();
    }
  }
}

TEST(BitsPerByte, CountsTokensPerByte) {
  EXPECT_DOUBLE_EQ(bits_per_byte(std::log(2.0), 10, 40), 0.25);
  EXPECT_DOUBLE_EQ(bits_per_byte(std::log(256.0), 7, 7), 8.0);
}

}  // namespace
}  // namespace wych::data
