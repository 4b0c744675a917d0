// Works on distinct pieces with their counts. Pair counts are kept exactly; the heap is lazy: a count only
// falls after the merge that made the pair, so an entry popped with a stale count is pushed back corrected.
// Every merge makes a new token: that is why a pair that spells a known token is passed over (header).
#include "data/bpe_trainer.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "data/pretokenizer.h"

namespace wych::data {
namespace {

constexpr i32 kNumBytes = 256;
constexpr i64 kMinCount = 2;  // a pair seen once is no regularity

struct Word {
  std::vector<i32> symbols;
  i64 count = 0;  // occurrences in the texts
};

struct PairState {
  i64 count = 0;
  std::vector<u32> words;  // where it occurs or did; ascending, no duplicates
};

struct Entry {
  i64 count = 0;
  i32 left = 0;
  i32 right = 0;
  // Orders the heap: the greatest is merged first.
  bool operator<(const Entry& other) const {
    if (count != other.count) {
      return count < other.count;
    }
    return left != other.left ? left > other.left : right > other.right;
  }
};

u64 pair_key(i32 left, i32 right) {
  return (static_cast<u64>(static_cast<u32>(left)) << 32U) | static_cast<u32>(right);
}

class Trainer {
 public:
  explicit Trainer(std::span<const std::string_view> texts) {
    count_words(texts);
    for (u32 index = 0; index < words_.size(); ++index) {
      count_pairs(index, /*sign=*/1, /*created=*/-1);
    }
    for (const auto& [key, state] : pairs_) {
      push(key, state.count);
    }
  }

  // The most frequent pair, or a count below kMinCount if there is none.
  Entry pop_best() {
    while (!heap_.empty()) {
      Entry best = heap_.top();
      heap_.pop();
      const i64 count = pairs_[pair_key(best.left, best.right)].count;
      if (count == best.count) {
        return best;
      }
      push(pair_key(best.left, best.right), count);
    }
    return {};
  }

  // Replaces the pair by `result` wherever it occurs and updates the counts.
  void apply(const Entry& pair, i32 result) {
    const std::vector<u32> touched = std::move(pairs_[pair_key(pair.left, pair.right)].words);
    for (const u32 index : touched) {
      count_pairs(index, -1, -1);
      join(words_[index].symbols, pair, result);
      count_pairs(index, 1, result);
    }
    pairs_.erase(pair_key(pair.left, pair.right));
    for (const u64 key : fresh_) {
      push(key, pairs_[key].count);
    }
    fresh_.clear();
  }

 private:
  void count_words(std::span<const std::string_view> texts) {
    std::unordered_map<std::string_view, u32> index;
    for (const std::string_view text : texts) {
      for_each_pretoken(text, [&](std::string_view piece) {
        const auto [entry, is_new] = index.try_emplace(piece, static_cast<u32>(words_.size()));
        if (is_new) {
          Word word;
          for (const char byte : piece) {
            word.symbols.push_back(static_cast<unsigned char>(byte));
          }
          words_.push_back(std::move(word));
        }
        ++words_[entry->second].count;
      });
    }
  }

  // Adds or takes away the pairs of one word. Taking away and adding again keeps counts exact without
  // reasoning about overlaps; a pair that holds `created` is new in this step and is noted in fresh_.
  void count_pairs(u32 index, i64 sign, i32 created) {
    const Word& word = words_[index];
    for (std::size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      const i32 left = word.symbols[i];
      const i32 right = word.symbols[i + 1];
      const u64 key = pair_key(left, right);
      PairState& state = pairs_[key];
      const bool is_created = left == created || right == created;
      if (is_created && state.words.empty()) {
        fresh_.push_back(key);
      }
      state.count += sign * word.count;
      const bool may_be_unlisted = created < 0 ? sign > 0 : is_created;
      if (may_be_unlisted && (state.words.empty() || state.words.back() != index)) {
        state.words.push_back(index);
      }
    }
  }

  static void join(std::vector<i32>& symbols, const Entry& pair, i32 result) {
    std::size_t out = 0;
    for (std::size_t i = 0; i < symbols.size(); ++out) {
      const bool matches = i + 1 < symbols.size() && symbols[i] == pair.left && symbols[i + 1] == pair.right;
      symbols[out] = matches ? result : symbols[i];
      i += matches ? 2 : 1;
    }
    symbols.resize(out);
  }

  void push(u64 key, i64 count) {
    if (count >= kMinCount) {
      heap_.push({count, static_cast<i32>(key >> 32U), static_cast<i32>(key & 0xffffffffU)});
    }
  }

  std::vector<Word> words_;
  std::unordered_map<u64, PairState> pairs_;
  std::priority_queue<Entry> heap_;
  std::vector<u64> fresh_;  // pairs made by the merge being applied
};

}  // namespace

Tokenizer train_bpe(std::span<const std::string_view> texts, i64 vocab_size) {
  WYCH_CHECK(vocab_size > kNumBytes && vocab_size < (i64{1} << 31U), "vocabulary of {}", vocab_size);
  std::vector<std::string> tokens;
  for (i32 byte = 0; byte < kNumBytes; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  std::vector<BpeMerge> merges;
  Trainer trainer(texts);
  std::unordered_set<std::string> known;  // what the merges spell
  while (static_cast<i64>(tokens.size()) + 1 < vocab_size) {
    const Entry best = trainer.pop_best();
    if (best.count < kMinCount) {
      break;
    }
    const auto result = static_cast<i32>(tokens.size());
    std::string bytes =
        tokens[static_cast<std::size_t>(best.left)] + tokens[static_cast<std::size_t>(best.right)];
    if (known.insert(bytes).second) {
      tokens.push_back(std::move(bytes));
      merges.push_back({best.left, best.right, result});
      trainer.apply(best, result);
    }
  }
  const auto eos_id = static_cast<i32>(tokens.size());
  tokens.emplace_back();
  return Tokenizer(std::move(tokens), std::move(merges), eos_id);
}

}  // namespace wych::data
