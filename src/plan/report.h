// The memory table and the time estimate of a plan, for people and as JSON.
#pragma once

#include <string>
#include <vector>

#include "plan/program.h"

namespace wych::plan {

// What a device can do, for estimates. Peak rates; see docs/plan.md for how the estimate uses them.
struct Target {
  std::string name;
  double flops_per_second = 0;
  double bytes_per_second = 0;
  i64 memory_bytes = 0;
};

// "512 B", "1.50 MiB": three digits and a binary unit.
std::string bytes_text(i64 bytes);

// Rows: category, bytes, for stash and scratch also the lower bound; then what the
// device holds beside them, the total and the largest buffers
// at the peak of the fullest program.
std::string memory_table(const Layout& layout, const std::vector<const Program*>& programs);

// Sum over instructions of max(flops / peak, bytes / bandwidth): no overlap, no launch overhead.
double estimate_seconds(const Program& program, const Target& target);

}  // namespace wych::plan
