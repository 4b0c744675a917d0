// The oracle is the Python package `tokenizers`: tests/data/tokenizer holds a file that it wrote and the ids
// that it gives (make_vectors.py there).
#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/file.h"
#include "data/bpe_trainer.h"
#include "data/test_folder.h"

namespace wych::data {
namespace {

using Json = nlohmann::json;

constexpr const char* kFile = "tests/data/tokenizer/tokenizer.json";

std::string oracle_json() { return read_file(kFile, ErrorKind::kData).value(); }

std::string random_bytes(std::mt19937& random, std::size_t size) {
  std::string text(size, '\0');
  for (char& byte : text) {
    byte = static_cast<char>(random() % 3 == 0 ? random() : 'a' + random() % 8);
  }
  return text;
}

TEST(Tokenizer, GivesTheOraclesIds) {
  const Tokenizer tokenizer = Tokenizer::load(kFile).value();
  EXPECT_EQ(tokenizer.vocab_size(), 400);
  EXPECT_EQ(tokenizer.eos_id(), 0);
  const Json vectors = Json::parse(std::ifstream("tests/data/tokenizer/vectors.json"));
  ASSERT_GT(vectors.size(), 30U);
  for (const Json& vector : vectors) {
    const auto text = vector.at("text").get<std::string>();
    EXPECT_EQ(tokenizer.encode(text), vector.at("ids").get<std::vector<i32>>()) << text;
  }
}

TEST(Tokenizer, DecodesWhatItEncodedForAnyBytes) {
  const Tokenizer tokenizer = Tokenizer::load(kFile).value();
  std::mt19937 random(3);
  for (std::size_t size = 0; size < 600; ++size) {
    const std::string text = random_bytes(random, size);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST(Tokenizer, NeverMakesEndOfTextFromText) {
  const Tokenizer tokenizer = Tokenizer::load(kFile).value();
  for (const i32 id : tokenizer.encode(std::string("a") + std::string(kEndOfText))) {
    EXPECT_NE(id, tokenizer.eos_id());
  }
}

TEST(Tokenizer, DecodesEndOfTextAndForeignIdsToNothing) {
  const Tokenizer tokenizer = Tokenizer::load(kFile).value();
  std::vector<i32> ids = tokenizer.encode("the");
  ids.insert(ids.begin(), {tokenizer.eos_id(), 400, -1, 1 << 30});
  EXPECT_EQ(tokenizer.decode(ids), "the");
}

TEST(Tokenizer, EncodesALongPieceInReasonableTime) {
  const Tokenizer tokenizer = Tokenizer::load(kFile).value();
  std::string text;
  for (int i = 0; i < 100000; ++i) {
    text += "the"[i % 3];
  }
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(Tokenizer, EncodesManyTextsAsOneByOneOnAnyNumberOfThreads) {
  const Tokenizer tokenizer = Tokenizer::load(kFile).value();
  std::mt19937 random(5);
  std::vector<std::string> texts;
  for (int i = 0; i < 30; ++i) {
    std::string text;
    for (std::size_t words = random() % 20000; words > 0; --words) {
      text += random() % 2 == 0 ? " the" : " water 12";
    }
    texts.push_back(i % 7 == 3 ? "" : text);
  }
  ThreadPool one(1);
  ThreadPool three(3);
  const auto expected = tokenizer.encode_all(texts, one);
  EXPECT_EQ(tokenizer.encode_all(texts, three), expected);
  for (std::size_t i = 0; i < texts.size(); i += 10) {
    EXPECT_EQ(expected[i], tokenizer.encode(texts[i]));
  }
  EXPECT_TRUE(tokenizer.encode_all({}, one).empty());
}

TEST(Tokenizer, WritesWhatItReads) {
  const std::string_view texts[] = {"to be or not to be, that is the question",
                                    "\xff\xff\xff\xff ! \n\n\n\n"};
  const Tokenizer trained = train_bpe(texts, 270);
  const std::string json = trained.to_json();
  const Tokenizer read = Tokenizer::from_json(json, "test").value();
  EXPECT_EQ(read.to_json(), json);
  EXPECT_EQ(read.eos_id(), trained.eos_id());
  EXPECT_EQ(read.encode(texts[0]), trained.encode(texts[0]));
  EXPECT_EQ(read.encode(texts[1]), trained.encode(texts[1]));
}

TEST(TokenizerJson, ReadsMergesAsStringsAndAsPairs) {
  Json root = Json::parse(oracle_json());
  for (Json& merge : root["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  const Tokenizer pairs = Tokenizer::load(kFile).value();
  const Tokenizer strings = Tokenizer::from_json(root.dump(), "test").value();
  EXPECT_EQ(strings.to_json(), pairs.to_json());
}

TEST(TokenizerJson, NamesTheFileThatIsMissing) {
  const auto missing = Tokenizer::load("tests/data/none.json");
  ASSERT_FALSE(missing.has_value());
  EXPECT_NE(missing.error().text().find("tests/data/none.json"), std::string::npos);
}

// Each change would alter ids or break the tables; each must be refused with the key in the message.
TEST(TokenizerJson, NamesTheKeyThatIsNotSupported) {
  const Json good = Json::parse(oracle_json());
  struct Change {
    const char* pointer;  // JSON pointer
    Json value;
    const char* named;
  };
  const Change changes[] = {
      {"/normalizer", {{"type", "NFC"}}, "normalizer"},
      {"/truncation", {{"max_length", 3}}, "truncation"},
      {"/pre_tokenizer/type", "Whitespace", "pre_tokenizer"},
      {"/pre_tokenizer/add_prefix_space", true, "pre_tokenizer"},
      {"/pre_tokenizer/use_regex", false, "pre_tokenizer.use_regex"},
      {"/pre_tokenizer", nullptr, "pre_tokenizer"},
      {"/post_processor/type", "TemplateProcessing", "post_processor.type"},
      {"/decoder", nullptr, "decoder"},
      {"/added_tokens", Json::array(), "added_tokens"},
      {"/added_tokens/0/content", "<s>", "added_tokens"},
      {"/added_tokens/0/id", 5, "added_tokens"},
      {"/model", nullptr, "model.type"},
      {"/model/type", "Unigram", "model.type"},
      {"/model/type", 3, "model.type"},
      {"/model/dropout", 0.1, "model.dropout"},
      {"/model/unk_token", "<unk>", "model.unk_token"},
      {"/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix"},
      {"/model/byte_fallback", true, "model.byte_fallback"},
      {"/model/ignore_merges", true, "model.ignore_merges"},
      {"/model/vocab", Json::array(), "model.vocab"},
      {"/model/vocab/a", 399, "model.vocab"},
      {"/model/vocab/a", -1, "model.vocab"},
      {"/model/vocab/a", "x", "model.vocab"},
      {"/model/vocab/\u4f60", 400, "model.vocab"},
      {"/model/merges", "the", "model.merges"},
      {"/model/merges/0", "x", "model.merges"},
      {"/model/merges/0", 7, "model.merges"},
      {"/model/merges/0", {"q", "zzzz"}, "model.merges"},
      {"/model/merges/1", good["model"]["merges"][0], "model.merges"},
  };
  for (const Change& change : changes) {
    Json changed = good;
    changed[Json::json_pointer(change.pointer)] = change.value;
    const auto result = Tokenizer::from_json(changed.dump(), "file.json");
    ASSERT_FALSE(result.has_value()) << change.pointer << " = " << change.value;
    EXPECT_NE(result.error().text().find(std::string("file.json: ") + change.named), std::string::npos)
        << change.pointer << " = " << change.value << "\n"
        << result.error().text();
    EXPECT_EQ(result.error().kind, ErrorKind::kData);
  }
}

TEST(TokenizerJson, RefusesAVocabularyWithoutEveryByte) {
  Json changed = Json::parse(oracle_json());
  Json& vocabulary = changed["model"]["vocab"];
  const Json id = vocabulary["q"];
  vocabulary.erase("q");
  vocabulary["qq"] = id;
  const auto result = Tokenizer::from_json(changed.dump(), "file.json");
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().text().find("0x71"), std::string::npos) << result.error().text();
}

// Damaged files: an Error or a tokenizer, never a crash. Truncations are never valid.
TEST(TokenizerJson, SurvivesDamage) {
  const std::string good = oracle_json();
  for (std::size_t size = 0; size + 1 < good.size(); size += 97) {
    EXPECT_FALSE(Tokenizer::from_json(good.substr(0, size), "cut").has_value()) << size;
  }
  std::mt19937 random(11);
  for (int round = 0; round < 150; ++round) {
    std::string damaged = good;
    for (int i = 0; i < 3; ++i) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    if (const auto result = Tokenizer::from_json(damaged, "damaged"); result.has_value()) {
      EXPECT_EQ(result->decode(result->encode("the waters")), "the waters");
    }
  }
  for (const char* text :
       {"", "[]", "null", "{}", "\"x\"", "[[[[[[", "{\"model\":{\"type\":\"BPE\"}}", "\xff"}) {
    EXPECT_FALSE(Tokenizer::from_json(text, "odd").has_value()) << text;
  }
}

}  // namespace
}  // namespace wych::data
