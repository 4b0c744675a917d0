// Byte-level byte-pair encoding. Any bytes encode, and decode(encode(text)) == text always. A text is cut by
// pretokenizer.h; within a piece the pair with the lowest merge rank is joined first, the leftmost of equals.
// Trained by bpe_trainer.h; the file is a Hugging Face tokenizer.json, whose ids are reproduced exactly.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/expected.h"
#include "base/thread_pool.h"
#include "base/types.h"

namespace wych::data {

// Ends every document in a token file. As a string it is only this name: encode never produces it from text.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// Tokens `left` and `right`, when adjacent, become `result`; the rank is the index in the list of merges.
struct BpeMerge {
  i32 left = 0;
  i32 right = 0;
  i32 result = 0;
};

class Tokenizer {
 public:
  // tokens[id] = bytes of the token, empty for `eos_id` alone; all 256 single bytes are present, each merge's
  // result is the concatenation of its parts, and no pair occurs twice (CHECKed).
  Tokenizer(std::vector<std::string> tokens, std::vector<BpeMerge> merges, i32 eos_id);

  // Reads a tokenizer.json. Accepted: a BPE model over the byte alphabet without dropout, unknown token,
  // prefix, suffix or byte fallback; no normalizer; the ByteLevel pre-tokenizer with its own pattern and no
  // prefix space; one added token, <|endoftext|>. Anything else is an Error (kData) that names the key.
  static Expected<Tokenizer> load(const std::string& path);
  // The same from memory; `where` names the source in errors.
  static Expected<Tokenizer> from_json(std::string_view json, const std::string& where);
  // The text of the tokenizer.json: the same bytes for the same tokenizer.
  [[nodiscard]] std::string to_json() const;

  // Ids of `text`, without an end-of-text token. Time O(n log n) in the longest piece.
  [[nodiscard]] std::vector<i32> encode(std::string_view text) const;
  // encode of every text; each distinct piece of a chunk of texts is encoded once.
  [[nodiscard]] std::vector<std::vector<i32>> encode_all(std::span<const std::string> texts,
                                                         ThreadPool& pool) const;
  // The bytes of `ids`. End-of-text and ids outside the vocabulary decode to nothing.
  [[nodiscard]] std::string decode(std::span<const i32> ids) const;

  [[nodiscard]] i64 vocab_size() const { return static_cast<i64>(tokens_.size()); }
  [[nodiscard]] i32 eos_id() const { return eos_id_; }
  [[nodiscard]] const std::vector<BpeMerge>& merges() const { return merges_; }
  // Bytes of one token, empty for end-of-text; 0 <= id < vocab_size().
  [[nodiscard]] std::string_view token(i32 id) const { return tokens_[static_cast<std::size_t>(id)]; }

 private:
  struct RankedResult {
    i32 rank;
    i32 result;
  };
  // Appends the ids of one piece of the pre-tokenizer.
  void encode_piece(std::string_view piece, std::vector<i32>& ids) const;

  std::vector<std::string> tokens_;
  std::vector<BpeMerge> merges_;
  std::unordered_map<u64, RankedResult> ranks_;  // key: left << 32 | right
  std::array<i32, 256> byte_ids_{};
  i32 eos_id_ = 0;
};

}  // namespace wych::data
