// Byte-level byte-pair encoding: text to token ids and back. A text goes through added tokens
// (added_tokens.h), a normaliser (normalizer.h), a pre-tokenizer (pretokenizer.h) and, piece by piece, merges
// (bpe_model.h). Any bytes encode; without a normaliser decode(encode(text)) == text (but see encode). Reads
// Hugging Face's tokenizer.json and tiktoken's rank files, whose ids are reproduced exactly; bpe_trainer.h
// makes new ones. Move-only.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/expected.h"
#include "base/thread_pool.h"
#include "base/types.h"
#include "data/added_tokens.h"
#include "data/bpe_model.h"
#include "data/normalizer.h"
#include "data/pretokenizer.h"

namespace wych::data {

// The usual name of the token that ends every document in a token file.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// What a file may leave open.
struct TokenizerOptions {
  // Content of the end-of-text token. Empty: `eos_token` of a tokenizer_config.json beside the file, else the
  // first of the usual names (kEndOfText, <|end_of_text|>, </s>, ...; tokenizer.cc lists them) among its
  // added tokens.
  std::string end_of_text;
  // For a rank file whose name is not that of an encoding (cl100k_base.tiktoken): a name of pattern.h, or of
  // an encoding, which also gives its special tokens.
  std::string pattern;
  // For a rank file: content and id; given, these replace the encoding's.
  std::vector<std::pair<std::string, i32>> special_tokens;
};

// Everything a tokenizer is made of.
struct TokenizerParts {
  BpeModel model;
  Pretokenizer pretokenizer;
  std::vector<AddedToken> added;  // distinct contents and ids; the end-of-text token among them, as special
  i32 eos_id = 0;
  std::string eos_origin;  // how it was found, for people
  Normalizer normalizer;
  bool add_prefix_space = false;  // before every stretch of text between added tokens that does not start so
  std::vector<i32> prefix_ids;    // before every text: beginning-of-text tokens
  std::string json;               // the tokenizer.json it was read from; empty if it was not
};

class Tokenizer {
 public:
  // Consistent parts: ids of added tokens are free or have the same bytes in the model, special ones are free
  // (CHECKed).
  explicit Tokenizer(TokenizerParts parts);
  // GPT-2's pattern and one added token, kEndOfText as `eos_id`; tokens[eos_id] is empty, the only empty one,
  // and the rest is as BpeModel demands (CHECKed).
  Tokenizer(std::vector<std::string> tokens, std::vector<BpeMerge> merges, i32 eos_id,
            Pattern pattern = Pattern::kGpt2);
  // The 256 bytes by value, then end-of-text.
  static Tokenizer bytes();

  // `source` is "byte" (bytes()), a tokenizer.json, a folder that holds one, or a rank file. Errors are kData
  // and name the file and the key: whatever would change ids and is not honoured here is an error
  // (docs/tokenizer.md).
  static Expected<Tokenizer> load(const std::string& source, const TokenizerOptions& options = {});
  // The formats from memory; `where` names the source in errors, and a rank file's encoding.
  static Expected<Tokenizer> from_json(std::string_view json, const std::string& where,
                                       const TokenizerOptions& options = {});
  static Expected<Tokenizer> from_ranks(std::string_view ranks, const std::string& where,
                                        const TokenizerOptions& options = {});
  // A tokenizer.json that gives the same ids: verbatim the one it was read from, if it was.
  [[nodiscard]] std::string to_json() const;

  // Ids of `text`: what the file's post-processor puts before a text (a beginning-of-text token; often
  // nothing), then those of the text, without an end-of-text token. Special tokens are found in the text only
  // on request. Time O(n log n).
  [[nodiscard]] std::vector<i32> encode(std::string_view text,
                                        SpecialText special = SpecialText::kText) const;
  // encode of every text.
  [[nodiscard]] std::vector<std::vector<i32>> encode_all(std::span<const std::string> texts, ThreadPool& pool,
                                                         SpecialText special = SpecialText::kText) const;
  // The bytes of `ids`. Special tokens and ids outside the vocabulary decode to nothing.
  [[nodiscard]] std::string decode(std::span<const i32> ids) const;

  // The largest id + 1; ids between may be unused.
  [[nodiscard]] i64 vocab_size() const { return vocab_size_; }
  [[nodiscard]] i32 eos_id() const { return parts_.eos_id; }
  // The text that names the end-of-text token.
  [[nodiscard]] std::string_view end_of_text() const;
  // Bytes of one token, empty for special and unused ones; 0 <= id < vocab_size().
  [[nodiscard]] std::string_view token(i32 id) const;
  [[nodiscard]] const std::vector<BpeMerge>& merges() const { return parts_.model.merges(); }
  [[nodiscard]] const TokenizerParts& parts() const { return parts_; }

 private:
  struct Worker;  // what one thread needs
  void encode_text(std::string_view text, SpecialText special, Worker& worker, std::vector<i32>& ids) const;
  // Text without added tokens.
  void encode_segment(std::string_view text, Worker& worker, std::vector<i32>& ids) const;

  TokenizerParts parts_;
  i64 vocab_size_ = 0;
  AddedTokenMatcher raw_added_;                       // looked for in the text as it is
  AddedTokenMatcher normalized_added_;                // then in the normalised text
  std::unordered_map<i32, std::size_t> added_by_id_;  // index into parts_.added
};

// The end-of-text token among `added`, which becomes special: `wanted` if not empty, else the first of the
// usual names. The index, or a kData Error at `where`.
Expected<std::size_t> find_end_of_text(std::vector<AddedToken>& added, const std::string& wanted,
                                       const std::string& where);

// `eos_token` of the tokenizer_config.json beside the file `path`: a text, or an object with `content`. Empty
// if there is no such file or key.
Expected<std::string> configured_end_of_text(const std::string& path);

}  // namespace wych::data
