#include "plan/pack.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

namespace wych::plan {
namespace {

using Order = std::vector<std::size_t>;

// Places buffers in the given order, each at the lowest offset free during its whole life.
Packing place(std::span<const Interval> intervals, const Order& order, i64 alignment) {
  struct Placed {
    i64 offset;
    i64 bytes;
    i32 begin;
    i32 end;
  };
  Packing packing;
  packing.offsets.assign(intervals.size(), 0);
  std::vector<Placed> placed;  // sorted by offset
  placed.reserve(intervals.size());
  for (const std::size_t index : order) {
    const Interval& interval = intervals[index];
    const i64 bytes = round_up(interval.bytes, alignment);
    i64 offset = 0;
    for (const Placed& other : placed) {
      if (other.end < interval.begin || interval.end < other.begin) {
        continue;
      }
      if (offset + bytes <= other.offset) {
        break;
      }
      offset = std::max(offset, other.offset + other.bytes);
    }
    packing.offsets[index] = offset;
    packing.bytes = std::max(packing.bytes, offset + bytes);
    const Placed entry{offset, bytes, interval.begin, interval.end};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), entry,
                                   [](const Placed& a, const Placed& b) { return a.offset < b.offset; }),
                  entry);
  }
  return packing;
}

void find_lower_bound(std::span<const Interval> intervals, i64 alignment, Packing& packing) {
  std::map<i32, i64> change;  // step -> live bytes gained there
  for (const Interval& interval : intervals) {
    change[interval.begin] += round_up(interval.bytes, alignment);
    change[interval.end + 1] -= round_up(interval.bytes, alignment);
  }
  i64 live = 0;
  for (const auto& [step, delta] : change) {
    live += delta;
    if (live > packing.lower_bound) {
      packing.lower_bound = live;
      packing.peak_step = step;
    }
  }
}

}  // namespace

Packing pack(std::span<const Interval> intervals, i64 alignment) {
  const auto length = [&](std::size_t i) {
    return static_cast<i64>(intervals[i].end) - intervals[i].begin + 1;
  };
  const auto bytes = [&](std::size_t i) { return intervals[i].bytes; };
  // Larger keys are placed first; ties keep the order of the program.
  const std::array<std::vector<i64>, 4> keys = [&] {
    std::array<std::vector<i64>, 4> result;
    for (std::size_t i = 0; i < intervals.size(); ++i) {
      result[0].push_back(bytes(i));
      result[1].push_back(bytes(i) * length(i));
      result[2].push_back(length(i));
      result[3].push_back(-static_cast<i64>(intervals[i].begin));
    }
    return result;
  }();
  Packing best;
  bool first = true;
  for (const std::vector<i64>& key : keys) {
    Order order(intervals.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return key[a] > key[b]; });
    Packing candidate = place(intervals, order, alignment);
    if (first || candidate.bytes < best.bytes) {
      best = std::move(candidate);
      first = false;
    }
  }
  find_lower_bound(intervals, alignment, best);
  return best;
}

}  // namespace wych::plan
