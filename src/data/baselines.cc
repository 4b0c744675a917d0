// Pairs are sorted, not hashed: the rows of successors come out in order, and scoring is a binary search.
// The formulas are in the header.
#include "data/baselines.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace wych::data {

Expected<Baselines> Baselines::train(std::span<const InstanceFile> files, i64 vocab_size, i64 max_tokens) {
  Baselines model;
  const auto vocab = static_cast<std::size_t>(vocab_size);
  model.counts_.assign(vocab, 0);
  std::vector<u64> pairs;  // previous << 32 | token
  double available = 0;
  for (const InstanceFile& file : files) {
    available += static_cast<double>(file.tokens.num_tokens());
  }
  const double share = std::min(1.0, static_cast<double>(max_tokens) / std::max(available, 1.0));
  for (const InstanceFile& file : files) {
    std::vector<i32> tokens(static_cast<std::size_t>(share * static_cast<double>(file.tokens.num_tokens())));
    WYCH_TRY_VOID(file.tokens.read(0, vocab_size, tokens));
    model.num_tokens_ += std::ssize(tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      ++model.counts_[static_cast<std::size_t>(tokens[i])];
      if (i > 0) {
        pairs.push_back((static_cast<u64>(tokens[i - 1]) << 32U) | static_cast<u64>(tokens[i]));
      }
    }
  }
  model.num_distinct_ =
      std::count_if(model.counts_.begin(), model.counts_.end(), [](i64 n) { return n > 0; });
  std::sort(pairs.begin(), pairs.end());
  model.row_.assign(vocab + 1, 0);
  model.row_counts_.assign(vocab, 0);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto previous = static_cast<std::size_t>(pairs[i] >> 32U);
    ++model.row_counts_[previous];
    if (i > 0 && pairs[i] == pairs[i - 1]) {
      ++model.successors_.back().count;
    } else {
      model.successors_.push_back({static_cast<i32>(pairs[i] & 0xffffffffU), 1});
      ++model.row_[previous + 1];
    }
  }
  for (std::size_t v = 0; v < vocab; ++v) {
    model.row_[v + 1] += model.row_[v];
  }
  return model;
}

double Baselines::unigram_probability(i32 token) const {
  const auto count = static_cast<double>(counts_[static_cast<std::size_t>(token)]);
  const auto distinct = static_cast<double>(num_distinct_);
  return (count + distinct / static_cast<double>(counts_.size())) /
         (static_cast<double>(num_tokens_) + distinct);
}

double Baselines::unigram_log_probability(i32 token) const { return std::log(unigram_probability(token)); }

double Baselines::bigram_log_probability(i32 previous, i32 token) const {
  const auto row = static_cast<std::size_t>(previous);
  const auto begin = successors_.begin() + static_cast<std::ptrdiff_t>(row_[row]);
  const auto end = successors_.begin() + static_cast<std::ptrdiff_t>(row_[row + 1]);
  if (begin == end) {
    return unigram_log_probability(token);
  }
  const auto found =
      std::lower_bound(begin, end, token, [](const Successor& s, i32 t) { return s.token < t; });
  const double count = found != end && found->token == token ? found->count : 0.0;
  const auto distinct = static_cast<double>(end - begin);
  return std::log((count + distinct * unigram_probability(token)) /
                  (static_cast<double>(row_counts_[row]) + distinct));
}

Expected<BaselineScores> Baselines::score(const EvalReader& reader) const {
  WYCH_CHECK(reader.instances().options().vocab_size <= static_cast<i64>(counts_.size()),
             "scored with a larger vocabulary than counted");
  BaselineScores scores;
  Batch batch;
  for (i64 index = 0; index < reader.num_batches(); ++index) {
    WYCH_TRY_VOID(reader.fill(index, batch));
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
      if (batch.targets[i] != kIgnoredTarget) {
        scores.unigram_nats -= unigram_log_probability(batch.targets[i]);
        scores.bigram_nats -= bigram_log_probability(batch.tokens[i], batch.targets[i]);
        ++scores.targets;
      }
    }
  }
  if (scores.targets > 0) {
    scores.unigram_nats /= static_cast<double>(scores.targets);
    scores.bigram_nats /= static_cast<double>(scores.targets);
  }
  return scores;
}

}  // namespace wych::data
