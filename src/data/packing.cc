#include "data/packing.h"

#include <algorithm>
#include <deque>
#include <map>

#include "base/check.h"

namespace wych::data {

Packing Packing::pack(std::span<const TokenSpan> documents, i64 sequence_length) {
  WYCH_CHECK(sequence_length >= 1, "sequence length {}", sequence_length);
  std::vector<TokenSpan> pieces;
  for (const TokenSpan& document : documents) {
    for (i64 begin = document.begin; begin < document.end; begin += sequence_length) {
      pieces.push_back({begin, std::min(begin + sequence_length, document.end)});
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const TokenSpan& a, const TokenSpan& b) { return a.size() > b.size(); });
  std::map<i64, std::deque<std::size_t>> open;  // room left -> instances that have it, oldest first
  std::vector<std::size_t> instance_of;
  std::vector<std::size_t> counts;  // pieces of each instance
  Packing result;
  for (const TokenSpan& piece : pieces) {
    std::size_t instance = counts.size();
    i64 room = sequence_length;
    const auto best = open.lower_bound(piece.size());
    if (best == open.end()) {
      counts.push_back(0);
    } else {
      instance = best->second.front();
      room = best->first;
      best->second.pop_front();
      if (best->second.empty()) {
        open.erase(best);
      }
    }
    ++counts[instance];
    instance_of.push_back(instance);
    if (room > piece.size()) {
      open[room - piece.size()].push_back(instance);
    }
  }
  for (const auto& [room, instances] : open) {
    result.padding_ += room * static_cast<i64>(instances.size());
  }
  result.first_.assign(counts.size() + 1, 0);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    result.first_[i + 1] = result.first_[i] + counts[i];
  }
  std::vector<std::size_t> next(result.first_.begin(), result.first_.end() - 1);
  result.pieces_.resize(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    result.pieces_[next[instance_of[i]]++] = pieces[i];
  }
  return result;
}

std::span<const TokenSpan> Packing::instance(i64 index) const {
  WYCH_CHECK(index >= 0 && index < num_instances(), "instance {} of {}", index, num_instances());
  const auto at = static_cast<std::size_t>(index);
  return std::span(pieces_).subspan(first_[at], first_[at + 1] - first_[at]);
}

}  // namespace wych::data
