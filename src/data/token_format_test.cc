// Files of every format, their bytes written by hand from the format's description (numpy's as numpy 2.4
// saves them), read; then written and compared with the same bytes; then damaged.
#include "data/token_format.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "data/test_folder.h"
#include "data/token_convert.h"
#include "data/token_file.h"

namespace wych::data {
namespace {

// Little-endian numbers of `bytes` bytes each.
std::string le(int bytes, const std::vector<i64>& values) {
  std::string out;
  for (const i64 value : values) {
    for (int i = 0; i < bytes; ++i) {
      out += static_cast<char>((static_cast<u64>(value) >> (8 * i)) & 0xffU);
    }
  }
  return out;
}

std::string numpy_file(std::string dictionary, const std::string& data, std::size_t header_bytes = 128) {
  const std::size_t length = header_bytes - 10;
  dictionary.resize(length - 1, ' ');
  return std::string("\x93NUMPY\x01\0", 8) + le(2, {static_cast<i64>(length)}) + dictionary + "\n" + data;
}

const std::string kNumpyOne =
    numpy_file("{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }", le(2, {1, 258, 65535}));
const std::string kNumpyTwo =
    numpy_file("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }", le(4, {1, 2, 3, 4, 5, 70000}));

std::string llm_c(i64 magic, i64 version, i64 count, const std::string& data) {
  std::string header = le(4, {magic, version, count});
  header.resize(1024, '\0');
  return header + data;
}

std::string llmq(i64 version, i64 id_bytes, i64 count, i64 vocab, i64 masks, const std::string& data) {
  std::string header = "BIN.TOK\n" + le(4, {version, id_bytes, count, vocab, masks});
  header.resize(1024, '\0');
  return header + data;
}

// Two documents, of 2 and 3 tokens.
std::string megatron_index(i64 version = 1, i64 code = 8, i64 id_bytes = 2) {
  return std::string("MMIDIDX\0\0", 9) + le(8, {version}) + le(1, {code}) + le(8, {2, 3}) + le(4, {2, 3}) +
         le(8, {0, 2 * id_bytes}) + le(8, {0, 1, 2});
}

std::vector<i32> read_all(const TokenFile& file, i64 vocab_size = i64{1} << 31U) {
  std::vector<i32> tokens(static_cast<std::size_t>(file.num_tokens()));
  file.read(0, vocab_size, tokens).value();
  return tokens;
}

std::string bytes_of(const std::string& path) { return read_file(path, ErrorKind::kData).value(); }

TEST(TokenFormat, ReadsNumpyFiles) {
  const TestFolder folder;
  const TokenFile one = TokenFile::open(folder.write("one.npy", kNumpyOne)).value();
  EXPECT_EQ(one.format(), TokenFormat::kNumpy);
  EXPECT_EQ(one.type(), TokenType::kU16);
  EXPECT_EQ(one.columns(), 0);
  EXPECT_EQ(read_all(one), (std::vector<i32>{1, 258, 65535}));
  const TokenFile two = TokenFile::open(folder.write("two.npy", kNumpyTwo)).value();
  EXPECT_EQ(two.type(), TokenType::kI32);
  EXPECT_EQ(two.columns(), 3);
  EXPECT_EQ(read_all(two), (std::vector<i32>{1, 2, 3, 4, 5, 70000}));
  // Version 2 has a length of four bytes.
  const std::string dictionary = "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }\n";
  const std::string wide = std::string("\x93NUMPY\x02\0", 8) + le(4, {static_cast<i64>(dictionary.size())}) +
                           dictionary + le(8, {7, 100000});
  EXPECT_EQ(read_all(TokenFile::open(folder.write("v2.npy", wide)).value()), (std::vector<i32>{7, 100000}));
}

TEST(TokenFormat, ReadsRawFilesOfEveryWidth) {
  const TestFolder folder;
  const std::pair<TokenType, int> types[] = {
      {TokenType::kU8, 1}, {TokenType::kU16, 2}, {TokenType::kU32, 4}, {TokenType::kU64, 8}};
  for (const auto& [type, bytes] : types) {
    const std::string path = folder.write("raw.npy", le(bytes, {3, 200, 1}));
    const TokenFile file = TokenFile::open(path, type).value();
    EXPECT_EQ(file.format(), TokenFormat::kRaw);
    EXPECT_EQ(read_all(file), (std::vector<i32>{3, 200, 1})) << token_type_name(type);
  }
}

TEST(TokenFormat, KnowsTheTypeOfARawFileFromTheVocabularyOrTheName) {
  const TestFolder folder;
  const std::string bytes = le(4, {1, 2});
  const std::string npy = folder.write("a.npy", bytes);
  EXPECT_EQ(TokenFile::open(npy, {}, 50257).value().num_tokens(), 4);
  EXPECT_EQ(TokenFile::open(npy, {}, 100278).value().num_tokens(), 2);
  EXPECT_EQ(TokenFile::open(npy, TokenType::kU8, 100278).value().num_tokens(), 8);
  EXPECT_FALSE(TokenFile::open(npy).has_value());
  EXPECT_EQ(TokenFile::open(folder.write("train.bin", bytes)).value().num_tokens(), 4);  // nanoGPT
}

TEST(TokenFormat, ReadsLlmC) {
  const TestFolder folder;
  const TokenFile narrow =
      TokenFile::open(folder.write("a.bin", llm_c(20240520, 1, 3, le(2, {50256, 1, 2})))).value();
  EXPECT_EQ(narrow.format(), TokenFormat::kLlmC);
  EXPECT_EQ(read_all(narrow), (std::vector<i32>{50256, 1, 2}));
  const TokenFile wide =
      TokenFile::open(folder.write("b.bin", llm_c(20240801, 7, 2, le(4, {128000, 5})))).value();
  EXPECT_EQ(wide.type(), TokenType::kU32);
  EXPECT_EQ(read_all(wide), (std::vector<i32>{128000, 5}));
}

TEST(TokenFormat, ReadsLlmq) {
  const TestFolder folder;
  const TokenFile file =
      TokenFile::open(folder.write("a.bin", llmq(2, 4, 2, 151936, 0, le(4, {9, 8})))).value();
  EXPECT_EQ(file.format(), TokenFormat::kLlmq);
  EXPECT_EQ(file.vocab_size(), 151936);
  EXPECT_EQ(read_all(file), (std::vector<i32>{9, 8}));
  EXPECT_FALSE(TokenFile::open(folder.write("b.bin", llmq(2, 4, 2, 9, 1, le(4, {9, 8})))).has_value());
}

TEST(TokenFormat, ReadsMegatronPairsByAnyOfTheirNames) {
  const TestFolder folder;
  const std::string bin = folder.write("m.bin", le(2, {1, 2, 3, 4, 5}));
  const std::string idx = folder.write("m.idx", megatron_index());
  for (const std::string& path : {bin, idx, folder.path("m")}) {
    const TokenFile file = TokenFile::open(path).value();
    EXPECT_EQ(file.format(), TokenFormat::kMegatron);
    EXPECT_EQ(read_all(file), (std::vector<i32>{1, 2, 3, 4, 5}));
    ASSERT_NE(file.index(), nullptr);
    EXPECT_EQ(file.index()->num_documents(), 2);
    EXPECT_EQ(file.index()->document_start(1), 2);
    EXPECT_EQ(file.index()->document_start(2), 5);
  }
  // With modes behind, one byte a sequence.
  (void)folder.write("m.idx", megatron_index() + std::string(2, '\0'));
  EXPECT_TRUE(TokenFile::open(bin).has_value());
}

TEST(TokenFormat, WritesTheSameBytes) {
  const TestFolder folder;
  const TokenFile one = TokenFile::open(folder.write("one", kNumpyOne)).value();
  const TokenFile two = TokenFile::open(folder.write("two", kNumpyTwo)).value();
  convert_token_file(one, folder.path("1"), {.format = TokenFormat::kNumpy, .type = TokenType::kU16}).value();
  EXPECT_EQ(bytes_of(folder.path("1")), kNumpyOne);
  convert_token_file(two, folder.path("2"), {.format = TokenFormat::kNumpy, .type = TokenType::kI32}).value();
  EXPECT_EQ(bytes_of(folder.path("2")), kNumpyTwo);
  convert_token_file(one, folder.path("3"), {.format = TokenFormat::kLlmC, .type = TokenType::kU16}).value();
  EXPECT_EQ(bytes_of(folder.path("3")), llm_c(20240520, 1, 3, le(2, {1, 258, 65535})));
  convert_token_file(one, folder.path("4"), {.format = TokenFormat::kLlmC, .type = TokenType::kU32}).value();
  EXPECT_EQ(bytes_of(folder.path("4")), llm_c(20240801, 7, 3, le(4, {1, 258, 65535})));
  convert_token_file(two, folder.path("5"), {.format = TokenFormat::kRaw, .type = TokenType::kU64}).value();
  EXPECT_EQ(bytes_of(folder.path("5")), le(8, {1, 2, 3, 4, 5, 70000}));
}

TEST(TokenFormat, WritesMegatronPairs) {
  const TestFolder folder;
  const TokenFile raw = TokenFile::open(folder.write("raw", le(2, {7, 9, 1, 2, 9})), TokenType::kU16).value();
  convert_token_file(raw, folder.path("m"),
                     {.format = TokenFormat::kMegatron, .type = TokenType::kU16, .eos_id = 9})
      .value();
  EXPECT_EQ(bytes_of(folder.path("m.bin")), le(2, {7, 9, 1, 2, 9}));
  EXPECT_EQ(bytes_of(folder.path("m.idx")), megatron_index());
  const TokenFile pair = TokenFile::open(folder.path("m")).value();
  convert_token_file(pair, folder.path("w"), {.format = TokenFormat::kMegatron, .type = TokenType::kI32})
      .value();
  EXPECT_EQ(bytes_of(folder.path("w.idx")), megatron_index(1, 4, 4));
  EXPECT_EQ(read_all(TokenFile::open(folder.path("w.idx")).value()), (std::vector<i32>{7, 9, 1, 2, 9}));
}

TEST(TokenFormat, NeverWritesOverAFile) {
  const TestFolder folder;
  const TokenFile one = TokenFile::open(folder.write("one", kNumpyOne)).value();
  for (const auto& [name, format] :
       {std::pair{"a", TokenFormat::kRaw}, std::pair{"b.idx", TokenFormat::kMegatron}}) {
    const std::string there = folder.write(name, "hello");
    const std::string to = format == TokenFormat::kMegatron ? folder.path("b") : there;
    const auto refused =
        convert_token_file(one, to, {.format = format, .type = TokenType::kU16, .eos_id = 1});
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().text().find("is there already"), std::string::npos) << refused.error().text();
    EXPECT_EQ(bytes_of(there), "hello");
    EXPECT_FALSE(std::filesystem::exists(to + ".tmp"));
  }
}

TEST(TokenFormat, RefusesToWriteWhatDoesNotFit) {
  const TestFolder folder;
  const TokenFile two = TokenFile::open(folder.write("two", kNumpyTwo)).value();
  const auto text = [&](const ConvertOptions& options) {
    const Expected<void> result = convert_token_file(two, folder.path("out"), options);
    EXPECT_FALSE(std::filesystem::exists(folder.path("out"))) << "a part was left";
    EXPECT_FALSE(std::filesystem::exists(folder.path("out.tmp"))) << "a part was left";
    return result ? "no error" : result.error().text();
  };
  EXPECT_NE(text({.format = TokenFormat::kRaw, .type = TokenType::kU16}).find("token 5 is 70000"),
            std::string::npos);
  EXPECT_NE(text({.format = TokenFormat::kLlmC, .type = TokenType::kI64}).find("holds no i64"),
            std::string::npos);
  EXPECT_NE(text({.format = TokenFormat::kMegatron, .type = TokenType::kU32}).find("no code for u32"),
            std::string::npos);
  EXPECT_NE(text({.format = TokenFormat::kMegatron, .type = TokenType::kI32}).find("--eos"),
            std::string::npos);
}

TEST(TokenFormat, NamesNegativeAndHugeIds) {
  const TestFolder folder;
  const auto error = [&](const std::string& bytes, TokenType type) {
    std::vector<i32> tokens(2);
    return TokenFile::open(folder.write("x", bytes), type).value().read(0, 1000, tokens).error().text();
  };
  EXPECT_NE(error(le(8, {5, -1}), TokenType::kI64).find("token 1 is -1, a negative number"),
            std::string::npos);
  EXPECT_NE(error(le(4, {5, -7}), TokenType::kI32).find("token 1 is -7, a negative"), std::string::npos);
  EXPECT_NE(error(le(8, {(i64{1} << 32U) + 5, 3}), TokenType::kU64).find("token 0 is 4294967301, outside"),
            std::string::npos);
}

TEST(TokenFormat, RefusesDamagedFiles) {
  const TestFolder folder;
  struct Case {
    std::string bytes;
    const char* message;
  };
  const auto numpy = [](const char* dictionary) { return numpy_file(dictionary, le(4, {1, 2})); };
  const Case cases[] = {
      {"", "is empty"},
      {kNumpyOne.substr(0, 9), "cut inside its NumPy header"},
      {kNumpyOne.substr(0, 60), "cut inside its NumPy header"},
      {kNumpyOne.substr(0, 133), "has 133 bytes; its numpy header says 3 ids of u16, 134 bytes in all"},
      {kNumpyOne + "x", "has 135 bytes"},
      {numpy("{'descr': '>u2', 'fortran_order': False, 'shape': (4,), }"), "array of '>u2'; expected little"},
      {numpy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"), "array of '<f4'"},
      {numpy("{'descr': '<u2', 'fortran_order': True, 'shape': (2, 2), }"), "Fortran order"},
      {numpy("{'descr': '<u2', 'fortran_order': False, 'shape': (1, 2, 2), }"), "shape (1, 2, 2); expected"},
      {numpy("{'descr': '<u2', 'fortran_order': False, 'shape': (), }"), "shape (); expected"},
      {numpy("{'descr': '<u2', 'fortran_order': False, 'shape': (9223372036854775807, 9), }"), "shape"},
      {numpy_file("{'descr': '<u2', 'fortran_order': False, 'shape': (0,), }", ""), "holds no ids"},
      {std::string("\x93NUMPY\x09\0\0\0\0\0\0", 13), "header of version 9"},
      {llm_c(20240520, 1, 3, le(2, {1, 2})), "its llm.c header says 3 ids of u16"},
      {llm_c(20240522, 1, 3, ""), "multiple-choice questions"},
      {llmq(3, 4, 1, 9, 0, le(4, {1})), "LLMQ file of version 3"},
      {llmq(1, 4, 2, 9, 0, le(4, {1})), "its llmq header says 2 ids"},
      {std::string("BIN.TOK\n"), "cut inside its LLMQ header"},
      {"abc", "not a multiple of 2"},
  };
  for (const Case& c : cases) {
    const auto result = TokenFile::open(folder.write("x.npy", c.bytes), TokenType::kU16);
    ASSERT_FALSE(result.has_value()) << c.message;
    EXPECT_EQ(result.error().kind, ErrorKind::kData);
    EXPECT_NE(result.error().text().find(c.message), std::string::npos) << result.error().text();
    EXPECT_NE(result.error().text().find("x.npy"), std::string::npos);
  }
}

TEST(TokenFormat, RefusesDamagedMegatronPairs) {
  const TestFolder folder;
  const std::string good = megatron_index();
  const auto replaced = [&](std::size_t at, const std::string& bytes) {
    return good.substr(0, at) + bytes + good.substr(at + bytes.size());
  };
  struct Case {
    std::string index;
    const char* message;
  };
  const Case cases[] = {
      {megatron_index(2), "has version 2"},
      {megatron_index(1, 7), "type code 7"},
      {good.substr(0, good.size() - 1), "do not fill"},
      {good + "12345", "do not fill"},
      {replaced(18, le(8, {-1})), "do not fill"},
      {replaced(18, le(8, {i64{1} << 60U})), "do not fill"},
      {replaced(34, le(4, {-2})), "sequence 0 of length -2"},
      {replaced(50, le(8, {6})), "sequence 1 of length 3 is at byte 6; expected byte 4"},
      {replaced(66, le(8, {3})), "document 1 begins at sequence 3 of 2"},
      {replaced(74, le(8, {1})), "documents end at sequence 1 of 2"},
      {good.substr(0, 20), "not the index"},
  };
  const std::string bin = folder.write("m.bin", le(2, {1, 2, 3, 4, 5}));
  for (const Case& c : cases) {
    const auto result = TokenFile::open(folder.write("m.idx", c.index));
    ASSERT_FALSE(result.has_value()) << c.message;
    EXPECT_NE(result.error().text().find(c.message), std::string::npos) << result.error().text();
  }
  (void)folder.write("m.idx", good);
  (void)folder.write("m.bin", le(2, {1, 2, 3, 4}));
  EXPECT_NE(TokenFile::open(bin).error().text().find("m.bin: has 8 bytes; its index says 5 ids of u16"),
            std::string::npos);
}

// A file cut anywhere opens or is refused with an error; nothing reads outside it.
TEST(TokenFormat, SurvivesCuts) {
  const TestFolder folder;
  (void)folder.write("m.bin", le(2, {1, 2, 3, 4, 5}));
  for (const std::string& bytes : {kNumpyTwo, llm_c(20240520, 1, 3, le(2, {1, 2, 3})), megatron_index(),
                                   llmq(2, 4, 1, 9, 0, le(4, {1}))}) {
    // Every one through the fields, then some.
    for (std::size_t length = 0; length <= bytes.size(); length += length < 160 ? 1 : 13) {
      const auto result = TokenFile::open(folder.write("m.idx", bytes.substr(0, length)));
      EXPECT_TRUE(!result.has_value() || length == bytes.size());
      const auto other = TokenFile::open(folder.write("x.bin", bytes.substr(0, length)));
      EXPECT_TRUE(other.has_value() || other.error().kind == ErrorKind::kData);
    }
  }
}

}  // namespace
}  // namespace wych::data
