// Routings for the cases of the expert ops: odd sizes, an empty expert, one expert with all tokens, several
// alignments, rows to spare. The placement is found by sorting, independently of MoePlacement.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "ir/cases.h"

namespace wych::ops {

struct Routing {
  std::string label;
  i64 tokens = 0, k = 0, experts = 0, alignment = 0, capacity = 0;
  // As in moe_placement.h.
  std::vector<double> indices = {}, offsets = {}, counts = {}, row_of_route = {}, route_of_row = {};

  [[nodiscard]] i64 used_rows() const { return static_cast<i64>(offsets.back()); }
  [[nodiscard]] i64 expert_of_row(i64 row) const {
    i64 expert = 0;
    while (static_cast<double>(row) >= offsets[static_cast<std::size_t>(expert + 1)]) {
      ++expert;
    }
    return expert;
  }
  [[nodiscard]] ir::CaseInput index_input(ir::Shape shape, std::vector<double> values) const {
    return {.type = {DType::kI32, shape}, .values = std::move(values)};
  }
  [[nodiscard]] ir::CaseInput offsets_input() const { return index_input({experts + 1}, offsets); }
  [[nodiscard]] ir::CaseInput row_of_route_input() const { return index_input({tokens, k}, row_of_route); }
  // NaN where undefined.
  [[nodiscard]] ir::CaseInput route_of_row_input() const { return index_input({capacity}, route_of_row); }

  // F[C,d] of numbers in [-1, 1), zero in pad rows, NaN (not to be read) past the segments.
  [[nodiscard]] ir::CaseInput rows_input(DType dtype, i64 width) const {
    std::vector<double> values;
    u32 state = 12345;
    for (i64 row = 0; row < capacity; ++row) {
      for (i64 column = 0; column < width; ++column) {
        state = state * 1664525U + 1013904223U;
        const double number = static_cast<double>(state >> 8U) * 0x1p-23 - 1.0;
        const bool pad = row < used_rows() && route_of_row[static_cast<std::size_t>(row)] < 0;
        values.push_back(row >= used_rows() ? std::numeric_limits<double>::quiet_NaN() : pad ? 0.0 : number);
      }
    }
    return {.type = {dtype, {capacity, width}}, .values = std::move(values)};
  }
};

inline Routing make_routing(std::string label, i64 k, i64 experts, i64 alignment, i64 spare_rows,
                            std::vector<double> indices) {
  const i64 tokens = static_cast<i64>(indices.size()) / k;
  Routing routing{.label = std::move(label),
                  .tokens = tokens,
                  .k = k,
                  .experts = experts,
                  .alignment = alignment,
                  .indices = std::move(indices),
                  .offsets = {0}};
  routing.row_of_route.resize(routing.indices.size());
  for (i64 expert = 0; expert < experts; ++expert) {
    double count = 0;
    for (std::size_t route = 0; route < routing.indices.size(); ++route) {
      if (routing.indices[route] == static_cast<double>(expert)) {
        routing.row_of_route[route] = static_cast<double>(routing.route_of_row.size());
        routing.route_of_row.push_back(static_cast<double>(route));
        ++count;
      }
    }
    while (static_cast<i64>(routing.route_of_row.size()) % alignment != 0) {
      routing.route_of_row.push_back(-1);
    }
    routing.counts.push_back(count);
    routing.offsets.push_back(static_cast<double>(routing.route_of_row.size()));
  }
  routing.capacity =
      round_up(routing.tokens * k + experts * (alignment - 1), alignment) + round_up(spare_rows, alignment);
  routing.route_of_row.resize(static_cast<std::size_t>(routing.capacity),
                              std::numeric_limits<double>::quiet_NaN());
  return routing;
}

// `tokens` tokens with k distinct experts each, none of them `empty`.
inline std::vector<double> scattered_indices(i64 tokens, i64 k, i64 experts, i64 empty) {
  std::vector<double> indices;
  u32 state = 99;
  for (i64 token = 0; token < tokens; ++token) {
    std::vector<double> chosen;
    while (static_cast<i64>(chosen.size()) < k) {
      state = state * 1664525U + 1013904223U;
      const i64 expert = static_cast<i64>(state >> 16U) % experts;
      const auto value = static_cast<double>(expert);
      if (expert != empty && std::find(chosen.begin(), chosen.end(), value) == chosen.end()) {
        chosen.push_back(value);
      }
    }
    indices.insert(indices.end(), chosen.begin(), chosen.end());
  }
  return indices;
}

inline std::vector<Routing> routing_examples() {
  return {
      make_routing("T=7 k=2 E=3 A=1", 2, 3, 1, 5, scattered_indices(7, 2, 3, -1)),
      make_routing("T=1 k=1 E=1 A=16", 1, 1, 16, 0, {0}),
      make_routing("T=13 k=2 E=5 A=16 one expert empty", 2, 5, 16, 0, scattered_indices(13, 2, 5, 2)),
      make_routing("T=17 k=1 E=4 A=128 one expert has all", 1, 4, 128, 1, std::vector<double>(17, 2.0)),
      make_routing("T=331 k=3 E=7 A=16", 3, 7, 16, 100, scattered_indices(331, 3, 7, -1)),
  };
}

}  // namespace wych::ops
