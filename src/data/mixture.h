// How many instances each source of a mixture gives, and which. Shares are rounded by largest remainders, so
// the whole is exactly what was asked for; no instance is taken again before every chosen one of its source
// was taken as often, and never more often than the source allows.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/expected.h"
#include "base/types.h"

namespace wych::data {

struct MixtureSource {
  std::string name;
  double weight = 1;           // share = weight / sum of weights; >= 0
  double max_repetition = 1;   // times an instance may be read, on average; >= 1
  double max_fraction = 1;     // of the source's instances that may be used at all; in (0, 1]
  std::vector<i64> instances;  // of each file
};

// The first `count` instances of file `file`, the files of all sources counted through.
struct InstanceRange {
  i64 file = 0;
  i64 count = 0;
  bool operator==(const InstanceRange&) const = default;
};

struct MixtureShare {
  i64 available = 0;  // instances of the source
  i64 usable = 0;     // of these, within max_fraction
  i64 chosen = 0;     // with repetitions
};

struct Mixture {
  std::vector<InstanceRange> ranges;  // pass by pass over the files of each source; none is empty
  std::vector<MixtureShare> shares;   // of each source
};

// `num_instances` > 0 over all sources. Of a source whose share is at most its usable instances, each is
// taken once at most; else whole passes over the usable ones, then one more over a part. A pass over a part
// takes of each file the same proportion, from its beginning. Errors (kData): a source that cannot give its
// share names the source, the numbers and what would be enough.
Expected<Mixture> mix_sources(std::span<const MixtureSource> sources, i64 num_instances);

// `total` cut in proportion to `weights` (>= 0, not all 0) by largest remainders, ties to the first. No part
// is above its limit; what one cannot take goes to the others. The limits' sum is at least `total` (CHECKed).
std::vector<i64> apportion(i64 total, std::span<const double> weights, std::span<const i64> limits);

}  // namespace wych::data
