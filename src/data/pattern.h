// The patterns by which known tokenizers cut text into the pieces that merges may not cross, as hand-written
// scanners: no regular-expression engine, linear time, any bytes (unicode.h says what a stray byte counts
// as). Every pattern here covers all of a text: the pieces concatenate to it.
#pragma once

#include <optional>
#include <string_view>

#include "base/types.h"

namespace wych::data {

enum class Pattern : u8 {
  kGpt2,    // GPT-2, GPT-NeoX; tiktoken's r50k and p50k
  kCl100k,  // tiktoken's cl100k: as kLlama3, but white space at the end of a text is one piece
  kLlama3,  // Llama 3, dolma2: numbers in threes, line ends apart
  kQwen2,   // the same with single digits
  kO200k,   // tiktoken's o200k: words begin at capitals and keep their contraction
  kTekken,  // Mistral's: the same with single digits and no contractions
};
inline constexpr Pattern kPatterns[] = {Pattern::kGpt2,  Pattern::kCl100k, Pattern::kLlama3,
                                        Pattern::kQwen2, Pattern::kO200k,  Pattern::kTekken};

// "gpt2", "cl100k", "llama3", "qwen2", "o200k", "tekken".
std::string_view pattern_name(Pattern pattern);
// The pattern as a regular expression, as a tokenizer.json states it.
std::string_view pattern_text(Pattern pattern);
// Also the names of tiktoken's encodings: "r50k_base", "p50k_base", "cl100k_base", "o200k_base", ...
std::optional<Pattern> pattern_by_name(std::string_view name);
// Exact text only.
std::optional<Pattern> pattern_by_text(std::string_view text);

// The length in bytes (>= 1) of the piece that starts at text[begin]; begin < text.size(), and a piece starts
// there. What comes before `begin` is not looked at.
using PieceLength = std::size_t (*)(std::string_view text, std::size_t begin);
PieceLength piece_length(Pattern pattern);

// Calls visit(std::string_view piece) for each piece of `text` in order.
template <class F>
void for_each_piece(Pattern pattern, std::string_view text, F&& visit) {
  const PieceLength length_at = piece_length(pattern);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t length = length_at(text, begin);
    visit(text.substr(begin, length));
    begin += length;
  }
}

}  // namespace wych::data
