// StyledLine: one line of a terminal that is never wider than it may be, with or without colours.
#pragma once

#include <string>
#include <string_view>

namespace wych::train {

enum class Style { kNormal, kBold, kDim, kGreen, kYellow, kRed, kCyan };

class StyledLine {
 public:
  // At most `columns` columns. Without `color` no escape code is written.
  StyledLine(int columns, bool color) : columns_(columns), color_(color) {}

  // Appends printable text (printable.h) without line breaks; cuts what does not fit.
  StyledLine& add(std::string_view text, Style style = Style::kNormal);
  // Appends spaces up to `column`.
  StyledLine& pad_to(int column);

  [[nodiscard]] int width() const { return width_; }
  [[nodiscard]] int room() const { return columns_ - width_; }
  // The line with its escape codes, in the normal style at its end.
  [[nodiscard]] std::string text() const;

 private:
  std::string text_;
  Style style_ = Style::kNormal;
  int width_ = 0;
  int columns_;
  bool color_;
};

}  // namespace wych::train
