// Bytes on disk, and the errors that answer a wrong dtype, a wrong tokenizer or a cut file.
#include "data/token_file.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/hash.h"
#include "data/test_folder.h"

namespace wych::data {
namespace {

TEST(TokenFile, HoldsRawLittleEndianIds) {
  const TestFolder folder;
  const std::string path = folder.path("a.npy");
  const std::vector<i32> tokens = {1, 258, 65535};
  const u64 hash = write_token_file(path, TokenType::kU16, tokens).value();
  EXPECT_EQ(read_file(path, ErrorKind::kData).value(), std::string("\x01\0\x02\x01\xff\xff", 6));
  EXPECT_EQ(hash, hash_bytes(std::string_view("\x01\0\x02\x01\xff\xff", 6)));
  const TokenFile file = TokenFile::open(path, TokenType::kU16).value();
  EXPECT_EQ(file.num_tokens(), 3);
  EXPECT_EQ(file.hash(), hash);
  std::vector<i32> read(2);
  file.read(1, 65536, read).value();
  EXPECT_EQ(read, (std::vector<i32>{258, 65535}));
}

TEST(TokenFile, HoldsWideIdsAndManyPieces) {
  const TestFolder folder;
  std::vector<i32> tokens((std::size_t{1} << 20U) + 3);
  std::iota(tokens.begin(), tokens.end(), 70000);
  const u64 hash = write_token_file(folder.path("a"), TokenType::kU32, tokens).value();
  const TokenFile file = TokenFile::open(folder.path("a"), TokenType::kU32).value();
  EXPECT_EQ(file.hash(), hash);
  std::vector<i32> read(tokens.size());
  file.read(0, i64{1} << 31U, read).value();
  EXPECT_EQ(read, tokens);
}

TEST(TokenFile, ChoosesTheSmallestType) {
  EXPECT_EQ(token_type_for(65536), TokenType::kU16);
  EXPECT_EQ(token_type_for(65537), TokenType::kU32);
}

TEST(TokenFile, NamesPositionAndValueOfAForeignId) {
  const TestFolder folder;
  const std::vector<i32> tokens = {1, 2, 3, 700, 5};
  (void)write_token_file(folder.path("bad.npy"), TokenType::kU16, tokens).value();
  const TokenFile file = TokenFile::open(folder.path("bad.npy"), TokenType::kU16).value();
  std::vector<i32> read(4);
  const Expected<void> result = file.read(1, 700, read);
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().text().find("bad.npy: token 3 is 700, outside the vocabulary of 700"),
            std::string::npos)
      << result.error().text();
  EXPECT_TRUE(file.read(1, 701, read).has_value());
  // An id beyond 2^31 is not taken for a negative, small one.
  const std::string wide = folder.write("wide", std::string("\xfe\xff\xff\xff", 4));
  const TokenFile wide_file = TokenFile::open(wide, TokenType::kU32).value();
  EXPECT_FALSE(wide_file.read(0, i64{1} << 31U, std::span(read).first(1)).has_value());
}

TEST(TokenFile, RefusesFilesThatCannotBeTokens) {
  const TestFolder folder;
  struct Case {
    std::string path;
    TokenType type;
    const char* message;
  };
  const Case cases[] = {
      {folder.path("missing"), TokenType::kU16, "missing"},
      {folder.write("empty", ""), TokenType::kU16, "is empty"},
      {folder.write("odd", "abc"), TokenType::kU16, "not a multiple of 2"},
      {folder.write("half", "abcdef"), TokenType::kU32, "not a multiple of 4"},
  };
  for (const Case& c : cases) {
    const auto result = TokenFile::open(c.path, c.type);
    ASSERT_FALSE(result.has_value()) << c.path;
    EXPECT_EQ(result.error().kind, ErrorKind::kData);
    EXPECT_NE(result.error().text().find(c.message), std::string::npos) << result.error().text();
    EXPECT_NE(result.error().text().find(c.path), std::string::npos) << result.error().text();
  }
}

}  // namespace
}  // namespace wych::data
