// How the report looks: one style sheet for light and dark, a phone and a wide screen. It needs no font, no
// picture and no script.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/types.h"
#include "io/png.h"

namespace wych::train {

// Everything up to the page's <title>.
std::string_view report_head();

// Below and above the mean, told apart by every common kind of colour vision and seen on light and dark;
// their opacity is the distance from the mean.
inline constexpr io::Rgba kBelowMean = {38, 112, 200, 255};
inline constexpr io::Rgba kAboveMean = {226, 112, 24, 255};

// Experts differ by colour, then by the line under them.
inline constexpr i64 kExpertColors = 8;
inline constexpr i64 kExpertLooks = 4 * kExpertColors;

}  // namespace wych::train
