// pack: gives buffers with lifetimes offsets in one arena. Several greedy orders are tried and the best kept;
// the live-set lower bound tells how good it is.
#pragma once

#include <span>
#include <vector>

#include "base/types.h"

namespace wych::plan {

// A buffer that is live in steps [begin, end], both included.
struct Interval {
  i64 bytes = 0;
  i32 begin = 0;
  i32 end = 0;
};

struct Packing {
  std::vector<i64> offsets;  // one per interval, multiples of the alignment
  i64 bytes = 0;
  i64 lower_bound = 0;  // largest sum of live buffers at any step: no packing can be smaller
  i32 peak_step = 0;    // where it is reached
};

// Offsets such that no two buffers live at the same step overlap. O(n^2) in the number of buffers.
Packing pack(std::span<const Interval> intervals, i64 alignment);

}  // namespace wych::plan
