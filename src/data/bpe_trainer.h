// Learns byte-pair merges from text. Deterministic: each step joins the most frequent pair of adjacent
// symbols; of equal counts the one with the smaller left id, then the smaller right id. Occurrences are
// counted within the pieces of pretokenizer.h, overlapping ones too ("aaa" holds "aa" twice). A pair that
// spells a token which exists already (a+bc when ab+c is there) is never joined.
// Ids: the 256 bytes by value, then one token a merge in order, then end-of-text.
#pragma once

#include <span>
#include <string_view>

#include "base/types.h"
#include "data/tokenizer.h"

namespace wych::data {

// A tokenizer of `vocab_size` (>= 257, CHECKed) tokens, or of fewer if no pair occurs twice any more.
// Time: one pass over the texts, then in proportion to the distinct pieces that the merges touch.
Tokenizer train_bpe(std::span<const std::string_view> texts, i64 vocab_size);

}  // namespace wych::data
