// Escape codes are written only where the style changes, and count no columns.
#include "train/styled_line.h"

#include <algorithm>

#include "train/printable.h"

namespace wych::train {
namespace {

// Each begins with a reset, so styles never add up.
std::string_view style_code(Style style) {
  switch (style) {
    case Style::kNormal:
      return "\x1b[0m";
    case Style::kBold:
      return "\x1b[0;1m";
    case Style::kDim:
      return "\x1b[0;2m";
    case Style::kGreen:
      return "\x1b[0;32m";
    case Style::kYellow:
      return "\x1b[0;33m";
    case Style::kRed:
      return "\x1b[0;31m";
    case Style::kCyan:
      return "\x1b[0;36m";
  }
  return "";
}

}  // namespace

StyledLine& StyledLine::add(std::string_view text, Style style) {
  const std::string_view fitting = fit_columns(text, room());
  if (fitting.empty()) {
    return *this;
  }
  if (color_ && style != style_) {
    text_ += style_code(style);
    style_ = style;
  }
  text_ += fitting;
  width_ += display_width(fitting);
  return *this;
}

StyledLine& StyledLine::pad_to(int column) {
  return add(std::string(static_cast<std::size_t>(std::max(0, column - width_)), ' '));
}

std::string StyledLine::text() const {
  return style_ == Style::kNormal ? text_ : text_ + std::string(style_code(Style::kNormal));
}

}  // namespace wych::train
