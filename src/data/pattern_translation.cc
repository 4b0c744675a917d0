// From Oniguruma's syntax to PCRE2's. An allow-list: what is not known to mean the same is refused. The
// classes that differ are spelled out: \s is White_Space (PCRE2 adds U+180E), \w has marks and connectors
// (PCRE2 10.42 has neither), \p{Han} is the Script property (PCRE2 takes Script_Extensions).
#include <fmt/format.h>

#include "data/regex_split.h"

namespace wych::data {
namespace {

constexpr std::string_view kSpaceClass =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWordClass = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Expected<std::string> translate() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        WYCH_TRY_VOID(escape());
      } else if (in_class_) {
        WYCH_TRY_VOID(inside_class(c));
      } else {
        WYCH_TRY_VOID(outside_class(c));
      }
    }
    return std::move(out_);
  }

 private:
  [[nodiscard]] Error refuse(std::string_view construct) const {
    return Error{ErrorKind::kData,
                 "",
                 fmt::format("the pattern has {} at byte {}, which is not supported", construct, at_),
                 "",
                 {}};
  }

  [[nodiscard]] bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  void copy(std::size_t count) {
    out_.append(pattern_.substr(at_, count));
    at_ += count;
  }

  // A class of characters, within [...] or by itself.
  void put_class(std::string_view members, bool negated) {
    out_ += in_class_ ? std::string(members) : fmt::format("[{}{}]", negated ? "^" : "", members);
    at_ += 2;
  }

  Expected<void> inside_class(char c) {
    if (c == '[') {
      return refuse("a class within a class");
    }
    if (next_is("&&")) {
      return refuse("&& in a class");
    }
    in_class_ = c != ']';
    copy(1);
    return {};
  }

  Expected<void> outside_class(char c) {
    if (c == '[') {
      in_class_ = true;
      copy(next_is("[^") ? 2 : 1);
      if (next_is("]")) {
        return refuse("] as the first of a class");
      }
      return {};
    }
    if (next_is("(?")) {
      for (const std::string_view known : {"(?:", "(?i:", "(?!", "(?=", "(?<!", "(?<=", "(?>", "(?i)"}) {
        if (next_is(known)) {
          copy(known.size());
          return {};
        }
      }
      return refuse(pattern_.substr(at_, 3));
    }
    if (next_is("}+")) {
      return refuse("}+ (possessive in some syntaxes, repeated in others)");
    }
    if (next_is("(*")) {
      return refuse("(*");
    }
    copy(1);
    return {};
  }

  Expected<void> escape() {
    const char c = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    switch (c) {
      case 's':
        put_class(kSpaceClass, false);
        return {};
      case 'S':
        if (in_class_) {
          out_ += R"(\S\x{180e})";
          at_ += 2;
        } else {
          put_class(kSpaceClass, true);
        }
        return {};
      case 'w':
        put_class(kWordClass, false);
        return {};
      case 'W':
        if (in_class_) {
          return refuse("\\W in a class");
        }
        put_class(kWordClass, true);
        return {};
      case 'p':
      case 'P':
        return property();
      case 'u':
        return hexadecimal();
      case 'v':  // Oniguruma: the vertical tab alone
        out_ += "\\x0b";
        at_ += 2;
        return {};
      case 'd':
      case 'D':
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'x':
      case 'z':
        copy(2);
        return {};
      default:
        // An escaped mark stands for itself; other letters and digits mean something in one syntax or both.
        if (c == '\0' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
          return refuse(pattern_.substr(at_, 2));
        }
        copy(2);
        return {};
    }
  }

  // General categories (one or two letters) mean the same; any other name is taken for a script.
  Expected<void> property() {
    const std::size_t end = pattern_.find('}', at_);
    if (pattern_.substr(at_ + 2, 1) != "{" || end == std::string_view::npos) {
      return refuse("\\p without {}");
    }
    std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    const std::string_view negation = name.starts_with('^') ? "^" : "";
    name.remove_prefix(negation.size());
    const std::string_view kind = name.size() <= 2 || name == "Alphabetic" ? "" : "sc:";
    out_ += fmt::format("\\{}{{{}{}{}}}", pattern_[at_ + 1], negation, kind, name);
    at_ = end + 1;
    return {};
  }

  Expected<void> hexadecimal() {
    const std::string_view digits = pattern_.substr(at_ + 2, 4);
    if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
      return refuse("\\u without four digits");
    }
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 6;
    return {};
  }

  std::string_view pattern_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_class_ = false;
};

}  // namespace

Expected<std::string> translate_pattern(std::string_view pattern) { return Translator(pattern).translate(); }

}  // namespace wych::data
