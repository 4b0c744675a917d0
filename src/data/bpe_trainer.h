// Learns byte-pair merges from text. Deterministic: each step joins the most frequent pair of adjacent
// symbols; of equal counts the one with the smaller left id, then the smaller right id. Occurrences are
// counted within the pieces of a pattern, overlapping ones too ("aaa" holds "aa" twice). A pair that spells a
// token which exists already (a+bc when ab+c is there) is never joined.
// Ids: the 256 bytes by value, then one token a merge in order, then end-of-text.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "base/types.h"
#include "data/tokenizer.h"

namespace wych::data {

// How often each piece occurs in a corpus, which may be larger than memory: only distinct pieces are kept.
class PieceCounts {
 public:
  explicit PieceCounts(Pattern pattern) : pattern_(pattern) {}

  // Counts the pieces of `texts`, in parallel: a long text is cut behind line ends for that. Of a piece of
  // more than kMaxPieceBytes, parts of that length are counted: such a piece is data, not language, and its
  // repeated recounting would take time in proportion to its square.
  static constexpr std::size_t kMaxPieceBytes = 1024;
  void add(std::span<const std::string_view> texts, ThreadPool& pool);

  using Counts = std::unordered_map<std::string, i64>;
  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] Pattern pattern() const { return pattern_; }

 private:
  Pattern pattern_;
  Counts counts_;
};

// A tokenizer of `vocab_size` (>= 257, CHECKed) tokens, or of fewer if no pair occurs twice any more. Time:
// in proportion to the distinct pieces that the merges touch. `progress` hears the number of tokens now and
// then.
Tokenizer train_bpe(const PieceCounts& pieces, i64 vocab_size, FunctionRef<void(i64 tokens)> progress);

// The same from texts, by GPT-2's pattern.
Tokenizer train_bpe(std::span<const std::string_view> texts, i64 vocab_size);

}  // namespace wych::data
