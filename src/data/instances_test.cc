// Rows by hand: targets and document starts of cut and packed instances, label masks, rows of two-dimensional
// files, chosen ranges.
#include "data/instances.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "data/test_folder.h"

namespace wych::data {
namespace {

constexpr i32 kEos = 9;
constexpr i32 kNone = kIgnoredTarget;
using Ids = std::vector<i32>;

class InstancesOf : public testing::Test {
 protected:
  TokenFile raw(const Ids& tokens) const {
    (void)write_token_file(folder_.path("a.npy"), TokenType::kU16, tokens).value();
    return TokenFile::open(folder_.path("a.npy"), TokenType::kU16).value();
  }
  Instances make(TokenFile tokens, const BatchOptions& options, const std::string& mask = "") const {
    std::vector<InstanceFile> files;
    files.push_back({std::move(tokens)});
    if (!mask.empty()) {
      files[0].label_mask = LabelMask::open(folder_.write("mask", mask), files[0].tokens).value();
    }
    return Instances::create(std::move(files), options).value();
  }
  static Batch row(const Instances& instances, i64 index) {
    Batch batch;
    instances.shape(batch);
    // What was there before must not show.
    std::fill(batch.targets.begin(), batch.targets.end(), 12345);
    std::fill(batch.document_start.begin(), batch.document_start.end(), 12345);
    instances.fill_row(index, 0, batch).value();
    return batch;
  }
  static BatchOptions options(i64 length) {
    return {.sequence_length = length, .sequences_per_batch = 1, .vocab_size = 100, .eos_id = kEos};
  }
  TestFolder folder_;
};

TEST_F(InstancesOf, CutFilesHaveOneTargetLessThanTokens) {
  const Instances instances = make(raw({1, kEos, 2, 3, 4, kEos, 5, 6}), options(4));
  ASSERT_EQ(instances.count(), 2);
  const Batch first = row(instances, 0);
  EXPECT_EQ(first.tokens, (Ids{1, kEos, 2, 3}));
  EXPECT_EQ(first.targets, (Ids{kEos, 2, 3, kNone}));
  EXPECT_EQ(first.document_start, (Ids{0, 0, 2, 2}));
  EXPECT_EQ(row(instances, 1).document_start, (Ids{0, 0, 2, 2}));
}

TEST_F(InstancesOf, NextTargetsReachOneTokenFurther) {
  BatchOptions next = options(4);
  next.targets = Targets::kNext;
  EXPECT_EQ(make(raw({1, 2, 3, 4, 5, 6, 7, 8}), next).count(), 1);  // the second has no last target
  const Instances instances = make(raw({1, 2, 3, 4, 5, 6, 7, 8, 10}), next);
  ASSERT_EQ(instances.count(), 2);
  EXPECT_EQ(instances.tokens_dropped(), 1);
  EXPECT_EQ(row(instances, 0).targets, (Ids{2, 3, 4, 5}));
  EXPECT_EQ(row(instances, 1).targets, (Ids{6, 7, 8, 10}));
}

TEST_F(InstancesOf, TargetsStayWithinTheirDocumentWhenAsked) {
  BatchOptions within = options(4);
  within.targets_cross_documents = false;
  const Ids tokens = {1, kEos, 2, kEos, 3, 4, 5, 6, 7};
  const Instances instances = make(raw(tokens), within);
  EXPECT_EQ(row(instances, 0).targets, (Ids{kEos, kNone, kEos, kNone}));
  EXPECT_EQ(row(instances, 1).targets, (Ids{4, 5, 6, kNone}));
  within.targets = Targets::kNext;
  const Instances next = make(raw(tokens), within);
  EXPECT_EQ(row(next, 0).targets, (Ids{kEos, kNone, kEos, kNone}));  // the next document's 3 is no target
  EXPECT_EQ(row(next, 1).targets, (Ids{4, 5, 6, 7}));
  within.document_mask = false;  // the two are independent
  EXPECT_EQ(row(make(raw(tokens), within), 0).document_start, (Ids{0, 0, 0, 0}));
  EXPECT_EQ(row(make(raw(tokens), within), 0).targets, (Ids{kEos, kNone, kEos, kNone}));
}

TEST_F(InstancesOf, MaskedTokensAreNoTargets) {
  const std::string mask("\1\0\1\1\0\1\1\0\1", 9);
  BatchOptions plain = options(4);
  const Ids tokens = {1, 2, 3, 4, 5, 6, 7, 8, 10};
  const Instances instances = make(raw(tokens), plain, mask);
  EXPECT_EQ(row(instances, 0).targets, (Ids{kNone, 3, 4, kNone}));
  EXPECT_EQ(row(instances, 1).targets, (Ids{6, 7, kNone, kNone}));
  plain.targets = Targets::kNext;
  const Instances next = make(raw(tokens), plain, mask);
  EXPECT_EQ(row(next, 0).targets, (Ids{kNone, 3, 4, kNone}));
  EXPECT_EQ(row(next, 1).targets, (Ids{6, 7, kNone, 10}));
}

TEST_F(InstancesOf, AnInstanceMayHaveNoTargetAtAll) {
  EXPECT_EQ(row(make(raw({1, 2, 3}), options(3), std::string(3, '\0')), 0).targets,
            (Ids{kNone, kNone, kNone}));
}

// Documents: [1 9] [2 3 4 9] [5 9] [6 7] into rows of 6: the longest, then the others by order.
TEST_F(InstancesOf, PackedRowsHoldWholeDocumentsAndPadding) {
  BatchOptions packed = options(6);
  packed.packing = true;
  const Ids tokens = {1, kEos, 2, 3, 4, kEos, 5, kEos, 6, 7};
  const Instances instances = make(raw(tokens), packed);
  ASSERT_EQ(instances.count(), 2);
  EXPECT_EQ(instances.padding(), 2);
  const Batch first = row(instances, 0);
  EXPECT_EQ(first.tokens, (Ids{2, 3, 4, kEos, 1, kEos}));
  EXPECT_EQ(first.targets, (Ids{3, 4, kEos, 1, kEos, kNone}));
  EXPECT_EQ(first.document_start, (Ids{0, 0, 0, 0, 4, 4}));
  const Batch second = row(instances, 1);
  EXPECT_EQ(second.tokens, (Ids{5, kEos, 6, 7, kEos, kEos}));
  EXPECT_EQ(second.targets, (Ids{kEos, 6, 7, kNone, kNone, kNone}));
  EXPECT_EQ(second.document_start, (Ids{0, 0, 2, 2, 4, 4}));
  packed.targets_cross_documents = false;
  const Instances within = make(raw(tokens), packed);
  EXPECT_EQ(row(within, 0).targets, (Ids{3, 4, kEos, kNone, kEos, kNone}));
  EXPECT_EQ(row(within, 1).targets, (Ids{kEos, kNone, 7, kNone, kNone, kNone}));
}

TEST_F(InstancesOf, PackedRowsCarryTheirLabelMasks) {
  BatchOptions packed = options(6);
  packed.packing = true;
  //                          1  9  2  3  4  9  5  9  6  7
  const std::string mask("\0\1\1\0\1\1\1\1\0\1", 10);
  const Instances instances = make(raw({1, kEos, 2, 3, 4, kEos, 5, kEos, 6, 7}), packed, mask);
  EXPECT_EQ(row(instances, 0).targets, (Ids{kNone, 4, kEos, kNone, kEos, kNone}));
  EXPECT_EQ(row(instances, 1).targets, (Ids{kEos, kNone, 7, kNone, kNone, kNone}));
}

TEST_F(InstancesOf, AnIndexMarksDocumentsWithoutEndOfText) {
  const std::vector<i32> lengths = {3, 1, 5};
  (void)write_token_file(folder_.path("m.bin"), TokenType::kU16, Ids{1, 2, 3, 4, 5, 6, 7, 8, 10}).value();
  (void)folder_.write("m.idx", megatron_index_bytes(TokenType::kU16, lengths));
  BatchOptions within = options(4);
  within.targets_cross_documents = false;
  const Instances instances = make(TokenFile::open(folder_.path("m")).value(), within);
  EXPECT_EQ(row(instances, 0).document_start, (Ids{0, 0, 0, 3}));
  EXPECT_EQ(row(instances, 0).targets, (Ids{2, 3, kNone, kNone}));
  EXPECT_EQ(row(instances, 1).document_start, (Ids{0, 0, 0, 0}));
  EXPECT_EQ(row(instances, 1).targets, (Ids{6, 7, 8, kNone}));
  within.packing = true;
  const Instances packed = make(TokenFile::open(folder_.path("m")).value(), within);
  EXPECT_EQ(packed.count(), 3);  // 4 of the five, three, one and the fifth
  EXPECT_EQ(packed.padding(), 3);
}

TEST_F(InstancesOf, RowsOfATwoDimensionalFileAreNotJoined) {
  Ids tokens(15);
  std::iota(tokens.begin(), tokens.end(), 10);
  (void)write_token_file(folder_.path("raw"), TokenType::kU16, tokens).value();
  const std::string content =
      numpy_header(TokenType::kU16, 15, 5) + read_file(folder_.path("raw"), ErrorKind::kData).value();
  const auto open = [&] { return TokenFile::open(folder_.write("two.npy", content)).value(); };
  const Instances pairs = make(open(), options(2));
  ASSERT_EQ(pairs.count(), 6);
  EXPECT_EQ(pairs.tokens_dropped(), 3);
  EXPECT_EQ(row(pairs, 2).tokens, (Ids{15, 16}));
  EXPECT_EQ(row(pairs, 5).tokens, (Ids{22, 23}));
  BatchOptions next = options(4);
  next.targets = Targets::kNext;  // a row of T + 1 is an instance with T targets
  const Instances rows = make(open(), next);
  ASSERT_EQ(rows.count(), 3);
  EXPECT_EQ(row(rows, 1).tokens, (Ids{15, 16, 17, 18}));
  EXPECT_EQ(row(rows, 1).targets, (Ids{16, 17, 18, 19}));
}

TEST_F(InstancesOf, ChosenRangesReplaceTheWhole) {
  std::vector<TokenFile> files;
  for (const i32 first : {10, 20}) {
    Ids tokens(8);
    std::iota(tokens.begin(), tokens.end(), first);
    const std::string path = folder_.path(std::to_string(first));
    (void)write_token_file(path, TokenType::kU16, tokens).value();
    files.push_back(TokenFile::open(path, TokenType::kU16).value());
  }
  Instances instances = Instances::create(whole_files(std::move(files)), options(2)).value();
  EXPECT_EQ(instances.instances_of(1), 4);
  instances.choose({{1, 2}, {0, 3}, {1, 1}});
  ASSERT_EQ(instances.count(), 6);
  Ids first;
  for (i64 i = 0; i < 6; ++i) {
    first.push_back(row(instances, i).tokens[0]);
  }
  EXPECT_EQ(first, (Ids{20, 22, 10, 12, 14, 20}));
}

}  // namespace
}  // namespace wych::data
