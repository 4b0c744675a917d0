// What counting alone reaches: a unigram and a bigram model with Witten-Bell smoothing, trained on the same
// tokens and scored on the same targets as the network. A trained model that is not below the bigram has
// learned nothing from context; a report prints both beside the loss.
//   unigram  p(w)     = (c(w) + T / V) / (N + T),           T = distinct tokens seen, N = tokens
//   bigram   p(w | v) = (c(v w) + T(v) p(w)) / (c(v) + T(v)), T(v) = distinct successors of v
#pragma once

#include <span>
#include <vector>

#include "base/expected.h"
#include "base/types.h"
#include "data/sampler.h"

namespace wych::data {

struct BaselineScores {
  double unigram_nats = 0;  // mean per target
  double bigram_nats = 0;
  i64 targets = 0;
};

// More text hardly moves a bigram, and counting it all would not end.
inline constexpr i64 kMaxCountedTokens = i64{1} << 25U;

class Baselines {
 public:
  // Counts `files`, of each its beginning in proportion to its size if together they have more than
  // `max_tokens`; pairs within a file, across documents too, as the network sees them. Memory: 12 bytes a
  // token counted.
  static Expected<Baselines> train(std::span<const InstanceFile> files, i64 vocab_size,
                                   i64 max_tokens = kMaxCountedTokens);

  // Natural logarithms of the probabilities; ids below vocab_size.
  [[nodiscard]] double unigram_log_probability(i32 token) const;
  [[nodiscard]] double bigram_log_probability(i32 previous, i32 token) const;

  // Over all targets of the reader's batches (of its shard).
  [[nodiscard]] Expected<BaselineScores> score(const EvalReader& reader) const;

 private:
  struct Successor {
    i32 token;
    u32 count;
  };
  [[nodiscard]] double unigram_probability(i32 token) const;

  std::vector<i64> counts_;  // [vocab]
  i64 num_tokens_ = 0;
  i64 num_distinct_ = 0;
  std::vector<std::size_t> row_;       // [vocab + 1]: successors of v are [row_[v], row_[v + 1])
  std::vector<Successor> successors_;  // ascending by token within a row
  std::vector<i64> row_counts_;        // [vocab]: occurrences of v with a successor
};

}  // namespace wych::data
