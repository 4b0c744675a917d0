// Optimal string alignment by dynamic programming: names are short, so the plain table is enough.
#include "base/nearest.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace wych {
namespace {

char fold(char c) {
  if (c >= 'A' && c <= 'Z') {
    return static_cast<char>(c - 'A' + 'a');
  }
  return c == '-' ? '_' : c;
}

}  // namespace

i64 edit_distance(std::string_view a, std::string_view b) {
  // Rows i - 2, i - 1 and i of the table of distances between prefixes.
  std::vector<i64> before(b.size() + 1);
  std::vector<i64> previous(b.size() + 1);
  std::vector<i64> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    row[j] = static_cast<i64>(j);
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, previous);
    std::swap(previous, row);
    row[0] = static_cast<i64>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = fold(a[i - 1]) == fold(b[j - 1]);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates) {
  std::optional<std::string> best;
  i64 best_distance = 0;
  for (const std::string& candidate : candidates) {
    const i64 distance = edit_distance(name, candidate);
    const i64 limit = std::max<i64>(1, static_cast<i64>(std::max(name.size(), candidate.size())) / 3);
    if (distance <= limit && (!best || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace wych
