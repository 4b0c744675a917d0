// Expert loads over a whole run in bounded memory: steps are gathered into equal spans, and whenever there
// are too many spans, neighbours are joined.
#pragma once

#include <map>
#include <vector>

#include "base/types.h"

namespace wych::train {

// Routes to each expert, by block.
using ExpertCounts = std::map<i64, std::vector<i64>>;

struct LoadSpan {
  i64 first_step = 0;
  i64 last_step = 0;
  ExpertCounts counts;  // summed over the steps
};

class LoadHistory {
 public:
  void add(i64 step, const ExpertCounts& counts);
  // In order of steps.
  [[nodiscard]] std::vector<LoadSpan> spans() const;

 private:
  void join_neighbours();

  i64 steps_per_span_ = 1;
  std::size_t most_spans_ = 0;     // from the number of experts; 0: not yet known
  std::map<i64, LoadSpan> spans_;  // by step / steps_per_span_
};

}  // namespace wych::train
