// Every fault a token file can be read with: found, named, and with what to do.
#include "data/inspect.h"

#include <gtest/gtest.h>

#include <random>

#include "data/bpe_trainer.h"
#include "data/test_folder.h"

namespace wych::data {
namespace {

constexpr i32 kEos = 50256;

// Ids of a vocabulary of 50257, an end of text now and then.
std::vector<i32> healthy(std::size_t count) {
  std::mt19937 random(5);
  std::vector<i32> tokens(count);
  for (std::size_t i = 0; i < count; ++i) {
    tokens[i] = i % 100 == 99 ? kEos : static_cast<i32>(random() % 50256);
  }
  return tokens;
}

class Inspect : public testing::Test {
 protected:
  std::string write(const std::vector<i32>& tokens, TokenType type, const char* name = "a.npy") const {
    (void)write_token_file(folder_.path(name), type, tokens).value();
    return folder_.path(name);
  }
  static Inspection inspect(const std::string& path, const InspectOptions& options) {
    return inspect_token_file(path, options).value();
  }
  static std::string only_fault(const Inspection& found) {
    EXPECT_EQ(found.faults.size(), 1U) << found.text;
    return found.faults.empty() ? "" : found.faults[0];
  }
  static bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
  TestFolder folder_;
};

TEST_F(Inspect, DescribesAHealthyFile) {
  const Inspection found =
      inspect(write(healthy(2000), TokenType::kU16), {.vocab_size = 50257, .eos_id = kEos});
  EXPECT_TRUE(found.faults.empty()) << found.faults[0];
  for (const char* part : {"format     raw\n", "ids        u16\n", "tokens     2000\n",
                           "largest    50256 of a", "documents  20 (end-of-text id 50256)"}) {
    EXPECT_TRUE(contains(found.text, part)) << found.text;
  }
}

TEST_F(Inspect, ShowsTheBeginningAsText) {
  const std::string text = "word by word by word by word";
  const Tokenizer tokenizer = train_bpe(std::vector<std::string_view>{text}, 300);
  std::vector<i32> tokens = tokenizer.encode("word\x1b by\n word");
  tokens.push_back(tokenizer.eos_id());
  tokens.push_back(65);
  const Inspection found = inspect(write(tokens, TokenType::kU16), {.tokenizer = &tokenizer});
  EXPECT_TRUE(contains(found.text, "beginning\n    word? by\n     word\n")) << found.text;
  EXPECT_TRUE(contains(found.text, "documents  2 "));
}

TEST_F(Inspect, FindsWideIdsReadAsNarrow) {
  const std::string path = write(healthy(2000), TokenType::kU32);
  const std::string fault =
      only_fault(inspect(path, {.raw_type = TokenType::kU16, .vocab_size = 50257, .eos_id = kEos}));
  EXPECT_TRUE(contains(fault, "looks like u32 ids read as u16")) << fault;
  EXPECT_TRUE(contains(fault, "--dtype u32"));
  EXPECT_TRUE(
      contains(only_fault(inspect(write(healthy(2000), TokenType::kU64), {.raw_type = TokenType::kU32})),
               "looks like u64 ids read as u32"));
  // A vocabulary of u16 and a file of u32: the type follows from the vocabulary, wrongly.
  EXPECT_TRUE(contains(only_fault(inspect(path, {.vocab_size = 50257})), "looks like u32"));
}

TEST_F(Inspect, FindsNarrowIdsReadAsWide) {
  const std::string path = write(healthy(2000), TokenType::kU16);
  const std::string fault = only_fault(inspect(path, {.raw_type = TokenType::kU32, .vocab_size = 100278}));
  EXPECT_TRUE(contains(fault, "looks like u16 ids read as u32")) << fault;
  EXPECT_TRUE(contains(fault, "--dtype u16"));
  EXPECT_TRUE(contains(only_fault(inspect(path, {.raw_type = TokenType::kU32})), "looks like u16"));
}

TEST_F(Inspect, GuessesTheTypeWhereNothingTells) {
  for (const TokenType type : {TokenType::kU16, TokenType::kU32, TokenType::kU64}) {
    const Inspection found = inspect(write(healthy(2000), type, "ids"), {});
    EXPECT_TRUE(found.faults.empty());
    EXPECT_TRUE(contains(found.text, std::string("ids        ") + std::string(token_type_name(type)) +
                                         " (guessed; say it with --dtype)"))
        << found.text;
  }
}

TEST_F(Inspect, FindsIdsOutsideTheVocabulary) {
  std::vector<i32> tokens = healthy(2000);
  tokens[1234] = 60000;
  tokens[1300] = 60001;
  const std::string fault =
      only_fault(inspect(write(tokens, TokenType::kU16), {.vocab_size = 50257, .eos_id = kEos}));
  EXPECT_TRUE(
      contains(fault, "2 of 2000 ids are outside the vocabulary of 50257, the first, 60000, at token 1234"))
      << fault;
  EXPECT_TRUE(contains(fault, "--tokenizer"));
}

TEST_F(Inspect, MissesTheEndOfText) {
  const std::string path = write(healthy(2000), TokenType::kU16);
  EXPECT_TRUE(contains(only_fault(inspect(path, {.vocab_size = 60000, .eos_id = 59999})),
                       "the end-of-text id 59999 is not among the first 2000 tokens"));
  // One after the first million does not count.
  std::vector<i32> late(1000200, 7);
  late[1000100] = kEos;
  EXPECT_TRUE(
      contains(only_fault(inspect(write(late, TokenType::kU16), {.vocab_size = 50257, .eos_id = kEos})),
               "not among the first 1000000 tokens"));
}

TEST_F(Inspect, FindsAFileThatWasNotWrittenToItsEnd) {
  std::vector<i32> tokens = healthy(2000);
  tokens.resize(12000, 0);
  EXPECT_TRUE(
      contains(only_fault(inspect(write(tokens, TokenType::kU16), {.vocab_size = 50257, .eos_id = kEos})),
               "the last 10000 ids are 0"));
}

TEST_F(Inspect, ChecksTheSidecar) {
  const std::string path = write(healthy(200), TokenType::kU16);
  (void)folder_.write("a.csv.gz", "0,100\n100,200\n");
  EXPECT_TRUE(contains(inspect(path, {.vocab_size = 50257}).text, "sidecar    2 documents"));
  (void)folder_.write("a.csv.gz", "0,100\n100,201\n");
  EXPECT_TRUE(contains(only_fault(inspect(path, {.vocab_size = 50257})), "a.csv.gz:2"));
}

TEST_F(Inspect, SaysWhatCannotBeRead) {
  EXPECT_TRUE(contains(inspect_token_file(folder_.write("e.npy", ""), {}).error().text(), "is empty"));
  EXPECT_TRUE(
      contains(inspect_token_file(folder_.write("o.npy", "abc"), {}).error().text(), "not a multiple of 2"));
  EXPECT_FALSE(inspect_token_file(folder_.path("none"), {}).has_value());
}

}  // namespace
}  // namespace wych::data
