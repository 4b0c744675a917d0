// The tables are open-addressed with linear probing, at most half full. A piece of text is short: scanning an
// array for the lowest rank beats any clever structure up to some sixty bytes, a heap takes over beyond.
#include "data/bpe_model.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <queue>

#include "base/check.h"

namespace wych::data {
namespace {

constexpr std::size_t kShortBytes = 64;
constexpr std::size_t kCacheEntries = std::size_t{1} << 15U;  // of 32 bytes: half a second-level cache
constexpr std::size_t kMaxPieceBytes = std::size_t{1} << 30U;

u64 pair_key(i32 left, i32 right) {
  return (static_cast<u64>(static_cast<u32>(left)) << 32U) | static_cast<u32>(right);
}

// Multiplies and folds: the upper bits of the product depend on all of the input.
u64 mix(u64 a, u64 b) {
  const auto product = static_cast<unsigned __int128>(a ^ 0x9e3779b97f4a7c15U) * (b ^ 0xd6e8feb86659fd93U);
  return static_cast<u64>(product) ^ static_cast<u64>(product >> 64U);
}

u64 hash_bytes(std::string_view bytes) {
  u64 hash = bytes.size();
  while (!bytes.empty()) {
    u64 word = 0;
    const std::size_t count = std::min(bytes.size(), sizeof(word));
    std::memcpy(&word, bytes.data(), count);
    hash = mix(hash, word);
    bytes.remove_prefix(count);
  }
  return hash;
}

std::size_t table_size(std::size_t entries) { return std::bit_ceil(std::max<std::size_t>(entries, 8) * 2); }

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

}  // namespace

TokenIndex::TokenIndex(std::span<const std::string> tokens) : slots_(table_size(tokens.size()), -1) {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    std::size_t slot = hash_bytes(tokens[id]) & mask;
    while (slots_[slot] >= 0 && tokens[static_cast<std::size_t>(slots_[slot])] != tokens[id]) {
      slot = (slot + 1) & mask;
    }
    if (slots_[slot] < 0 && !tokens[id].empty()) {
      slots_[slot] = static_cast<i32>(id);
    }
  }
}

i32 TokenIndex::find(std::string_view bytes, std::span<const std::string> tokens) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_bytes(bytes) & mask;
  while (slots_[slot] >= 0 && tokens[static_cast<std::size_t>(slots_[slot])] != bytes) {
    slot = (slot + 1) & mask;
  }
  return slots_[slot];
}

PieceCache::PieceCache() : entries_(kCacheEntries) {}

BpeModel::BpeModel(std::vector<std::string> tokens, std::vector<BpeMerge> merges, MergeRank rank,
                   bool whole_pieces)
    : tokens_(std::move(tokens)), merges_(std::move(merges)), rank_(rank), whole_pieces_(whole_pieces) {
  byte_ids_.fill(-1);
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].size() == 1) {
      byte_ids_[static_cast<unsigned char>(tokens_[id][0])] = static_cast<i32>(id);
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_there = byte_ids_[static_cast<std::size_t>(byte)] >= 0;
    WYCH_CHECK(is_there || !required_byte(byte), "the byte {:#04x} has no token", byte);
    has_all_bytes_ = has_all_bytes_ && is_there;
  }
  if (whole_pieces_) {
    index_ = TokenIndex(tokens_);
  }
  pairs_.resize(table_size(merges_.size()));
  const auto token = [this](i32 id) -> const std::string& { return tokens_[static_cast<std::size_t>(id)]; };
  for (std::size_t i = 0; i < merges_.size(); ++i) {
    const BpeMerge& merge = merges_[i];
    const std::string& left = token(merge.left);
    const std::string& whole = token(merge.result);
    WYCH_CHECK(left.size() + token(merge.right).size() == whole.size() && whole.starts_with(left) &&
                   whole.ends_with(token(merge.right)),
               "merge {} does not concatenate", i);
    insert(pair_key(merge.left, merge.right),
           {rank_ == MergeRank::kPosition ? static_cast<i32>(i) : merge.result, merge.result});
  }
}

bool BpeModel::covers(std::string_view text) const {
  return has_all_bytes_ || std::all_of(text.begin(), text.end(), [this](char c) { return has_byte(c); });
}

void BpeModel::insert(u64 key, Ranked ranked) {
  const std::size_t mask = pairs_.size() - 1;
  std::size_t slot = mix(key, 0) & mask;
  while (pairs_[slot].ranked.rank != kNone) {
    WYCH_CHECK(pairs_[slot].key != key, "merge of rank {} occurs twice", ranked.rank);
    slot = (slot + 1) & mask;
  }
  pairs_[slot] = {key, ranked};
}

BpeModel::Ranked BpeModel::find(i32 left, i32 right) const {
  const u64 key = pair_key(left, right);
  const std::size_t mask = pairs_.size() - 1;
  std::size_t slot = mix(key, 0) & mask;
  while (pairs_[slot].key != key && pairs_[slot].ranked.rank != kNone) {
    slot = (slot + 1) & mask;
  }
  return pairs_[slot].ranked;
}

void BpeModel::encode_short(std::string_view piece, std::vector<i32>& ids) const {
  std::array<i32, kShortBytes> symbols;   // NOLINT: the first `count` are set below
  std::array<Ranked, kShortBytes> pairs;  // NOLINT: of symbols i and i + 1
  std::size_t count = piece.size();
  for (std::size_t i = 0; i < count; ++i) {
    symbols[i] = byte_ids_[static_cast<unsigned char>(piece[i])];
  }
  for (std::size_t i = 0; i + 1 < count; ++i) {
    pairs[i] = find(symbols[i], symbols[i + 1]);
  }
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      best = pairs[i].rank < pairs[best].rank ? i : best;
    }
    if (pairs[best].rank == kNone) {
      break;
    }
    symbols[best] = pairs[best].result;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i - 1] = pairs[i];
    }
    if (best > 0) {
      pairs[best - 1] = find(symbols[best - 1], symbols[best]);
    }
    if (best + 1 < count) {
      pairs[best] = find(symbols[best], symbols[best + 1]);
    }
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(count));
}

void BpeModel::encode_long(std::string_view piece, std::vector<i32>& ids) const {
  const auto count = static_cast<i32>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  for (i32 i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(piece[static_cast<std::size_t>(i)]);
    symbols[static_cast<std::size_t>(i)] = {byte_ids_[byte], i - 1, i + 1 < count ? i + 1 : -1};
  }
  const auto symbol = [&symbols](i32 index) -> Symbol& { return symbols[static_cast<std::size_t>(index)]; };
  std::vector<Candidate> candidates;
  const auto candidate = [&](i32 position, auto&& add) {
    const i32 next = position < 0 ? -1 : symbol(position).next;
    if (next >= 0) {
      const i32 left = symbol(position).id;
      const i32 right = symbol(next).id;
      if (const Ranked ranked = find(left, right); ranked.rank != kNone) {
        add(Candidate{ranked.rank, position, left, right, ranked.result});
      }
    }
  };
  for (i32 i = 0; i + 1 < count; ++i) {
    candidate(i, [&](const Candidate& c) { candidates.push_back(c); });
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue({}, std::move(candidates));
  const auto enqueue = [&](i32 position) { candidate(position, [&](const Candidate& c) { queue.push(c); }); };
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
  for (i32 i = 0; i >= 0; i = symbol(i).next) {
    ids.push_back(symbol(i).id);
  }
}

void BpeModel::encode(std::string_view piece, std::vector<i32>& ids) const {
  while (piece.size() > kMaxPieceBytes) {
    encode_long(piece.substr(0, kMaxPieceBytes), ids);
    piece.remove_prefix(kMaxPieceBytes);
  }
  if (whole_pieces_) {
    if (const i32 id = index_.find(piece, tokens_); id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  if (piece.size() <= kShortBytes) {
    encode_short(piece, ids);
  } else {
    encode_long(piece, ids);
  }
}

void BpeModel::encode(std::string_view piece, PieceCache& cache, std::vector<i32>& ids) const {
  if (piece.size() == 1) {
    ids.push_back(byte_ids_[static_cast<unsigned char>(piece[0])]);
    return;
  }
  if (piece.size() > PieceCache::kMaxBytes) {
    encode(piece, ids);
    return;
  }
  std::array<char, 16> key{};
  std::memcpy(key.data(), piece.data(), piece.size());
  key[15] = static_cast<char>(piece.size());
  u64 low = 0;
  u64 high = 0;
  std::memcpy(&low, key.data(), sizeof(low));
  std::memcpy(&high, key.data() + sizeof(low), sizeof(high));
  PieceCache::Entry& entry = cache.entries_[mix(low, high) & (kCacheEntries - 1)];
  if (entry.low != low || entry.high != high) {
    const std::size_t first = ids.size();
    encode(piece, ids);
    const std::size_t count = ids.size() - first;
    if (count > PieceCache::kMaxIds) {
      return;
    }
    entry.low = low;
    entry.high = high;
    entry.count = static_cast<i32>(count);
    std::copy(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end(), entry.ids.begin());
    return;
  }
  ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
}

}  // namespace wych::data
