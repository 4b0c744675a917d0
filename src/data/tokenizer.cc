// The encoder. Pieces are short, so a linked list of symbols and a heap of candidate pairs is quick, and it
// stays O(n log n) for the odd piece of a megabyte. The file format is in tokenizer_json.cc.
#include "data/tokenizer.h"

#include <algorithm>
#include <queue>

#include "base/check.h"
#include "data/pretokenizer.h"

namespace wych::data {
namespace {

u64 pair_key(i32 left, i32 right) {
  return (static_cast<u64>(static_cast<u32>(left)) << 32U) | static_cast<u32>(right);
}

// A node of the doubly linked list of symbols of one piece; id < 0 once merged into its left neighbour.
struct Symbol {
  i32 id;
  i32 previous;
  i32 next;
};

struct Candidate {
  i32 rank;
  i32 position;  // of the left symbol
  i32 left;      // ids when queued: the candidate is stale if the symbols have changed since
  i32 right;
  i32 result;
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

// Runs of texts that are encoded together: at least this many bytes, so that a cache of pieces pays off.
constexpr std::size_t kChunkBytes = std::size_t{1} << 20U;

}  // namespace

Tokenizer::Tokenizer(std::vector<std::string> tokens, std::vector<BpeMerge> merges, i32 eos_id)
    : tokens_(std::move(tokens)), merges_(std::move(merges)), eos_id_(eos_id) {
  WYCH_CHECK(eos_id >= 0 && eos_id < vocab_size(), "end-of-text id {} of {}", eos_id, vocab_size());
  byte_ids_.fill(-1);
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    WYCH_CHECK(tokens_[id].empty() == (static_cast<i32>(id) == eos_id), "token {} is empty", id);
    if (tokens_[id].size() == 1) {
      byte_ids_[static_cast<unsigned char>(tokens_[id][0])] = static_cast<i32>(id);
    }
  }
  for (const i32 id : byte_ids_) {
    WYCH_CHECK(id >= 0, "a single byte has no token");
  }
  ranks_.reserve(merges_.size());
  for (std::size_t rank = 0; rank < merges_.size(); ++rank) {
    const BpeMerge& merge = merges_[rank];
    WYCH_CHECK(std::string(token(merge.left)).append(token(merge.right)) == token(merge.result),
               "merge {} does not concatenate", rank);
    const RankedResult ranked{static_cast<i32>(rank), merge.result};
    const bool inserted = ranks_.emplace(pair_key(merge.left, merge.right), ranked).second;
    WYCH_CHECK(inserted, "merge {} occurs twice", rank);
  }
}

void Tokenizer::encode_piece(std::string_view piece, std::vector<i32>& ids) const {
  WYCH_CHECK(piece.size() < (std::size_t{1} << 30U), "a piece of {} bytes", piece.size());
  const auto count = static_cast<i32>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  for (i32 i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(piece[static_cast<std::size_t>(i)]);
    symbols[static_cast<std::size_t>(i)] = {byte_ids_[byte], i - 1, i + 1 < count ? i + 1 : -1};
  }
  const auto symbol = [&symbols](i32 index) -> Symbol& { return symbols[static_cast<std::size_t>(index)]; };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto enqueue = [&](i32 position) {
    const i32 next = position < 0 ? -1 : symbol(position).next;
    if (next < 0) {
      return;
    }
    const i32 left = symbol(position).id;
    const i32 right = symbol(next).id;
    if (const auto found = ranks_.find(pair_key(left, right)); found != ranks_.end()) {
      queue.push({found->second.rank, position, left, right, found->second.result});
    }
  };
  for (i32 i = 0; i + 1 < count; ++i) {
    enqueue(i);
  }
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbol(best.position);
    if (left.id != best.left || left.next < 0 || symbol(left.next).id != best.right) {
      continue;
    }
    Symbol& right = symbol(left.next);
    left.id = best.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) {
      symbol(left.next).previous = best.position;
    }
    enqueue(left.previous);
    enqueue(best.position);
  }
  for (i32 i = 0; i >= 0 && count > 0; i = symbol(i).next) {
    ids.push_back(symbol(i).id);
  }
}

std::vector<i32> Tokenizer::encode(std::string_view text) const {
  std::vector<i32> ids;
  for_each_pretoken(text, [&](std::string_view piece) { encode_piece(piece, ids); });
  return ids;
}

std::vector<std::vector<i32>> Tokenizer::encode_all(std::span<const std::string> texts,
                                                    ThreadPool& pool) const {
  std::vector<std::size_t> chunk_begins;
  std::size_t bytes = kChunkBytes;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (bytes >= kChunkBytes) {
      chunk_begins.push_back(i);
      bytes = 0;
    }
    bytes += texts[i].size();
  }
  const auto num_chunks = static_cast<i64>(chunk_begins.size());
  chunk_begins.push_back(texts.size());
  std::vector<std::vector<i32>> results(texts.size());
  pool.parallel_for(num_chunks, [&](i64 chunk) {
    struct Range {
      std::size_t begin;
      std::size_t count;
    };
    std::unordered_map<std::string_view, Range> cache;  // piece -> its ids in `known`
    std::vector<i32> known;
    const auto index = static_cast<std::size_t>(chunk);
    for (std::size_t i = chunk_begins[index]; i < chunk_begins[index + 1]; ++i) {
      std::vector<i32>& ids = results[i];
      ids.reserve(texts[i].size() / 2);
      for_each_pretoken(texts[i], [&](std::string_view piece) {
        const auto [entry, is_new] = cache.try_emplace(piece, Range{known.size(), 0});
        Range& range = entry->second;
        if (is_new) {
          encode_piece(piece, known);
          range.count = known.size() - range.begin;
        }
        const auto begin = known.begin() + static_cast<std::ptrdiff_t>(range.begin);
        ids.insert(ids.end(), begin, begin + static_cast<std::ptrdiff_t>(range.count));
      });
    }
  });
  return results;
}

std::string Tokenizer::decode(std::span<const i32> ids) const {
  std::string text;
  for (const i32 id : ids) {
    if (id >= 0 && id < vocab_size()) {
      text.append(token(id));
    }
  }
  return text;
}

}  // namespace wych::data
