// Each step of a scanner is one alternative of its pattern, in the pattern's order. Where an alternative
// needs back-tracking, a comment says what back-tracking would find.
#include "data/pattern.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "data/unicode.h"

namespace wych::data {
namespace {

constexpr CharKind kNotOther = kSpaceKind | kNumberKind | kLetterKinds;  // marks count as other

// The end of the run of characters of any of the kinds that starts at `position`.
template <CharKind kinds>
std::size_t run_end(std::string_view text, std::size_t position) {
  while (position < text.size()) {
    const Character character = character_at(text, position);
    if ((character.kind & kinds) == 0) {
      break;
    }
    position += character.length;
  }
  return position;
}

// The end of the run of [^\s\p{L}\p{N}] that starts at `position`.
std::size_t other_end(std::string_view text, std::size_t position) {
  while (position < text.size()) {
    const Character character = character_at(text, position);
    if ((character.kind & kNotOther) != 0) {
      break;
    }
    position += character.length;
  }
  return position;
}

std::size_t numbers_end(std::string_view text, std::size_t position, int at_most) {
  for (int i = 0; i < at_most && position < text.size(); ++i) {
    const Character character = character_at(text, position);
    if ((character.kind & kNumberKind) == 0) {
      break;
    }
    position += character.length;
  }
  return position;
}

// Bytes of the English contraction in lower case at text[begin] == '\'', or 0.
std::size_t contraction_length(std::string_view text, std::size_t begin) {
  const std::string_view rest = text.substr(begin + 1, 2);
  if (rest.starts_with("re") || rest.starts_with("ve") || rest.starts_with("ll")) {
    return 3;
  }
  return !rest.empty() && std::string_view("stmd").find(rest[0]) != std::string_view::npos ? 2 : 0;
}

// The same in any case, or 0 if text[begin] is no '\''. U+017F (C5 BF) is a long s: it folds to s.
std::size_t any_case_contraction_length(std::string_view text, std::size_t begin) {
  if (begin >= text.size() || text[begin] != '\'') {
    return 0;
  }
  if (text.substr(begin + 1, 2) == "\xc5\xbf") {
    return 3;
  }
  std::array<char, 3> lower{'\'', '\0', '\0'};
  for (std::size_t i = 1; i < lower.size() && begin + i < text.size(); ++i) {
    const char c = text[begin + i];
    lower[i] = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return contraction_length(std::string_view(lower.data(), lower.size()), 0);
}

struct SpaceRun {
  std::size_t end = 0;
  std::size_t last = 0;             // start of its last character
  std::size_t line_ends_until = 0;  // behind its last \r or \n; `begin` if it has none
};

SpaceRun space_run(std::string_view text, std::size_t begin) {
  SpaceRun run{begin, begin, begin};
  while (run.end < text.size()) {
    const Character character = character_at(text, run.end);
    if ((character.kind & kSpaceKind) == 0) {
      break;
    }
    run.last = run.end;
    run.end += character.length;
    if ((character.kind & kLineEndKind) != 0) {
      run.line_ends_until = run.end;
    }
  }
  return run;
}

// \s+(?!\S)|\s+: a run that is followed by something else leaves its last character to the next piece.
std::size_t space_end(std::string_view text, std::size_t begin, const SpaceRun& run) {
  return run.end == text.size() || run.last == begin ? run.end : run.last;
}

// \s*[\r\n]+|\s+(?!\S)|\s+
std::size_t line_or_space_end(std::string_view text, std::size_t begin, const SpaceRun& run) {
  return run.line_ends_until > begin ? run.line_ends_until : space_end(text, begin, run);
}

std::size_t gpt2_length(std::string_view text, std::size_t begin) {
  if (text[begin] == '\'') {
    if (const std::size_t length = contraction_length(text, begin); length > 0) {
      return length;
    }
  }
  // ` ?` in front of a run of letters, numbers or others.
  const std::size_t start = text[begin] == ' ' && begin + 1 < text.size() ? begin + 1 : begin;
  const Character first = character_at(text, start);
  const std::size_t next = start + first.length;
  if ((first.kind & kLetterKinds) != 0) {
    return run_end<kLetterKinds>(text, next) - begin;
  }
  if ((first.kind & kNumberKind) != 0) {
    return run_end<kNumberKind>(text, next) - begin;
  }
  if ((first.kind & kSpaceKind) == 0) {
    return other_end(text, next) - begin;
  }
  return space_end(text, begin, space_run(text, begin)) - begin;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N}{1,max_digits} | ` ?`[^\s\p{L}\p{N}]+[\r\n]*
// | \s+$ (if tail) | \s*[\r\n]+ | \s+(?!\S) | \s+
template <int max_digits, bool tail>
std::size_t lines_length(std::string_view text, std::size_t begin) {
  if (const std::size_t length = any_case_contraction_length(text, begin); length > 0) {
    return length;
  }
  const Character first = character_at(text, begin);
  const std::size_t next = begin + first.length;
  if ((first.kind & kLetterKinds) != 0) {
    return run_end<kLetterKinds>(text, next) - begin;
  }
  if ((first.kind & kNumberKind) != 0) {
    return numbers_end(text, next, max_digits - 1) - begin;
  }
  if ((first.kind & kLineEndKind) == 0) {
    if (const std::size_t end = run_end<kLetterKinds>(text, next); end > next) {
      return end - begin;
    }
  }
  const std::size_t start = text[begin] == ' ' ? next : begin;
  if (const std::size_t end = other_end(text, start); end > start) {
    return run_end<kLineEndKind>(text, end) - begin;
  }
  const SpaceRun run = space_run(text, begin);
  if (tail && run.end == text.size()) {
    return run.end - begin;
  }
  return line_or_space_end(text, begin, run) - begin;
}

// [Lu Lt Lm Lo M]*[Ll Lm Lo M]+ and, if that fails, [Lu Lt Lm Lo M]+[Ll Lm Lo M]* from one position.
struct Word {
  std::size_t lower_end = 0;  // of the first; 0 if it does not match
  std::size_t upper_end = 0;  // of the second; 0 if it does not match
};

Word word_at(std::string_view text, std::size_t begin) {
  constexpr CharKind kBoth = kCaselessKind | kMarkKind;
  std::size_t both_end = 0;  // behind the last character of the run that either part may take
  std::size_t at = begin;
  while (at < text.size()) {
    const Character character = character_at(text, at);
    if ((character.kind & (kUpperKind | kBoth)) == 0) {
      break;
    }
    at += character.length;
    if ((character.kind & kBoth) != 0) {
      both_end = at;
    }
  }
  if (const std::size_t end = run_end<kLowerKind | kBoth>(text, at); end > at) {
    return {end, 0};
  }
  // Back-tracking gives the first part's last characters to the second, as far as they may be there: what
  // follows the last of either is capitals only.
  return both_end > 0 ? Word{both_end, 0} : Word{0, at > begin ? at : 0};
}

template <int max_digits, bool has_contractions>
std::size_t cased_length(std::string_view text, std::size_t begin) {
  const Character first = character_at(text, begin);
  const std::size_t next = begin + first.length;
  const bool may_prefix = (first.kind & (kLineEndKind | kLetterKinds | kNumberKind)) == 0;
  const Word behind = may_prefix ? word_at(text, next) : Word{};
  const bool may_start = (first.kind & (kLetterKinds | kMarkKind)) != 0;
  const Word here = may_start && behind.lower_end == 0 ? word_at(text, begin) : Word{};
  for (const std::size_t end : {behind.lower_end, here.lower_end, behind.upper_end, here.upper_end}) {
    if (end > 0) {
      return end + (has_contractions ? any_case_contraction_length(text, end) : 0) - begin;
    }
  }
  if ((first.kind & kNumberKind) != 0) {
    return numbers_end(text, next, max_digits - 1) - begin;
  }
  const std::size_t start = text[begin] == ' ' ? next : begin;
  if (std::size_t end = other_end(text, start); end > start) {
    while (end < text.size() && (text[end] == '\r' || text[end] == '\n' || text[end] == '/')) {
      ++end;
    }
    return end - begin;
  }
  return line_or_space_end(text, begin, space_run(text, begin)) - begin;
}

struct Known {
  Pattern pattern;
  std::string_view name;
  std::string_view text;
  PieceLength length;
};

constexpr std::array<Known, std::size(kPatterns)> kKnown = {{
    {Pattern::kGpt2, "gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     gpt2_length},
    {Pattern::kCl100k, "cl100k",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s+\z|\s*[\r\n]+|\s+(?!\S)|\s+)",
     lines_length<3, true>},
    {Pattern::kLlama3, "llama3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
     lines_length<3, false>},
    {Pattern::kQwen2, "qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
     lines_length<1, false>},
    {Pattern::kO200k, "o200k",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     cased_length<3, true>},
    {Pattern::kTekken, "tekken",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     cased_length<1, false>},
}};

struct Alias {
  std::string_view name;
  Pattern pattern;
};
constexpr Alias kAliases[] = {{"r50k_base", Pattern::kGpt2},      {"p50k_base", Pattern::kGpt2},
                              {"p50k_edit", Pattern::kGpt2},      {"p50k", Pattern::kGpt2},
                              {"cl100k_base", Pattern::kCl100k},  {"o200k_base", Pattern::kO200k},
                              {"o200k_harmony", Pattern::kO200k}, {"dolma2", Pattern::kLlama3}};

const Known& known(Pattern pattern) {
  const Known& entry = kKnown[static_cast<std::size_t>(pattern)];
  WYCH_CHECK(entry.pattern == pattern, "pattern {} is out of place", static_cast<int>(pattern));
  return entry;
}

}  // namespace

std::string_view pattern_name(Pattern pattern) { return known(pattern).name; }

std::string_view pattern_text(Pattern pattern) { return known(pattern).text; }

std::optional<Pattern> pattern_by_name(std::string_view name) {
  for (const Known& entry : kKnown) {
    if (entry.name == name) {
      return entry.pattern;
    }
  }
  for (const Alias& alias : kAliases) {
    if (alias.name == name) {
      return alias.pattern;
    }
  }
  return std::nullopt;
}

std::optional<Pattern> pattern_by_text(std::string_view text) {
  for (const Known& entry : kKnown) {
    if (entry.text == text) {
      return entry.pattern;
    }
  }
  return std::nullopt;
}

PieceLength piece_length(Pattern pattern) { return known(pattern).length; }

}  // namespace wych::data
