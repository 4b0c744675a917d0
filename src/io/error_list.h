// Several errors of one pass as one Error: the first, with the others in `more`.
#pragma once

#include <iterator>
#include <vector>

#include "base/expected.h"

namespace wych::io {

// CHECKs that there is at least one.
[[nodiscard]] inline Error join_errors(std::vector<Error> errors) {
  WYCH_CHECK(!errors.empty(), "no errors to report");
  Error first = std::move(errors.front());
  first.more.assign(std::make_move_iterator(errors.begin() + 1), std::make_move_iterator(errors.end()));
  return first;
}

}  // namespace wych::io
