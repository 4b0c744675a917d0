// Cuts text into the pieces that byte-pair merges may not cross, as the pattern of GPT-2 does:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// A hand-written scanner: no regular-expression engine, and any bytes are accepted. A byte that is not part
// of well-formed UTF-8 counts as a character that is neither space, letter nor number, so no byte is lost.
#pragma once

#include <string_view>

namespace wych::data {

// The length in bytes (>= 1) of the piece that starts at text[begin]; begin < text.size().
std::size_t pretoken_length(std::string_view text, std::size_t begin);

// Calls visit(std::string_view piece) for each piece of `text` in order; the pieces concatenate to `text`.
template <class F>
void for_each_pretoken(std::string_view text, F&& visit) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t length = pretoken_length(text, begin);
    visit(text.substr(begin, length));
    begin += length;
  }
}

}  // namespace wych::data
