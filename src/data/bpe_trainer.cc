// Works on distinct pieces with their counts. Pair counts are kept exactly; the heap is lazy: a count only
// falls after the merge that made the pair, so an entry popped with a stale count is pushed back corrected.
// Every merge makes a new token: that is why a pair that spells a known token is passed over (header).
#include "data/bpe_trainer.h"

#include <algorithm>
#include <mutex>
#include <queue>
#include <unordered_set>

#include "base/check.h"
#include "data/unicode.h"

namespace wych::data {
namespace {

constexpr i32 kNumBytes = 256;
constexpr i64 kMinCount = 2;  // a pair seen once is no regularity
constexpr std::size_t kChunkBytes = std::size_t{1} << 20U;
constexpr i64 kProgressEvery = 256;  // tokens

struct Word {
  std::size_t begin = 0;   // of its symbols in Trainer::symbols_
  std::size_t length = 0;  // only falls
  i64 count = 0;           // occurrences in the texts
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

// Whether all patterns cut between a line end and text[begin].
bool starts_a_piece(std::string_view text, std::size_t begin) {
  return text[begin] != '/' && (character_at(text, begin).kind & kSpaceKind) == 0;
}

// Cuts a text into parts of about kChunkBytes, where pieces end.
void add_parts(std::string_view text, std::vector<std::string_view>& parts) {
  while (text.size() > kChunkBytes) {
    std::size_t end = text.find('\n', kChunkBytes);
    while (end != std::string_view::npos && end + 1 < text.size() && !starts_a_piece(text, end + 1)) {
      end = text.find('\n', end + 1);
    }
    if (end == std::string_view::npos || end + 1 >= text.size()) {
      break;
    }
    parts.push_back(text.substr(0, end + 1));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
}

class Trainer {
 public:
  explicit Trainer(const PieceCounts::Counts& counts) {
    for (const auto& [piece, count] : counts) {
      const std::size_t begin = symbols_.size();
      for (const char byte : piece) {
        symbols_.push_back(static_cast<unsigned char>(byte));
      }
      words_.push_back({begin, piece.size(), count});
    }
    WYCH_CHECK(words_.size() < (std::size_t{1} << 32U), "{} distinct pieces", words_.size());
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
      if (occurs(words_[index], pair)) {
        count_pairs(index, -1, -1);
        join(words_[index], pair, result);
        count_pairs(index, 1, result);
      }
    }
    pairs_.erase(pair_key(pair.left, pair.right));
    for (const u64 key : fresh_) {
      push(key, pairs_[key].count);
    }
    fresh_.clear();
  }

 private:
  [[nodiscard]] std::span<i32> symbols(const Word& word) {
    return std::span(symbols_).subspan(word.begin, word.length);
  }

  [[nodiscard]] bool occurs(const Word& word, const Entry& pair) {
    const std::span<const i32> all = symbols(word);
    for (std::size_t i = 0; i + 1 < all.size(); ++i) {
      if (all[i] == pair.left && all[i + 1] == pair.right) {
        return true;
      }
    }
    return false;
  }

  // Adds or takes away the pairs of one word. Taking away and adding again keeps counts exact without
  // reasoning about overlaps; a pair that holds `created` is new in this step and is noted in fresh_.
  void count_pairs(u32 index, i64 sign, i32 created) {
    const std::span<const i32> all = symbols(words_[index]);
    for (std::size_t i = 0; i + 1 < all.size(); ++i) {
      const i32 left = all[i];
      const i32 right = all[i + 1];
      const u64 key = pair_key(left, right);
      PairState& state = pairs_[key];
      const bool is_created = left == created || right == created;
      if (is_created && state.words.empty()) {
        fresh_.push_back(key);
      }
      state.count += sign * words_[index].count;
      const bool may_be_unlisted = created < 0 ? sign > 0 : is_created;
      if (may_be_unlisted && (state.words.empty() || state.words.back() != index)) {
        state.words.push_back(index);
      }
    }
  }

  void join(Word& word, const Entry& pair, i32 result) {
    const std::span<i32> all = symbols(word);
    std::size_t out = 0;
    for (std::size_t i = 0; i < all.size(); ++out) {
      const bool matches = i + 1 < all.size() && all[i] == pair.left && all[i + 1] == pair.right;
      all[out] = matches ? result : all[i];
      i += matches ? 2 : 1;
    }
    word.length = out;
  }

  void push(u64 key, i64 count) {
    if (count >= kMinCount) {
      heap_.push({count, static_cast<i32>(key >> 32U), static_cast<i32>(key & 0xffffffffU)});
    }
  }

  std::vector<i32> symbols_;  // of all words, each where it began
  std::vector<Word> words_;
  std::unordered_map<u64, PairState> pairs_;
  std::priority_queue<Entry> heap_;
  std::vector<u64> fresh_;  // pairs made by the merge being applied
};

}  // namespace

void PieceCounts::add(std::span<const std::string_view> texts, ThreadPool& pool) {
  std::vector<std::string_view> parts;
  for (const std::string_view text : texts) {
    add_parts(text, parts);
  }
  std::vector<std::size_t> chunk_begins;
  std::size_t bytes = kChunkBytes;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (bytes >= kChunkBytes) {
      chunk_begins.push_back(i);
      bytes = 0;
    }
    bytes += parts[i].size();
  }
  const auto num_chunks = static_cast<i64>(chunk_begins.size());
  chunk_begins.push_back(parts.size());
  std::mutex mutex;
  pool.parallel_for(num_chunks, [&](i64 chunk) {
    std::unordered_map<std::string_view, i64> local;
    const auto index = static_cast<std::size_t>(chunk);
    for (std::size_t i = chunk_begins[index]; i < chunk_begins[index + 1]; ++i) {
      for_each_piece(pattern_, parts[i], [&](std::string_view piece) {
        for (; piece.size() > kMaxPieceBytes; piece.remove_prefix(kMaxPieceBytes)) {
          ++local[piece.substr(0, kMaxPieceBytes)];
        }
        ++local[piece];
      });
    }
    const std::lock_guard lock(mutex);
    for (const auto& [piece, count] : local) {
      counts_[std::string(piece)] += count;
    }
  });
}

Tokenizer train_bpe(const PieceCounts& pieces, i64 vocab_size, FunctionRef<void(i64)> progress) {
  WYCH_CHECK(vocab_size > kNumBytes && vocab_size < (i64{1} << 31U), "vocabulary of {}", vocab_size);
  std::vector<std::string> tokens;
  for (i32 byte = 0; byte < kNumBytes; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  std::vector<BpeMerge> merges;
  Trainer trainer(pieces.counts());
  std::unordered_set<std::string> known;  // what the merges spell
  while (std::ssize(tokens) + 1 < vocab_size) {
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
      if (std::ssize(tokens) % kProgressEvery == 0) {
        progress(std::ssize(tokens));
      }
    }
  }
  const auto eos_id = static_cast<i32>(tokens.size());
  tokens.emplace_back();
  return Tokenizer(std::move(tokens), std::move(merges), eos_id, pieces.pattern());
}

Tokenizer train_bpe(std::span<const std::string_view> texts, i64 vocab_size) {
  PieceCounts pieces(Pattern::kGpt2);
  ThreadPool pool(1);
  pieces.add(texts, pool);
  return train_bpe(pieces, vocab_size, [](i64) {});
}

}  // namespace wych::data
