// From text files to a data folder: the ids of the whole text, whatever threads and batches; what is held
// out; a folder that appears as a whole.
#include "data/text_tokenize.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/bpe_trainer.h"
#include "data/test_folder.h"
#include "data/tokenizer.h"

namespace wych::data {
namespace {

std::string story(int number) {
  std::string text = "Story " + std::to_string(number) + ".\n";
  for (int i = 0; i < 40; ++i) {
    text += "The " + std::to_string((number * 31 + i) % 17) + " rivers meet.\n";
    text += i % 5 == 0 ? "\n  And then they don't...\n" : "";
  }
  return text;
}

class TextTokenize : public testing::Test {
 protected:
  void SetUp() override {
    const std::string sample = story(1) + story(2);
    tokenizer_file_ =
        folder_.write("tokenizer.json", train_bpe(std::vector<std::string_view>{sample}, 400).to_json());
    tokenizer_.emplace(Tokenizer::load(tokenizer_file_).value());
    std::string jsonl;
    for (int i = 0; i < 200; ++i) {
      std::string line;
      for (const char c : story(i)) {
        line += c == '\n' ? "\\n" : std::string(1, c);
      }
      jsonl += "{\"text\": \"" + line + "\"}\n";
    }
    jsonl_ = folder_.write("stories.jsonl", jsonl);
  }
  TokenizeOptions options(const std::string& out, std::vector<std::string> files) const {
    return {.files = std::move(files), .tokenizer = tokenizer_file_, .folder = folder_.path(out)};
  }
  static Expected<TokenizeReport> run(const TokenizeOptions& options, int threads = 2) {
    ThreadPool pool(threads);
    return tokenize_text(options, pool, [](const TokenizeProgress&) {});
  }
  static std::vector<i32> tokens_of(const Dataset& dataset, Split split) {
    std::vector<i32> all;
    for (const InstanceFile& file : open_split(dataset, split, {}, true).value()) {
      std::vector<i32> tokens(static_cast<std::size_t>(file.tokens.num_tokens()));
      file.tokens.read(0, dataset.vocab_size, tokens).value();
      all.insert(all.end(), tokens.begin(), tokens.end());
    }
    return all;
  }
  std::vector<i32> encoded(const std::string& text) const {
    std::vector<i32> ids = tokenizer_->encode(text);
    ids.push_back(tokenizer_->eos_id());
    return ids;
  }

  TestFolder folder_;
  std::string tokenizer_file_;
  std::optional<Tokenizer> tokenizer_;
  std::string jsonl_;
};

TEST_F(TextTokenize, WritesTheIdsOfEveryDocument) {
  const TokenizeReport report = run(options("out", {jsonl_})).value();
  const Dataset read = load_dataset(folder_.path("out")).value();
  std::vector<i32> expected;
  i64 bytes = 0;
  for (int i = 0; i < 200; ++i) {
    const std::vector<i32> ids = encoded(story(i));
    expected.insert(expected.end(), ids.begin(), ids.end());
    bytes += std::ssize(story(i));
  }
  EXPECT_EQ(tokens_of(read, Split::kTrain), expected);
  EXPECT_EQ(report.documents, 200);
  EXPECT_EQ(read.files[0].documents, 200);
  EXPECT_EQ(read.text_bytes(Split::kTrain), bytes);
  EXPECT_EQ(read.type, TokenType::kU16);
  EXPECT_EQ(Tokenizer::load(folder_.path("out/tokenizer.json")).value().to_json(), tokenizer_->to_json());
}

// Cut into pieces or not, the ids are those of the whole text.
TEST_F(TextTokenize, APlainFileHasTheIdsOfItsWholeText) {
  std::string text;
  while (text.size() < 3500000) {
    text += story(static_cast<int>(text.size() % 977));
  }
  const TokenizeReport report = run(options("out", {folder_.write("book.txt", text)})).value();
  EXPECT_EQ(report.documents, 1);
  EXPECT_EQ(tokens_of(report.dataset, Split::kTrain), encoded(text));
}

// The same where every line is indented, so that no line is a place to cut.
TEST_F(TextTokenize, AnIndentedFileHasTheIdsOfItsWholeText) {
  std::string text;
  while (text.size() < 2500000) {
    text += "   " + std::to_string(text.size()) +
            " In the beginning  was\tthe word's end...\n\n     (and) more of it\n";
  }
  const TokenizeReport report = run(options("out", {folder_.write("book.txt", text)})).value();
  EXPECT_EQ(tokens_of(report.dataset, Split::kTrain), encoded(text));
}

// A tokenizer that puts a space and a beginning-of-text token before a text does so once a document, and the
// folder's copy of it does the same.
TEST_F(TextTokenize, WhatComesBeforeATextComesBeforeDocumentsOnly) {
  nlohmann::json root = nlohmann::json::parse(tokenizer_->to_json());
  const i64 start = tokenizer_->vocab_size();
  root["pre_tokenizer"]["add_prefix_space"] = true;
  root["added_tokens"].push_back({{"id", start}, {"content", "<s>"}, {"special", true}});
  root["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {start}}, {"tokens", {"<s>"}}}}}}};
  TokenizeOptions options = this->options("out", {});
  options.tokenizer = folder_.write("prefixing.json", root.dump());
  tokenizer_.emplace(Tokenizer::load(options.tokenizer).value());
  std::string text;
  while (text.size() < 2500000) {
    text += story(static_cast<int>(text.size() % 977));
  }
  options.files = {folder_.write("a.txt", text), folder_.write("b.txt", text)};
  const TokenizeReport report = run(options).value();
  std::vector<i32> expected = encoded(text);
  EXPECT_EQ(expected[0], start);
  expected.insert(expected.end(), expected.begin(), expected.end());
  EXPECT_TRUE(tokens_of(report.dataset, Split::kTrain) == expected);
  const Tokenizer copy = Tokenizer::load(folder_.path("out/tokenizer.json")).value();
  EXPECT_EQ(copy.encode("a word"), tokenizer_->encode("a word"));
  EXPECT_EQ(copy.eos_id(), tokenizer_->eos_id());
}

TEST_F(TextTokenize, DoesNotDependOnThreadsOrBatches) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text += story(i);
  }
  const std::string book = folder_.write("book.txt", text);
  std::vector<u64> hashes;
  for (const auto& [threads, batch] :
       {std::pair{1, i64{1} << 25U}, std::pair{4, i64{1} << 16U}, std::pair{3, i64{1}}}) {
    TokenizeOptions options = this->options("out" + std::to_string(threads), {jsonl_, book, jsonl_});
    options.batch_bytes = batch;
    options.valid_fraction = 0.1;
    options.shard_tokens = 20000;
    const Dataset dataset = run(options, threads).value().dataset;
    EXPECT_GT(dataset.files.size(), 4U);
    for (const DatasetFile& file : dataset.files) {
      hashes.push_back(file.xxh3);
    }
  }
  ASSERT_EQ(hashes.size() % 3, 0U);
  const auto third = static_cast<std::ptrdiff_t>(hashes.size() / 3);
  EXPECT_TRUE(std::equal(hashes.begin(), hashes.begin() + third, hashes.begin() + third));
  EXPECT_TRUE(std::equal(hashes.begin(), hashes.begin() + third, hashes.begin() + 2 * third));
}

TEST_F(TextTokenize, HoldsOutTheShareAskedForAndNothingIsInBoth) {
  TokenizeOptions options = this->options("out", {jsonl_});
  options.valid_fraction = 0.1;
  const Dataset dataset = run(options).value().dataset;
  i64 held_out = 0;
  i64 trained = 0;
  for (const DatasetFile& file : dataset.files) {
    (file.split == Split::kValid ? held_out : trained) += file.documents;
  }
  EXPECT_EQ(held_out, 20);
  EXPECT_EQ(trained, 180);
  const std::vector<i32> all = tokens_of(dataset, Split::kTrain);
  const std::vector<i32> valid = tokens_of(dataset, Split::kValid);
  const i32 eos = dataset.eos_id;
  for (auto begin = valid.begin(); begin != valid.end();) {
    const auto end = std::find(begin, valid.end(), eos) + 1;
    EXPECT_EQ(std::search(all.begin(), all.end(), begin, end), all.end());
    begin = end;
  }
}

// Held-out sections of a book end documents on both sides; together they are the book.
TEST_F(TextTokenize, HoldsOutSectionsOfAPlainFile) {
  std::string text;
  while (text.size() < 2000000) {
    text += story(static_cast<int>(text.size() % 977));
  }
  TokenizeOptions options = this->options("out", {folder_.write("book.txt", text)});
  options.valid_fraction = 0.05;
  const TokenizeReport report = run(options).value();
  const i64 valid = report.dataset.text_bytes(Split::kValid);
  EXPECT_EQ(report.dataset.text_bytes(Split::kTrain) + valid, std::ssize(text));
  EXPECT_NEAR(static_cast<double>(valid) / static_cast<double>(text.size()), 0.05, 0.04);
  const std::vector<i32> ids = tokens_of(report.dataset, Split::kValid);
  EXPECT_EQ(ids.back(), report.dataset.eos_id);
  EXPECT_NE(
      text.find(tokenizer_->decode(std::span(ids.begin(), std::find(ids.begin(), ids.end(), ids.back())))),
      std::string::npos);
}

TEST_F(TextTokenize, WritesOtherTypesAndEnds) {
  TokenizeOptions options = this->options("out", {jsonl_});
  options.type = TokenType::kU32;
  options.eos_id = 65;
  const Dataset dataset = run(options).value().dataset;
  EXPECT_EQ(dataset.type, TokenType::kU32);
  EXPECT_EQ(tokens_of(dataset, Split::kTrain).back(), 65);
}

TEST_F(TextTokenize, LeavesNothingBehindWhenItFails) {
  const auto error = [&](const TokenizeOptions& options) {
    const auto result = run(options);
    EXPECT_FALSE(std::filesystem::exists(options.folder));
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path("."))) {
      EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos);
    }
    return result ? "no error" : result.error().text();
  };
  const std::string bad = folder_.write("bad.txt", "word\n\xff\xfe");
  EXPECT_NE(error(options("out", {jsonl_, bad})).find("bad.txt: is not UTF-8: byte 5"), std::string::npos);
  EXPECT_NE(error(options("out", {folder_.path("no*.txt")})).find("matches no file"), std::string::npos);
  EXPECT_NE(error(options("out", {folder_.write("empty.txt", "")})).find("hold no text"), std::string::npos);
  TokenizeOptions narrow = options("out", {jsonl_});
  narrow.type = TokenType::kU8;
  EXPECT_NE(error(narrow).find("u8 does not hold"), std::string::npos);
  narrow.type.reset();
  narrow.eos_id = 1000000;
  EXPECT_NE(error(narrow).find("is 1000000; the tokenizer has"), std::string::npos);
  (void)run(options("there", {jsonl_})).value();
  EXPECT_NE(run(options("there", {jsonl_})).error().text().find("exists already"), std::string::npos);
}

}  // namespace
}  // namespace wych::data
