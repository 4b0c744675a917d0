// XXH3 by its published value; pieces equal the whole.
#include "base/hash.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace wych {
namespace {

TEST(Hash, IsXxh3OfTheBytes) {
  EXPECT_EQ(hash_bytes(""), 0x2d06800538d394c2U);  // the published value of the empty input, seed 0
  const std::string text = "blocks.3.moe.w13";
  EXPECT_EQ(hash_bytes(text), hash_bytes(std::as_bytes(std::span(text))));
  EXPECT_NE(hash_bytes(text), hash_bytes("blocks.3.moe.w12"));
}

TEST(Hasher, EqualsTheWholeHoweverThePiecesAreCut) {
  std::string text;
  for (int i = 0; i < 5000; ++i) {
    text.push_back(static_cast<char>(i * 31 % 251));
  }
  const u64 whole = hash_bytes(text);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{256}, std::size_t{4999}}) {
    Hasher hasher;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      hasher.update(std::string_view(text).substr(at, piece));
    }
    EXPECT_EQ(hasher.digest(), whole) << "pieces of " << piece;
  }
}

TEST(Hasher, GoesOnAfterADigestAndAMove) {
  Hasher first;
  first.update("ab");
  EXPECT_EQ(first.digest(), hash_bytes("ab"));
  Hasher second = std::move(first);
  second.update("");
  second.update("cd");
  EXPECT_EQ(second.digest(), hash_bytes("abcd"));
}

}  // namespace
}  // namespace wych
