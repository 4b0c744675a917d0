// PCRE2 with its just-in-time compiler. A match that runs out of the compiled code's stack is repeated by the
// interpreter, which keeps its state on the heap.
#include "data/regex_split.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/check.h"
#include "data/unicode.h"

namespace wych::data {
namespace {

struct Range {
  std::size_t begin;
  std::size_t end;
  bool is_match;
};

struct FreeContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};

constexpr std::size_t kFirstStackBytes = std::size_t{32} << 10U;
constexpr std::size_t kLastStackBytes = std::size_t{16} << 20U;
constexpr u32 kMatchLimit = 1U << 20U;  // steps of one match

// Where `text` must be cut so that no run of one kind is longer than allowed: the end of the part that starts
// at `begin`.
std::size_t part_end(std::string_view text, std::size_t begin) {
  if (text.size() - begin <= RegexSplit::kLongestRun) {
    return text.size();
  }
  int kind = -1;
  std::size_t run = 0;
  for (std::size_t at = begin; at < text.size();) {
    const Character character = character_at(text, at);
    run = character.kind == kind ? run + 1 : 1;
    if (run > RegexSplit::kLongestRun) {
      return at;
    }
    kind = character.kind;
    at += character.length;
  }
  return text.size();
}

Error compile_error(std::string what) { return Error{ErrorKind::kData, "", std::move(what), "", {}}; }

}  // namespace

struct RegexScratch::State {
  std::unique_ptr<pcre2_match_data, FreeContext> match{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, FreeContext> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, FreeContext> stack{
      pcre2_jit_stack_create(kFirstStackBytes, kLastStackBytes, nullptr)};
  std::vector<Range> ranges;  // of the text in hand
};

RegexScratch::RegexScratch() = default;
RegexScratch::RegexScratch(RegexScratch&&) noexcept = default;
RegexScratch& RegexScratch::operator=(RegexScratch&&) noexcept = default;
RegexScratch::~RegexScratch() = default;

RegexScratch::State& RegexScratch::state() {
  if (state_ == nullptr) {
    state_ = std::make_unique<State>();
    WYCH_CHECK(state_->match && state_->context && state_->stack, "out of memory");
    pcre2_set_match_limit(state_->context.get(), kMatchLimit);
    pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
  }
  return *state_;
}

struct RegexSplit::Code {
  std::unique_ptr<pcre2_code, FreeContext> code;

  // True if there is a match in subject[from, ...); its ends are in the scratch's match data. The subject is
  // well-formed.
  bool find(std::string_view subject, std::size_t from, RegexScratch::State& scratch) const {
    const auto* bytes = reinterpret_cast<PCRE2_SPTR>(subject.data());
    int result = pcre2_match(code.get(), bytes, subject.size(), from, PCRE2_NO_UTF_CHECK, scratch.match.get(),
                             scratch.context.get());
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
      result = pcre2_match(code.get(), bytes, subject.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                           scratch.match.get(), scratch.context.get());
    }
    // A limit that is reached counts as no match: the text is kept, uncut.
    WYCH_CHECK(result >= 0 || result == PCRE2_ERROR_NOMATCH || result == PCRE2_ERROR_MATCHLIMIT ||
                   result == PCRE2_ERROR_HEAPLIMIT || result == PCRE2_ERROR_DEPTHLIMIT,
               "PCRE2: error {}", result);
    return result >= 0;
  }
};

RegexSplit::RegexSplit() : code_(std::make_unique<Code>()) {}
RegexSplit::RegexSplit(RegexSplit&&) noexcept = default;
RegexSplit& RegexSplit::operator=(RegexSplit&&) noexcept = default;
RegexSplit::~RegexSplit() = default;

Expected<RegexSplit> RegexSplit::compile(std::string_view pattern, bool is_literal, SplitBehavior behavior,
                                         bool invert) {
  std::string translated(pattern);
  if (!is_literal) {
    WYCH_TRY(translated, translate_pattern(pattern));
  }
  const std::unique_ptr<pcre2_compile_context, FreeContext> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  // In Ruby's syntax ^ and $ always match at line ends.
  const u32 options = PCRE2_UTF | (is_literal ? u32{PCRE2_LITERAL} : u32{PCRE2_UCP} | u32{PCRE2_MULTILINE});
  int error = 0;
  std::size_t offset = 0;
  RegexSplit split;
  split.behavior_ = behavior;
  split.invert_ = invert;
  split.code_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                        options, &error, &offset, context.get()));
  if (split.code_->code == nullptr) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof(message));
    return compile_error(fmt::format("the pattern is not understood: {} at byte {} of {}",
                                     reinterpret_cast<const char*>(message), offset, translated));
  }
  u32 matches_empty = 0;
  pcre2_pattern_info(split.code_->code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    return compile_error("the pattern can match the empty string, which is not supported");
  }
  // Where the just-in-time compiler is not available the interpreter does the same.
  pcre2_jit_compile(split.code_->code.get(), PCRE2_JIT_COMPLETE);
  return split;
}

namespace {

// A text without stray bytes, each replaced by U+FFFD, and the way back to positions of the original.
class Repaired {
 public:
  explicit Repaired(std::string_view text) : text_(text) {
    std::size_t copied = 0;
    for (std::size_t at = 0; at < text.size();) {
      if (static_cast<unsigned char>(text[at]) < 0x80) {
        ++at;
        continue;
      }
      const CodePoint c = code_point_at(text, at);
      if (!c.is_valid) {
        copy_.append(text.substr(copied, at - copied));
        strays_.push_back(copy_.size());
        append_utf8(copy_, c.value);
        copied = at + 1;
      }
      at += c.length;
    }
    if (!strays_.empty()) {
      copy_.append(text.substr(copied));
      text_ = copy_;
    }
  }
  Repaired(const Repaired&) = delete;
  Repaired& operator=(const Repaired&) = delete;
  ~Repaired() = default;

  [[nodiscard]] std::string_view text() const { return text_; }
  // The position in the original; calls must not go backwards.
  std::size_t original(std::size_t position) {
    while (passed_ < strays_.size() && strays_[passed_] < position) {
      ++passed_;
    }
    return position - 2 * passed_;  // U+FFFD is two bytes longer than the byte it stands for
  }

 private:
  std::string_view text_;
  std::string copy_;                 // empty if there is nothing to repair
  std::vector<std::size_t> strays_;  // where they are in the copy
  std::size_t passed_ = 0;           // strays before the position last asked for
};

}  // namespace

void RegexSplit::find_ranges(std::string_view text, std::size_t begin, std::size_t end,
                             RegexScratch& scratch) const {
  Repaired repaired(text.substr(begin, end - begin));
  const std::string_view subject = repaired.text();
  const auto add = [&](std::size_t from, std::size_t to, bool is_match) {
    if (from < to) {
      const std::size_t first = begin + repaired.original(from);
      scratch.state().ranges.push_back({first, begin + repaired.original(to), is_match != invert_});
    }
  };
  const std::size_t* ends = pcre2_get_ovector_pointer(scratch.state().match.get());
  std::size_t previous = 0;
  while (previous < subject.size() && code_->find(subject, previous, scratch.state())) {
    // An empty match was excluded when the pattern was compiled.
    WYCH_CHECK(ends[0] >= previous && ends[1] > ends[0], "match of {} to {}", ends[0], ends[1]);
    const std::size_t match_begin = ends[0];
    const std::size_t match_end = ends[1];
    add(previous, match_begin, false);
    add(match_begin, match_end, true);
    previous = match_end;
  }
  add(previous, subject.size(), false);
}

void RegexSplit::split(std::string_view text, RegexScratch& scratch,
                       std::vector<std::string_view>& pieces) const {
  std::vector<Range>& ranges = scratch.state().ranges;
  ranges.clear();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = part_end(text, begin);
    find_ranges(text, begin, end, scratch);
    begin = end;
  }
  const std::size_t first = pieces.size();
  bool after_match = false;  // the range before this one is a match
  for (const Range& range : ranges) {
    const bool joins = behavior_ == SplitBehavior::kContiguous           ? range.is_match == after_match
                       : behavior_ == SplitBehavior::kMergedWithPrevious ? range.is_match && !after_match
                       : behavior_ == SplitBehavior::kMergedWithNext     ? after_match && !range.is_match
                                                                         : false;
    after_match = range.is_match;
    if (behavior_ == SplitBehavior::kRemoved && range.is_match) {
      continue;
    }
    if (joins && pieces.size() > first) {
      std::string_view& last = pieces.back();
      last = std::string_view(last.data(), last.size() + range.end - range.begin);
    } else {
      pieces.push_back(text.substr(range.begin, range.end - range.begin));
    }
  }
}

}  // namespace wych::data
