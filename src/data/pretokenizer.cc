#include "data/pretokenizer.h"

#include "data/unicode.h"

namespace wych::data {
namespace {

void split_digits(DigitSplit digits, std::string_view text, std::vector<std::string_view>& pieces) {
  std::size_t begin = 0;
  bool was_number = false;
  for (std::size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    const bool is_number = (character.kind & kNumberKind) != 0;
    if (at > begin && (is_number != was_number || (is_number && digits.individual))) {
      pieces.push_back(text.substr(begin, at - begin));
      begin = at;
    }
    was_number = is_number;
    at += character.length;
  }
  if (begin < text.size()) {
    pieces.push_back(text.substr(begin));
  }
}

}  // namespace

Pretokenizer::Pretokenizer(std::vector<SplitStage> stages) : stages_(std::move(stages)) {}

void Pretokenizer::split(std::string_view text, Scratch& scratch) const {
  scratch.pieces.assign(text.empty() ? 0 : 1, text);
  for (const SplitStage& stage : stages_) {
    scratch.next.clear();
    for (const std::string_view piece : scratch.pieces) {
      if (const auto* pattern = std::get_if<Pattern>(&stage)) {
        for_each_piece(*pattern, piece, [&](std::string_view part) { scratch.next.push_back(part); });
      } else if (const auto* digits = std::get_if<DigitSplit>(&stage)) {
        split_digits(*digits, piece, scratch.next);
      } else {
        std::get<RegexSplit>(stage).split(piece, scratch.regex, scratch.next);
      }
    }
    scratch.pieces.swap(scratch.next);
  }
}

std::string Pretokenizer::description() const {
  std::string text;
  for (const SplitStage& stage : stages_) {
    text += text.empty() ? "" : ", ";
    if (const auto* pattern = std::get_if<Pattern>(&stage)) {
      text += pattern_name(*pattern);
    } else {
      text += std::holds_alternative<DigitSplit>(stage) ? "digits" : "regex";
    }
  }
  return text.empty() ? "none" : text;
}

}  // namespace wych::data
