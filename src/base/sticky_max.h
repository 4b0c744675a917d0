// The largest of many errors, for tests. std::max drops a NaN from either side, and a comparison of what is
// left passes; here a NaN stays to the end and fails every comparison.
#pragma once

#include <cmath>

namespace wych {

// The larger of the two; NaN if either is.
inline double sticky_max(double a, double b) { return std::isnan(a) || b <= a ? a : b; }

}  // namespace wych
