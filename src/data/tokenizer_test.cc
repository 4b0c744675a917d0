// The oracle is the Python package `tokenizers`: tests/data/tokenizer holds a file that it wrote and the ids
// that it gives (make_vectors.py there).
#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "base/file.h"
#include "data/bpe_trainer.h"
#include "data/cpu_seconds.h"
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

TEST(Tokenizer, MakesEndOfTextFromTextWhenAsked) {
  const Tokenizer tokenizer = Tokenizer::load(kFile).value();
  std::vector<i32> expected = tokenizer.encode("a");
  expected.push_back(tokenizer.eos_id());
  EXPECT_EQ(tokenizer.encode(std::string("a") + std::string(kEndOfText), SpecialText::kToken), expected);
}

TEST(Tokenizer, HasABuiltInByteTokenizer) {
  const Tokenizer tokenizer = Tokenizer::load("byte").value();
  EXPECT_EQ(tokenizer.vocab_size(), 257);
  EXPECT_EQ(tokenizer.eos_id(), 256);
  EXPECT_EQ(tokenizer.encode("a \xff"), (std::vector<i32>{97, 32, 255}));
  EXPECT_EQ(tokenizer.decode(std::vector<i32>{97, 256, 32, 255}), "a \xff");
}

TEST(Tokenizer, DecodesEndOfTextAndForeignIdsToNothing) {
  const Tokenizer tokenizer = Tokenizer::load(kFile).value();
  std::vector<i32> ids = tokenizer.encode("the");
  ids.insert(ids.begin(), {tokenizer.eos_id(), 400, -1, 1 << 30});
  EXPECT_EQ(tokenizer.decode(ids), "the");
}

// A megabyte each; anything quadratic would take minutes to hours.
TEST(Tokenizer, TakesLinearTimeForHostileText) {
  constexpr std::size_t kBytes = std::size_t{1} << 20U;
  std::string words;
  std::string marks;
  std::string alternating;
  while (words.size() < kBytes) {
    words += "the"[words.size() % 3];
    marks += "\u0301\u0316";
    alternating += "A\u4e2d";
  }
  const std::string texts[] = {words,
                               marks,
                               alternating,
                               std::string(kBytes, ' '),
                               std::string(kBytes, ' ') + "x",
                               std::string(kBytes, '\n') + " x",
                               std::string(kBytes, '7'),
                               std::string(kBytes, 'A'),
                               std::string(kBytes, '\''),
                               std::string(kBytes, '<'),
                               std::string(kBytes, '\xff')};
  std::vector<Tokenizer> tokenizers;
  for (const char* file : {"neox.json", "deepseek.json", "o200k_base.tiktoken"}) {
    tokenizers.push_back(Tokenizer::load(std::string("tests/data/tokenizer/") + file).value());
  }
  for (const Tokenizer& tokenizer : tokenizers) {
    for (const std::string& text : texts) {
      const CpuSeconds spent;
      const std::string back = tokenizer.decode(tokenizer.encode(text));
      EXPECT_LT(spent(), 20) << text.substr(0, 9);
      if (tokenizer.parts().normalizer.forms().empty()) {
        EXPECT_EQ(back, text);
      }
    }
  }
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
  ASSERT_EQ(strings.merges().size(), pairs.merges().size());
  for (std::size_t i = 0; i < pairs.merges().size(); ++i) {
    EXPECT_EQ(strings.merges()[i].left, pairs.merges()[i].left);
    EXPECT_EQ(strings.merges()[i].right, pairs.merges()[i].right);
    EXPECT_EQ(strings.merges()[i].result, pairs.merges()[i].result);
  }
}

TEST(TokenizerJson, NamesTheFileThatIsMissing) {
  const auto missing = Tokenizer::load("tests/data/none.json");
  ASSERT_FALSE(missing.has_value());
  EXPECT_NE(missing.error().text().find("tests/data/none.json"), std::string::npos);
}

Json sequence(const std::vector<Json>& stages) { return {{"type", "Sequence"}, {"pretokenizers", stages}}; }

Json split(const Json& regex, const char* behavior = "Isolated") {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", behavior}, {"invert", false}};
}

const Json kByteLevel = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
const Json kPrefixing = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}};

Tokenizer changed_tokenizer(const std::function<void(Json&)>& change, const TokenizerOptions& options = {}) {
  Json root = Json::parse(oracle_json());
  change(root);
  return Tokenizer::from_json(root.dump(), "changed", options).value();
}

// What the vectors of real vocabularies do not have; expectations are those of the package `tokenizers`.
TEST(TokenizerJson, AddsASpaceBeforeEveryStretchOfText) {
  const Tokenizer plain = Tokenizer::load(kFile).value();
  const Tokenizer spaced =
      changed_tokenizer([](Json& root) { root["pre_tokenizer"]["add_prefix_space"] = true; });
  EXPECT_EQ(spaced.encode("the the"), plain.encode(" the the"));
  EXPECT_EQ(spaced.encode(" the"), plain.encode(" the"));
  EXPECT_TRUE(spaced.encode("").empty());
  std::vector<i32> expected = plain.encode(" a");
  expected.push_back(plain.eos_id());
  for (const i32 id : plain.encode(" b")) {
    expected.push_back(id);
  }
  EXPECT_EQ(spaced.encode("a<|endoftext|>b", SpecialText::kToken), expected);
}

TEST(TokenizerJson, PutsTheTemplatesTokensBeforeTheText) {
  const auto with_template = [](Json single) {
    return [single = std::move(single)](Json& root) {
      root["added_tokens"].push_back({{"id", 450}, {"content", "<s>"}, {"special", true}});
      root["post_processor"] = {
          {"type", "Sequence"},
          {"processors",
           {{{"type", "ByteLevel"}, {"trim_offsets", true}},
            {{"type", "TemplateProcessing"},
             {"single", single},
             {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {450}}, {"tokens", {"<s>"}}}}}}}}}};
    };
  };
  const Json start = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Tokenizer tokenizer = changed_tokenizer(with_template({start, text}));
  EXPECT_EQ(tokenizer.vocab_size(), 451);
  std::vector<i32> expected = Tokenizer::load(kFile).value().encode("the");
  expected.insert(expected.begin(), 450);
  EXPECT_EQ(tokenizer.encode("the"), expected);
  EXPECT_EQ(tokenizer.decode(expected), "the");
  EXPECT_EQ(tokenizer.token(449), "");  // ids may have gaps
  Json root = Json::parse(oracle_json());
  with_template({text, start})(root);
  const auto behind = Tokenizer::from_json(root.dump(), "file.json");
  ASSERT_FALSE(behind.has_value());
  EXPECT_NE(behind.error().text().find("post_processor.processors[1].single"), std::string::npos);
}

TEST(TokenizerJson, TakesWholePiecesThatIgnoreMerges) {
  const auto ignore = [](Json& root) {
    root["model"]["ignore_merges"] = true;
    root["model"]["vocab"]["qqq"] = 400;
  };
  const Tokenizer tokenizer = changed_tokenizer(ignore);
  EXPECT_EQ(tokenizer.encode("qqq"), std::vector<i32>{400});
  EXPECT_NE(tokenizer.encode("qqqq"), std::vector<i32>{400});
}

TEST(TokenizerJson, CutsByEveryStageInTurn) {
  const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const Tokenizer tokenizer = changed_tokenizer([&](Json& root) {
    root["pre_tokenizer"] = sequence({split("th"), digits, kByteLevel});
  });
  const Tokenizer plain = changed_tokenizer([&](Json& root) { root["pre_tokenizer"] = kByteLevel; });
  std::vector<i32> expected;
  for (const char* piece : {"th", "e wa", "1", "2", "ters"}) {
    for (const i32 id : plain.encode(piece)) {
      expected.push_back(id);
    }
  }
  EXPECT_EQ(tokenizer.encode("the wa12ters"), expected);
}

TEST(Tokenizer, FindsTheEndOfTextByOptionConfigOrName) {
  const auto two_ends = [](Json& root) {
    root["added_tokens"].push_back({{"id", 400}, {"content", "<|im_end|>"}, {"special", false}});
  };
  EXPECT_EQ(changed_tokenizer(two_ends).eos_id(), 0);
  const Tokenizer asked =
      changed_tokenizer(two_ends, {.end_of_text = "<|im_end|>", .pattern = {}, .special_tokens = {}});
  EXPECT_EQ(asked.eos_id(), 400);
  EXPECT_EQ(asked.token(400), "");  // it is special now
  Json root = Json::parse(oracle_json());
  two_ends(root);
  const TestFolder folder;
  const std::string file = folder.write("model/tokenizer.json", root.dump());
  const auto configure = [&](const char* config) {
    ASSERT_FALSE(folder.write("model/tokenizer_config.json", config).empty());
  };
  EXPECT_EQ(Tokenizer::load(folder.path("model")).value().eos_id(), 0);
  for (const char* config :
       {R"({"eos_token": "<|im_end|>"})", R"({"eos_token": {"content": "<|im_end|>"}})"}) {
    configure(config);
    EXPECT_EQ(Tokenizer::load(file).value().eos_id(), 400) << config;
  }
  for (const char* config : {R"({"eos_token": "<none>"})", R"({"eos_token": 7})", "[]", "{"}) {
    configure(config);
    EXPECT_FALSE(Tokenizer::load(file).has_value()) << config;
  }
  configure(R"({"eos_token": null})");
  EXPECT_EQ(Tokenizer::load(file).value().eos_id(), 0);
}

TEST(Tokenizer, ReplacesBytesThatTheVocabularyLacks) {
  const Tokenizer tokenizer = changed_tokenizer([](Json& root) { root["model"]["vocab"].erase("\u00ff"); });
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\xff\xfe")), "a\ufffd\xfe");
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
      {"/normalizer", {{"type", "Lowercase"}}, "normalizer"},
      {"/normalizer", {{"type", "Sequence"}}, "normalizer"},
      {"/normalizer", "NFC", "normalizer"},
      {"/normalizer",
       {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Strip"}}}}},
       "normalizer.normalizers"},
      {"/truncation", {{"max_length", 3}}, "truncation"},
      {"/padding", {{"strategy", "BatchLongest"}}, "padding"},
      {"/pre_tokenizer/type", "Whitespace", "pre_tokenizer"},
      {"/pre_tokenizer/add_prefix_space", nullptr, "pre_tokenizer.add_prefix_space"},
      {"/pre_tokenizer/use_regex", 1, "pre_tokenizer.use_regex"},
      {"/pre_tokenizer", nullptr, "pre_tokenizer"},
      {"/pre_tokenizer", sequence({}), "pre_tokenizer.pretokenizers"},
      {"/pre_tokenizer", sequence({split("a")}), "pre_tokenizer.pretokenizers[0]"},
      {"/pre_tokenizer", sequence({kByteLevel, split("a")}), "pre_tokenizer.pretokenizers[0]"},
      {"/pre_tokenizer", sequence({split("("), kByteLevel}), "pre_tokenizer.pretokenizers[0].pattern"},
      {"/pre_tokenizer", sequence({split("\\h"), kByteLevel}), "pre_tokenizer.pretokenizers[0].pattern"},
      {"/pre_tokenizer", sequence({split("a*"), kByteLevel}), "pre_tokenizer.pretokenizers[0].pattern"},
      {"/pre_tokenizer", sequence({split(nullptr), kByteLevel}), "pre_tokenizer.pretokenizers[0].pattern"},
      {"/pre_tokenizer", sequence({split("a", "Kept"), kByteLevel}),
       "pre_tokenizer.pretokenizers[0].behavior"},
      {"/pre_tokenizer", sequence({split("a"), kPrefixing}),
       "pre_tokenizer.pretokenizers[1].add_prefix_space"},
      {"/pre_tokenizer", sequence({{{"type", "Metaspace"}}, kByteLevel}), "pre_tokenizer.pretokenizers[0]"},
      {"/post_processor", {{"type", "BertProcessing"}}, "post_processor"},
      {"/post_processor",
       {{"type", "TemplateProcessing"}, {"single", {{{"SpecialToken", {{"id", "x"}}}}}}},
       "post_processor.single"},
      {"/decoder", nullptr, "decoder"},
      {"/added_tokens", Json::array(), "added_tokens"},
      {"/added_tokens", "x", "added_tokens"},
      {"/added_tokens/0/content", "<s>", "added_tokens"},
      {"/added_tokens/0/content", "", "added_tokens[0].content"},
      {"/added_tokens/0/id", 5, "added_tokens"},
      {"/added_tokens/0/id", -1, "added_tokens[0].id"},
      {"/added_tokens/0/id", 1 << 30, "added_tokens[0].id"},
      {"/added_tokens/0/special", "yes", "added_tokens[0].special"},
      {"/added_tokens/1", good["added_tokens"][0], "added_tokens[1]"},
      {"/added_tokens/1", {{"content", "<x>"}, {"id", 7}, {"special", true}}, "added_tokens"},
      {"/model", nullptr, "model.type"},
      {"/model/type", "Unigram", "model.type"},
      {"/model/type", 3, "model.type"},
      {"/model/dropout", 0.1, "model.dropout"},
      {"/model/unk_token", "<unk>", "model.unk_token"},
      {"/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix"},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix"},
      {"/model/fuse_unk", true, "model.fuse_unk"},
      {"/model/byte_fallback", true, "model.byte_fallback"},
      {"/model/ignore_merges", "no", "model.ignore_merges"},
      {"/model/vocab", Json::array(), "model.vocab"},
      {"/model/vocab/a", 399, "model.vocab"},
      {"/model/vocab/a", -1, "model.vocab"},
      {"/model/vocab/a", "x", "model.vocab"},
      {"/model/vocab/a", i64{1} << 40, "model.vocab"},
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
