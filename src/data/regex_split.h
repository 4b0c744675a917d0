// Cuts text by a regular expression: for the pre-tokenizers whose pattern pattern.h does not know. The
// pattern is in the syntax of Oniguruma (Ruby), as tokenizer.json has it, and is run by PCRE2 in the same
// meaning: a construct that the two read differently is rewritten or refused by name. Bytes that are not
// UTF-8 match as U+FFFD does.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "base/types.h"

namespace wych::data {

// What becomes of the matches, between which are gaps; an empty piece is none.
enum class SplitBehavior : u8 {
  kIsolated,            // every match and every gap is a piece
  kRemoved,             // only gaps are pieces: the text of the matches is lost
  kContiguous,          // adjacent matches are one piece, gaps are pieces
  kMergedWithPrevious,  // a match belongs to the piece before it, unless that ends in a match
  kMergedWithNext,      // the same with the piece behind it
};

// Memory of one thread for any number of RegexSplits; made at its first use.
class RegexScratch {
 public:
  RegexScratch();
  RegexScratch(RegexScratch&&) noexcept;
  RegexScratch& operator=(RegexScratch&&) noexcept;
  ~RegexScratch();

 private:
  friend class RegexSplit;
  struct State;
  State& state();
  std::unique_ptr<State> state_;
};

class RegexSplit {
 public:
  // A literal pattern matches itself. `invert` exchanges matches and gaps. An Error has only `what`, and
  // names the construct.
  static Expected<RegexSplit> compile(std::string_view pattern, bool is_literal, SplitBehavior behavior,
                                      bool invert);
  RegexSplit(RegexSplit&&) noexcept;
  RegexSplit& operator=(RegexSplit&&) noexcept;
  ~RegexSplit();

  // Appends the pieces of `text` in order. A run of more than kLongestRun characters of one kind (letters,
  // spaces, ...) is cut there beforehand: back-tracking over it could take time in proportion to its square.
  static constexpr std::size_t kLongestRun = 4096;
  void split(std::string_view text, RegexScratch& scratch, std::vector<std::string_view>& pieces) const;

 private:
  struct Code;
  RegexSplit();
  // Appends to the scratch the matches and gaps of text[begin, end).
  void find_ranges(std::string_view text, std::size_t begin, std::size_t end, RegexScratch& scratch) const;

  std::unique_ptr<Code> code_;
  SplitBehavior behavior_ = SplitBehavior::kIsolated;
  bool invert_ = false;
};

// The pattern in PCRE2's syntax, or an Error that names the construct. (For tests.)
Expected<std::string> translate_pattern(std::string_view pattern);

}  // namespace wych::data
