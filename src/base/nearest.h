// "Did you mean": the known name closest to a mistyped one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/types.h"

namespace wych {

// Insertions, deletions, substitutions and swaps of neighbours that turn one name into the other, each 1.
// Case does not count, nor does '-' against '_'.
[[nodiscard]] i64 edit_distance(std::string_view a, std::string_view b);

// The candidate at the smallest distance (the first of equals), if it is at most a third of the longer name
// (but always allowing 1); otherwise nothing is near enough to be worth suggesting.
[[nodiscard]] std::optional<std::string> nearest_name(std::string_view name,
                                                      std::span<const std::string> candidates);

}  // namespace wych
