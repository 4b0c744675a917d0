// Cuts text into the pieces that merges may not cross: a sequence of stages, each cutting the pieces of the
// one before, as a tokenizer.json lists them. A piece's neighbours do not exist for a stage.
#pragma once

#include <string_view>
#include <variant>
#include <vector>

#include "base/function_ref.h"
#include "data/pattern.h"
#include "data/regex_split.h"

namespace wych::data {

// Every number character (N) is a piece if `individual`, else every run of them; so is what is between.
struct DigitSplit {
  bool individual = false;
};

using SplitStage = std::variant<Pattern, DigitSplit, RegexSplit>;

class Pretokenizer {
 public:
  // Memory of one thread.
  struct Scratch {
    RegexScratch regex;
    std::vector<std::string_view> pieces;
    std::vector<std::string_view> next;
  };

  // Without stages a text is one piece.
  explicit Pretokenizer(std::vector<SplitStage> stages);

  // Calls visit(piece) for each piece of `text` in order. `visit` must not use the scratch.
  template <class F>
  void for_each(std::string_view text, Scratch& scratch, F&& visit) const {
    if (stages_.size() == 1 && std::holds_alternative<Pattern>(stages_.front())) {
      for_each_piece(std::get<Pattern>(stages_.front()), text, visit);
      return;
    }
    split(text, scratch);
    for (const std::string_view piece : scratch.pieces) {
      visit(piece);
    }
  }

  [[nodiscard]] const std::vector<SplitStage>& stages() const { return stages_; }
  // For people: "llama3", "regex, digits, gpt2", "none".
  [[nodiscard]] std::string description() const;

 private:
  // Leaves the pieces in the scratch.
  void split(std::string_view text, Scratch& scratch) const;

  std::vector<SplitStage> stages_;
};

}  // namespace wych::data
