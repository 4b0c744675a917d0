// What [data] names: folders, lists, patterns, mix files, sources; what is refused; the fingerprint.
#include "data/sources.h"

#include <gtest/gtest.h>

#include "data/bpe_trainer.h"
#include "data/dataset.h"
#include "data/test_folder.h"

namespace wych::data {
namespace {

class Sources : public testing::Test {
 protected:
  void SetUp() override {
    const std::string text = "word by word";
    tokenizer_ =
        folder_.write("tokenizer.json", train_bpe(std::vector<std::string_view>{text}, 260).to_json());
    config_.model.vocab_size = 300;
    config_.data.eos_id = 256;
    for (const char* name : {"a1.npy", "a2.npy", "b.npy"}) {
      (void)write(name, {1, 2, 3});
    }
  }
  std::string write(const std::string& name, const std::vector<i32>& tokens) const {
    (void)write_token_file(folder_.path(name), TokenType::kU16, tokens).value();
    return folder_.path(name);
  }
  [[nodiscard]] std::string error() const {
    const auto opened = open_data(config_);
    return opened ? "no error" : opened.error().text();
  }
  static std::vector<std::string> names(const std::vector<InstanceFile>& files) {
    std::vector<std::string> result;
    for (const InstanceFile& file : files) {
      result.push_back(file.tokens.path().substr(file.tokens.path().rfind('/') + 1));
    }
    return result;
  }
  static bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  TestFolder folder_;
  std::string tokenizer_;
  config::Config config_;
};

TEST_F(Sources, ListsFilesAndPatternsInOrder) {
  config_.data.paths = {folder_.path("b.npy"), folder_.path("a*.npy")};
  config_.data.valid_paths = {folder_.path("{b,none}.npy")};
  const OpenedData data = open_data(config_).value();
  ASSERT_EQ(data.sources.size(), 1U);
  EXPECT_EQ(names(data.sources[0].train), (std::vector<std::string>{"b.npy", "a1.npy", "a2.npy"}));
  EXPECT_EQ(names(data.sources[0].valid), (std::vector<std::string>{"b.npy"}));
  EXPECT_EQ(data.train_tokens(), 9);
  EXPECT_EQ(data.eos_id, 256);
  EXPECT_EQ(data.description, "3 files");
}

TEST_F(Sources, RefusesPathsThatCannotBeMeant) {
  config_.data.paths = {folder_.path("x*.npy")};
  EXPECT_TRUE(contains(error(), "data.paths: \"" + folder_.path("x*.npy") + "\" matches no file")) << error();
  config_.data.paths = {folder_.path("a1.npy"), folder_.path("a*.npy")};
  EXPECT_TRUE(contains(error(), "a1.npy twice")) << error();
  config_.data.paths = {folder_.path("missing.npy")};
  EXPECT_TRUE(contains(error(), "missing.npy: cannot open")) << error();
  config_.data.paths = {folder_.path("b.npy")};
  config_.data.eos_id = 300;
  EXPECT_TRUE(contains(error(), "data.eos_id: is 300, outside the vocabulary of 300")) << error();
}

TEST_F(Sources, TakesTheEndOfTextFromTheTokenizer) {
  config_.data.paths = {folder_.path("b.npy")};
  config_.data.eos_id = -1;
  config_.data.tokenizer = tokenizer_;
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_).value();
  const OpenedData data = open_data(config_).value();
  EXPECT_EQ(data.eos_id, tokenizer.eos_id());
  EXPECT_EQ(data.vocab_size, tokenizer.vocab_size());
  config_.data.eos_id = 7;
  EXPECT_EQ(open_data(config_).value().eos_id, 7);
  config_.model.vocab_size = tokenizer.vocab_size() - 1;
  EXPECT_TRUE(contains(error(), "set --model.vocab_size=" + std::to_string(tokenizer.vocab_size())))
      << error();
}

TEST_F(Sources, ReadsTheTypeItIsTold) {
  config_.data.paths = {folder_.path("b.npy")};
  config_.data.dtype = config::IdType::kU8;
  EXPECT_EQ(open_data(config_).value().train_tokens(), 6);
  config_.data.dtype = config::IdType::kU32;
  EXPECT_TRUE(contains(error(), "not a multiple of 4"));
}

TEST_F(Sources, PairsLabelMasksWithFiles) {
  config_.data.paths = {folder_.path("a*.npy")};
  (void)folder_.write("m1", std::string("\1\0\1", 3));
  (void)folder_.write("m2", "\1\1\1");
  config_.data.label_masks = {folder_.path("m*")};
  const OpenedData data = open_data(config_).value();
  ASSERT_TRUE(data.sources[0].train[0].label_mask.has_value());
  EXPECT_FALSE(data.sources[0].train[0].label_mask->allows(1));
  config_.data.label_masks = {folder_.path("m1")};
  EXPECT_TRUE(contains(error(), "names 2 token files, its label masks 1")) << error();
  config_.data.label_masks = {folder_.path("m1"), folder_.write("long", "\1\1\1\1")};
  EXPECT_TRUE(contains(error(), "long: has 4 bytes;")) << error();
}

TEST_F(Sources, OpensAMixture) {
  config_.data.source["web"].paths = {folder_.path("a*.npy")};
  config_.data.source["held"].valid_paths = {folder_.path("b.npy")};
  config_.data.source["held"].weight = 0;
  const OpenedData data = open_data(config_).value();
  ASSERT_EQ(data.sources.size(), 2U);
  EXPECT_EQ(data.sources[0].name, "held");  // in order of names
  EXPECT_TRUE(data.sources[0].train.empty());
  EXPECT_EQ(data.sources[1].train.size(), 2U);
  EXPECT_EQ(data.sources[1].train[0].domain, "web");
  config_.data.source["web"].paths = {folder_.path("none*")};
  EXPECT_TRUE(contains(error(), "data.source.web.paths: ")) << error();
}

TEST_F(Sources, ReadsMixFiles) {
  const std::string mix = folder_.write("mix.txt", "# a comment\n\nweb,{TOKENIZER}1.npy\ncode,b.npy \r\n");
  config_.data.mix = mix;
  config_.data.mix_root = folder_.path("");
  EXPECT_TRUE(contains(error(), "mix.txt:3: names {TOKENIZER}; say it with data.mix_tokenizer")) << error();
  config_.data.mix_tokenizer = "a";
  const OpenedData data = open_data(config_).value();
  EXPECT_EQ(names(data.sources[0].train), (std::vector<std::string>{"a1.npy", "b.npy"}));
  const std::vector<MixRow> rows = read_mix(mix, "/root", "x/y").value();
  EXPECT_EQ(rows[0].label, "web");
  EXPECT_EQ(data.sources[0].train[1].domain, "code");
  EXPECT_EQ(rows[0].path, "/root/x/y1.npy");
  (void)folder_.write("mix.txt", "web a.npy\n");
  EXPECT_TRUE(contains(error(), "mix.txt:1: \"web a.npy\"; expected label,path")) << error();
  (void)folder_.write("mix.txt", "#\n");
  EXPECT_TRUE(contains(error(), "names no file")) << error();
}

TEST_F(Sources, ReadsAFolderWithItsTokenizer) {
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_).value();
  Dataset dataset{.folder = folder_.path("data"),
                  .recipe = "test",
                  .type = TokenType::kU16,
                  .vocab_size = tokenizer.vocab_size(),
                  .eos_id = tokenizer.eos_id(),
                  .tokenizer = "tokenizer.json",
                  .domains = {},
                  .files = {}};
  (void)folder_.write("data/tokenizer.json", tokenizer.to_json());
  DatasetFile file{.file = "t.npy", .domain = "d", .split = Split::kTrain, .tokens = 3};
  file.xxh3 =
      write_token_file(folder_.path("data/t.npy"), TokenType::kU16, std::vector<i32>{1, 2, 3}).value();
  dataset.files.push_back(file);
  save_dataset(dataset).value();
  config_.data.dir = folder_.path("data");
  config_.data.eos_id = -1;
  const OpenedData data = open_data(config_).value();
  EXPECT_EQ(data.sources[0].train.size(), 1U);
  EXPECT_EQ(data.sources[0].train[0].domain, "d");
  EXPECT_TRUE(data.sources[0].valid.empty());  // a run without held-out text
  EXPECT_EQ(data.fingerprint, dataset.fingerprint(Split::kTrain));
  // The folder's tokenizer must be the one it was made with.
  dataset.vocab_size += 1;
  save_dataset(dataset).value();
  EXPECT_TRUE(contains(error(), "was made with one of")) << error();
}

TEST_F(Sources, SaysHowToMakeAMissingFolder) {
  config_.data.dir = folder_.path("nowhere");
  config_.data.eos_id = -1;
  EXPECT_TRUE(contains(error(), "wych data prepare --out " + config_.data.dir)) << error();
}

TEST_F(Sources, FingerprintFollowsContentOrderAndMasks) {
  const auto fingerprint = [&] { return open_data(config_).value().fingerprint; };
  config_.data.paths = {folder_.path("a1.npy"), folder_.path("b.npy")};
  (void)write("b.npy", {4, 5, 6});
  const u64 before = fingerprint();
  EXPECT_EQ(fingerprint(), before);
  std::swap(config_.data.paths[0], config_.data.paths[1]);
  EXPECT_NE(fingerprint(), before);
  std::swap(config_.data.paths[0], config_.data.paths[1]);
  (void)write("b.npy", {4, 5, 7});
  EXPECT_NE(fingerprint(), before);
  (void)write("b.npy", {4, 5, 6});
  EXPECT_EQ(fingerprint(), before);
  config_.data.label_masks = {folder_.write("m1", "\1\1\1"), folder_.write("m2", "\1\1\1")};
  EXPECT_NE(fingerprint(), before);
}

}  // namespace
}  // namespace wych::data
