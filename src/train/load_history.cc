// load_history.h: a span's key is its steps' common quotient, so joining two is halving their keys.
#include "train/load_history.h"

#include <algorithm>

namespace wych::train {
namespace {

constexpr std::size_t kMostCells = 400000;  // experts x spans: bounds memory, and the size of the pictures
constexpr std::size_t kFewestSpans = 32;
constexpr std::size_t kMostSpans = 320;

void add_into(LoadSpan& span, i64 first_step, i64 last_step, const ExpertCounts& counts) {
  const bool is_new = span.counts.empty();
  span.first_step = is_new ? first_step : std::min(span.first_step, first_step);
  span.last_step = is_new ? last_step : std::max(span.last_step, last_step);
  for (const auto& [block, added] : counts) {
    std::vector<i64>& sum = span.counts[block];
    sum.resize(std::max(sum.size(), added.size()));
    for (std::size_t expert = 0; expert < added.size(); ++expert) {
      sum[expert] += added[expert];
    }
  }
}

}  // namespace

void LoadHistory::add(i64 step, const ExpertCounts& counts) {
  if (counts.empty() || step < 0) {
    return;
  }
  if (most_spans_ == 0) {
    std::size_t cells = 1;
    for (const auto& [block, experts] : counts) {
      cells += experts.size();
    }
    most_spans_ = std::clamp(kMostCells / cells, kFewestSpans, kMostSpans);
  }
  add_into(spans_[step / steps_per_span_], step, step, counts);
  while (spans_.size() > most_spans_) {
    join_neighbours();
  }
}

void LoadHistory::join_neighbours() {
  steps_per_span_ *= 2;
  std::map<i64, LoadSpan> joined;
  for (const auto& [key, span] : spans_) {
    add_into(joined[key / 2], span.first_step, span.last_step, span.counts);
  }
  spans_ = std::move(joined);
}

std::vector<LoadSpan> LoadHistory::spans() const {
  std::vector<LoadSpan> out;
  for (const auto& [key, span] : spans_) {
    out.push_back(span);
  }
  return out;
}

}  // namespace wych::train
