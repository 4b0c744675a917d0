// Pieces of attention's gradient: they cover the problem, stay within the bound, and scratch follows from
// them.
#include "device/attention_plan.h"

#include <gtest/gtest.h>

namespace wych::device {
namespace {

constexpr i64 kGiB = i64{1} << 30U;

FusedAttention problem_of(i64 sequences, i64 sequence, i64 query_heads, i64 kv_heads) {
  return {.sequences = sequences,
          .sequence = sequence,
          .query_heads = query_heads,
          .kv_heads = kv_heads,
          .head_dim = 128};
}

TEST(AttentionPlan, SmallProblemsAreOnePiece) {
  const FusedAttention problem = problem_of(4, 1024, 16, 4);
  EXPECT_EQ(gradient_piece(problem), problem);
  // ds of each pair, dout . out, and dk and dv of each query head.
  const i64 rows = 4 * 16 * 1024;
  EXPECT_EQ(fused_gradient_workspace(problem), rows * (2 * 1024 + 4 + 8 * 128) + (4 << 20));
}

TEST(AttentionPlan, PiecesAreWholeSequencesWhileOneFits) {
  const FusedAttention piece = gradient_piece(problem_of(6, 4096, 8, 8));  // 256 MiB of pairs a sequence
  EXPECT_EQ(piece.sequences, 3);
  EXPECT_EQ(piece.query_heads, 8);
  EXPECT_LE(fused_gradient_workspace(problem_of(6, 4096, 8, 8)), kGiB);
}

TEST(AttentionPlan, ElsePiecesAreKeyHeadsWithTheirQueryHeads) {
  const FusedAttention piece = gradient_piece(problem_of(2, 8192, 16, 4));  // 512 MiB of pairs a key head
  EXPECT_EQ(piece.sequences, 1);
  EXPECT_EQ(piece.kv_heads, 1);
  EXPECT_EQ(piece.query_heads, 4);
  const FusedAttention two = gradient_piece(problem_of(2, 8192, 8, 4));
  EXPECT_EQ(two.kv_heads, 2);
  EXPECT_EQ(two.query_heads, 4);
}

TEST(AttentionPlan, PiecesDivideTheProblem) {
  for (const i64 sequences : {1, 5, 7, 12}) {
    for (const i64 sequence : {128, 2048, 8192, 16384}) {
      for (const i64 kv_heads : {1, 3, 8}) {
        const FusedAttention problem = problem_of(sequences, sequence, 2 * kv_heads, kv_heads);
        const FusedAttention piece = gradient_piece(problem);
        EXPECT_EQ(sequences % piece.sequences, 0);
        EXPECT_EQ(kv_heads % piece.kv_heads, 0);
        EXPECT_EQ(piece.group(), problem.group());
        EXPECT_TRUE(piece.kv_heads == kv_heads || piece.sequences == 1);
        EXPECT_TRUE(fused_gradient_workspace(problem) <= kGiB ||
                    (piece.sequences == 1 && piece.kv_heads == 1));
      }
    }
  }
}

TEST(AttentionPlan, WithoutOneOrderScratchGrowsWithTheSequenceAlone) {
  FusedAttention problem = problem_of(1, 16384, 8, 8);
  problem.deterministic = false;
  EXPECT_EQ(fused_gradient_workspace(problem), i64{8} * 16384 * (4 + 4 * 128) + (4 << 20));
  EXPECT_EQ(gradient_piece(problem), problem);
}

TEST(AttentionPlan, TakesHopperAndWholeTiles) {
  const CudaTarget hopper{.architecture = 90, .num_sms = 132};
  EXPECT_TRUE(fused_attention_takes(problem_of(1, 128, 16, 4), hopper));
  EXPECT_FALSE(fused_attention_takes(problem_of(1, 64, 16, 4), hopper));
  EXPECT_FALSE(fused_attention_takes(problem_of(0, 128, 16, 4), hopper));
  EXPECT_FALSE(fused_attention_takes(problem_of(1, 128, 16, 4), {.architecture = 80, .num_sms = 108}));
  EXPECT_FALSE(fused_attention_takes(problem_of(1, 128, 16, 4), {.architecture = 100, .num_sms = 148}));
  FusedAttention wide = problem_of(1, 128, 16, 4);
  wide.head_dim = 136;
  EXPECT_FALSE(fused_attention_takes(wide, hopper));
  wide.head_dim = 100;
  EXPECT_FALSE(fused_attention_takes(wide, hopper));
}

TEST(AttentionPlan, LeavesWhatNeedsTooMuchScratch) {
  const CudaTarget hopper{.architecture = 90, .num_sms = 132};
  EXPECT_TRUE(fused_attention_takes(problem_of(1, 16384, 16, 4), hopper));   // 2 GiB of pairs a key head
  EXPECT_FALSE(fused_attention_takes(problem_of(1, 32768, 16, 4), hopper));  // 8 GiB
  FusedAttention any_order = problem_of(1, 32768, 16, 4);
  any_order.deterministic = false;
  EXPECT_TRUE(fused_attention_takes(any_order, hopper));
}

}  // namespace
}  // namespace wych::device
