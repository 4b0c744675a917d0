// utf8proc decomposes and composes; the canonical ordering is our own stable sort, because utf8proc's is
// quadratic in the length of a run of marks.
#include "data/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/check.h"
#include "data/unicode.h"

namespace wych::data {
namespace {

// Assigned characters that decompose, compose or combine lie below; higher ones take the slow path.
constexpr i32 kInertEnd = 0x30000;

bool composes(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }

utf8proc_option_t decompose_options(NormalForm form) {
  const bool is_compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                        (is_compatible ? UTF8PROC_COMPAT : 0));
}

int combining_class(i32 code_point) { return utf8proc_get_property(code_point)->combining_class; }

// Appends the full decomposition of a character.
void decompose(i32 code_point, NormalForm form, std::vector<i32>& out) {
  utf8proc_int32_t parts[32];  // the longest has 18
  int boundary_class = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(code_point, parts, 32, decompose_options(form), &boundary_class);
  WYCH_CHECK(count > 0 && count <= 32, "U+{:04X} decomposes to {}", code_point, count);
  out.insert(out.end(), parts, parts + count);
}

// Orders runs of combining marks by class, then composes if the form does.
void finish(std::vector<i32>& text, NormalForm form) {
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin;
    while (end < text.size() && combining_class(text[end]) != 0) {
      ++end;
    }
    std::stable_sort(text.begin() + static_cast<std::ptrdiff_t>(begin),
                     text.begin() + static_cast<std::ptrdiff_t>(end),
                     [](i32 a, i32 b) { return combining_class(a) < combining_class(b); });
    begin = end + 1;
  }
  if (composes(form)) {
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    const utf8proc_ssize_t length =
        utf8proc_normalize_utf32(text.data(), static_cast<utf8proc_ssize_t>(text.size()), options);
    WYCH_CHECK(length >= 0, "utf8proc: {}", length);
    text.resize(static_cast<std::size_t>(length));
  }
}

}  // namespace

std::string_view normal_form_name(NormalForm form) {
  constexpr std::string_view kNames[] = {"NFC", "NFD", "NFKC", "NFKD"};
  return kNames[static_cast<std::size_t>(form)];
}

Normalizer::Normalizer(const std::vector<NormalForm>& forms) : forms_(forms) {
  for (const NormalForm form : forms) {
    inert_.push_back(find_inert(form));
  }
}

Normalizer::InertSet Normalizer::find_inert(NormalForm form) {
  InertSet inert(kInertEnd, true);
  std::vector<i32> text;
  for (i32 c = 0; c < kInertEnd; ++c) {
    if (c >= 0xd800 && c < 0xe000) {
      continue;  // surrogates are not characters
    }
    text.clear();
    decompose(c, NormalForm::kNfd, text);
    if (text.size() == 2) {
      inert[static_cast<std::size_t>(text[1])] = false;  // may compose with what is before it
    }
  }
  for (i32 c = 0; c < kInertEnd; ++c) {
    if (c >= 0xd800 && c < 0xe000) {
      continue;
    }
    text.clear();
    decompose(c, form, text);
    const bool starts_with_mark = combining_class(text[0]) != 0;
    finish(text, form);
    if (starts_with_mark || text.size() != 1 || text[0] != c) {
      inert[static_cast<std::size_t>(c)] = false;
    }
  }
  // The second and third part of a Hangul syllable compose by rule.
  std::fill(inert.begin() + 0x1161, inert.begin() + 0x1176, false);
  std::fill(inert.begin() + 0x11a8, inert.begin() + 0x11c3, false);
  return inert;
}

void Normalizer::apply_form(NormalForm form, const InertSet& inert, std::string_view text, std::string& out) {
  std::vector<i32> active;     // from the last inert character on, decomposed; empty: nothing to do
  std::size_t copied = 0;      // text before is in `out` already
  std::size_t last_inert = 0;  // where `active` starts, or would
  const auto flush = [&](std::size_t end) {
    if (!active.empty()) {
      finish(active, form);
      for (const i32 c : active) {
        append_utf8(out, c);
      }
      active.clear();
      copied = end;
    }
    last_inert = end;
  };
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const bool is_inert = !c.is_valid || (c.value < kInertEnd && inert[static_cast<std::size_t>(c.value)]);
    if (is_inert) {
      flush(at);
    } else {
      if (active.empty()) {
        out.append(text.substr(copied, last_inert - copied));
        for (std::size_t before = last_inert; before < at;) {
          const CodePoint first = code_point_at(text, before);
          if (first.is_valid) {
            decompose(first.value, form, active);
          } else {
            out.push_back(text[before]);
          }
          before += first.length;
        }
      }
      decompose(c.value, form, active);
    }
    at += c.length;
  }
  flush(text.size());
  out.append(text.substr(copied));
}

std::string_view Normalizer::apply(std::string_view text, std::string& buffer) const {
  // ASCII is normal in every form.
  const bool is_ascii =
      std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
  if (forms_.empty() || is_ascii) {
    return text;
  }
  for (std::size_t i = 0; i < forms_.size(); ++i) {
    std::string next;
    next.reserve(text.size());
    apply_form(forms_[i], inert_[i], text, next);
    buffer = std::move(next);
    text = buffer;
  }
  return buffer;
}

}  // namespace wych::data
