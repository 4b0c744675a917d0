// Documents from end-of-text ids, a sidecar and an index; packing; the invariants of both.
#include "data/documents.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>

#include "data/packing.h"
#include "data/test_folder.h"

namespace wych::data {
namespace {

constexpr i32 kEos = 9;

TokenFile file_of(const TestFolder& folder, const std::vector<i32>& tokens) {
  (void)write_token_file(folder.path("a.npy"), TokenType::kU16, tokens).value();
  return TokenFile::open(folder.path("a.npy"), TokenType::kU16).value();
}

TEST(Documents, EndWithEndOfText) {
  const TestFolder folder;
  const TokenFile file = file_of(folder, {1, kEos, kEos, 2, 3, kEos, 4});
  EXPECT_EQ(find_documents(file, kEos, 10).value(), (std::vector<TokenSpan>{{0, 2}, {2, 3}, {3, 6}, {6, 7}}));
  EXPECT_FALSE(find_documents(file, kEos, 9).has_value());  // ids are checked on the way
}

TEST(Documents, ComeFromASidecarIfThereIsOne) {
  const TestFolder folder;
  const TokenFile file = file_of(folder, {1, kEos, kEos, 2, 3, kEos, 4});
  (void)folder.write("a.csv.gz", "0,2,id-1,x\n3,6\r\n6,6\n6,7");  // unpacked files are read as they are
  EXPECT_EQ(find_documents(file, kEos, 10).value(), (std::vector<TokenSpan>{{0, 2}, {3, 6}, {6, 7}}));
  for (const char* damaged : {"0,2\n1,3", "0,2\n3,8", "0,2\n3", "0,2\nx,4", "0,2\n5,4", "0,2\n3;4"}) {
    (void)folder.write("a.csv.gz", damaged);
    const auto result = find_documents(file, kEos, 10);
    ASSERT_FALSE(result.has_value()) << damaged;
    EXPECT_NE(result.error().text().find("a.csv.gz:2: "), std::string::npos) << result.error().text();
  }
}

TEST(LabelMask, HasAByteAToken) {
  const TestFolder folder;
  const TokenFile file = file_of(folder, {1, 2, 3});
  const LabelMask mask = LabelMask::open(folder.write("m", std::string("\1\0\x02", 3)), file).value();
  EXPECT_TRUE(mask.allows(0));
  EXPECT_FALSE(mask.allows(1));
  EXPECT_TRUE(mask.allows(2));
  const auto wrong = LabelMask::open(folder.write("m", "\1\1"), file);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_NE(wrong.error().text().find("has 2 bytes;"), std::string::npos);
}

// By hand: 6 fills; 4 leaves room 2; 3 and 3 share; 2 goes to the 4; 1 opens the last.
TEST(Packing, IsBestFitDecreasing) {
  const std::vector<TokenSpan> documents = {{0, 3}, {3, 5}, {5, 11}, {11, 15}, {15, 18}, {18, 19}};
  const Packing packing = Packing::pack(documents, 6);
  ASSERT_EQ(packing.num_instances(), 4);
  const auto pieces = [&](i64 index) {
    const auto span = packing.instance(index);
    return std::vector<TokenSpan>(span.begin(), span.end());
  };
  EXPECT_EQ(pieces(0), (std::vector<TokenSpan>{{5, 11}}));
  EXPECT_EQ(pieces(1), (std::vector<TokenSpan>{{11, 15}, {3, 5}}));
  EXPECT_EQ(pieces(2), (std::vector<TokenSpan>{{0, 3}, {15, 18}}));
  EXPECT_EQ(pieces(3), (std::vector<TokenSpan>{{18, 19}}));
  EXPECT_EQ(packing.padding(), 5);
}

TEST(Packing, CutsLongDocuments) {
  const Packing packing = Packing::pack(std::vector<TokenSpan>{{0, 11}}, 4);
  ASSERT_EQ(packing.num_instances(), 3);
  EXPECT_EQ(packing.instance(0)[0], (TokenSpan{0, 4}));
  EXPECT_EQ(packing.instance(1)[0], (TokenSpan{4, 8}));
  EXPECT_EQ(packing.instance(2)[0], (TokenSpan{8, 11}));
}

// Every token once; no instance above its length; no two instances could be joined, as best fit never opens
// an instance while another has room.
TEST(Packing, KeepsEveryTokenAndWastesNoInstance) {
  std::mt19937 random(7);
  for (const i64 length : {1, 2, 7, 64, 1000}) {
    std::vector<TokenSpan> documents;
    i64 at = 0;
    for (int i = 0; i < 2000; ++i) {
      const i64 size = 1 + static_cast<i64>(random() % 300);
      documents.push_back({at, at + size});
      at += size;
    }
    const Packing packing = Packing::pack(documents, length);
    std::vector<int> seen(static_cast<std::size_t>(at), 0);
    i64 padding = 0;
    std::vector<i64> used;
    for (i64 i = 0; i < packing.num_instances(); ++i) {
      i64 sum = 0;
      for (const TokenSpan& piece : packing.instance(i)) {
        sum += piece.size();
        for (i64 t = piece.begin; t < piece.end; ++t) {
          ++seen[static_cast<std::size_t>(t)];
        }
      }
      EXPECT_LE(sum, length);
      EXPECT_GT(sum, 0);
      padding += length - sum;
      used.push_back(sum);
    }
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
    EXPECT_EQ(packing.padding(), padding);
    std::sort(used.begin(), used.end());
    EXPECT_TRUE(used.size() < 2 || used[0] + used[1] > length);
  }
}

}  // namespace
}  // namespace wych::data
