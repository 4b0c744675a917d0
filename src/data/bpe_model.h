// Byte-pair encoding of one piece: within it the pair with the lowest rank is joined first, the leftmost of
// equals. The tables are flat and never change; a PieceCache, one a thread, remembers short pieces.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace wych::data {

// Tokens `left` and `right`, when adjacent, become `result`.
struct BpeMerge {
  i32 left = 0;
  i32 right = 0;
  i32 result = 0;
};

// What the rank of a merge is.
enum class MergeRank : u8 {
  kPosition,  // its index in the list
  kResult,    // the id of its result: several pairs may make the same token (tiktoken)
};

// Bytes to token id; the bytes themselves stay with the caller. Equal bytes: the smaller id.
class TokenIndex {
 public:
  TokenIndex() = default;
  // Empty tokens are left out.
  explicit TokenIndex(std::span<const std::string> tokens);
  // The id of the token with these bytes, or -1. `tokens` is what the index was made from.
  [[nodiscard]] i32 find(std::string_view bytes, std::span<const std::string> tokens) const;

 private:
  std::vector<i32> slots_;  // a power of two of them; -1: free
};

// A direct-mapped memory of what short pieces encode to. Fixed size: nothing grows, a collision forgets.
class PieceCache {
 public:
  static constexpr std::size_t kMaxBytes = 15;
  static constexpr std::size_t kMaxIds = 3;

  PieceCache();

 private:
  friend class BpeModel;
  struct Entry {
    u64 low = 0;   // the piece, zero-padded ...
    u64 high = 0;  // ... with its length in the last byte; 0: free
    std::array<i32, kMaxIds> ids{};
    i32 count = 0;
  };
  std::vector<Entry> entries_;
};

class BpeModel {
 public:
  // tokens[id] = bytes of the token, empty if no piece can become it. All 256 single bytes are present, each
  // merge's result is the concatenation of its parts, and no pair occurs twice (CHECKed). If `whole_pieces`,
  // a piece that is a token is that token, whatever the merges say.
  BpeModel(std::vector<std::string> tokens, std::vector<BpeMerge> merges, MergeRank rank, bool whole_pieces);

  // False for 0xc0, 0xc1 and 0xf5 to 0xff.
  static bool required_byte(int byte) { return byte != 0xc0 && byte != 0xc1 && byte < 0xf5; }
  // Whether `text` has only bytes that have tokens. Text that has not must not be encoded (CHECKed).
  [[nodiscard]] bool covers(std::string_view text) const;
  [[nodiscard]] bool has_byte(char byte) const { return byte_ids_[static_cast<unsigned char>(byte)] >= 0; }

  // Appends the ids of `piece`. Time O(n log n); pieces beyond 2^30 bytes are encoded in parts.
  void encode(std::string_view piece, std::vector<i32>& ids) const;
  // The same, quicker for what the cache has seen. A cache serves one model.
  void encode(std::string_view piece, PieceCache& cache, std::vector<i32>& ids) const;

  [[nodiscard]] const std::vector<std::string>& tokens() const { return tokens_; }
  [[nodiscard]] const std::vector<BpeMerge>& merges() const { return merges_; }
  [[nodiscard]] MergeRank rank() const { return rank_; }
  [[nodiscard]] bool whole_pieces() const { return whole_pieces_; }

 private:
  struct Ranked {
    i32 rank = kNone;
    i32 result = -1;
  };
  static constexpr i32 kNone = 0x7fffffff;
  struct Pair {
    u64 key = ~u64{0};  // left << 32 | right; all ones: free
    Ranked ranked;
  };

  void insert(u64 key, Ranked ranked);
  // Rank kNone if the pair is not joined.
  [[nodiscard]] Ranked find(i32 left, i32 right) const;
  // For short pieces: scans for the lowest rank. O(n^2) with a small constant.
  void encode_short(std::string_view piece, std::vector<i32>& ids) const;
  // With a heap of candidates.
  void encode_long(std::string_view piece, std::vector<i32>& ids) const;

  std::vector<std::string> tokens_;
  std::vector<BpeMerge> merges_;
  MergeRank rank_;
  bool whole_pieces_;
  TokenIndex index_;                 // only if whole_pieces_
  std::vector<Pair> pairs_;          // hash table, a power of two
  std::array<i32, 256> byte_ids_{};  // -1: none
  bool has_all_bytes_ = true;
};

}  // namespace wych::data
