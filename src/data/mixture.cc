#include "data/mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace wych::data {
namespace {

// floor(count * factor), where factor is a decimal somebody typed: 10 * 0.3 is 3. The slack is absolute, so
// that it is less than an instance of any number of them (below 2^32).
i64 scaled(i64 count, double factor) {
  constexpr double kSlack = 1e-6;
  return static_cast<i64>(std::floor(static_cast<double>(count) * factor + kSlack));
}

// The chosen instances of one source, pass by pass. `usable` of each file; first_file is the source's first.
void add_ranges(i64 first_file, const std::vector<i64>& usable, i64 chosen,
                std::vector<InstanceRange>& ranges) {
  const i64 whole = std::accumulate(usable.begin(), usable.end(), i64{0});
  const std::vector<double> weights(usable.begin(), usable.end());
  for (i64 left = chosen; left > 0; left -= std::min(left, whole)) {
    const std::vector<i64> counts = left >= whole ? usable : apportion(left, weights, usable);
    for (std::size_t file = 0; file < counts.size(); ++file) {
      if (counts[file] > 0) {
        ranges.push_back({first_file + static_cast<i64>(file), counts[file]});
      }
    }
  }
}

}  // namespace

std::vector<i64> apportion(i64 total, std::span<const double> weights, std::span<const i64> limits) {
  WYCH_CHECK(weights.size() == limits.size(), "{} weights, {} limits", weights.size(), limits.size());
  WYCH_CHECK(std::accumulate(limits.begin(), limits.end(), i64{0}) >= total, "limits below {}", total);
  std::vector<i64> parts(weights.size(), 0);
  std::vector<std::size_t> active(weights.size());
  std::iota(active.begin(), active.end(), std::size_t{0});
  i64 left = total;
  std::vector<double> ideal(weights.size());
  // Parts that reach their limit leave; the others share what is left, until none reaches it.
  for (bool settled = false; !settled;) {
    double sum = 0;
    for (const std::size_t i : active) {
      sum += weights[i];
    }
    const i64 shared = left;
    settled = true;
    std::vector<std::size_t> below;
    for (const std::size_t i : active) {
      ideal[i] = sum > 0 ? static_cast<double>(shared) * (weights[i] / sum) : 0;
      if (ideal[i] >= static_cast<double>(limits[i])) {
        parts[i] = limits[i];
        left -= limits[i];
        settled = false;
      } else {
        below.push_back(i);
      }
    }
    active = std::move(below);
  }
  for (const std::size_t i : active) {
    parts[i] = static_cast<i64>(std::floor(ideal[i]));
    left -= parts[i];
  }
  std::stable_sort(active.begin(), active.end(), [&ideal](std::size_t a, std::size_t b) {
    return ideal[a] - std::floor(ideal[a]) > ideal[b] - std::floor(ideal[b]);
  });
  for (std::size_t k = 0; k < active.size() && left > 0; ++k) {
    ++parts[active[k]];
    --left;
  }
  WYCH_CHECK(left == 0, "{} of {} left over", left, total);
  return parts;
}

Expected<Mixture> mix_sources(std::span<const MixtureSource> sources, i64 num_instances) {
  WYCH_CHECK(num_instances > 0, "{} instances", num_instances);
  Mixture mixture;
  std::vector<double> weights;
  std::vector<i64> limits;
  for (const MixtureSource& source : sources) {
    MixtureShare share;
    share.available = std::accumulate(source.instances.begin(), source.instances.end(), i64{0});
    share.usable = scaled(share.available, source.max_fraction);
    weights.push_back(source.weight);
    limits.push_back(source.weight > 0 ? scaled(share.usable, source.max_repetition) : 0);
    mixture.shares.push_back(share);
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const std::vector<i64> unlimited(sources.size(), num_instances);
  const std::vector<i64> wanted = apportion(num_instances, weights, unlimited);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (wanted[i] > limits[i]) {
      const MixtureShare& share = mixture.shares[i];
      return Error{
          ErrorKind::kData,
          fmt::format("data.source.{}", sources[i].name),
          fmt::format(
              "a share of {:.4g} is {} of {} instances; it has {}, of which {} may be read {:g} times",
              weights[i] / sum, wanted[i], num_instances, share.available, share.usable,
              sources[i].max_repetition),
          fmt::format(
              "give it more data, a weight of at most {:.4g} of the sum, or a max_repetition of {:.4g}",
              static_cast<double>(limits[i]) / static_cast<double>(num_instances),
              share.usable == 0
                  ? 0.0
                  : std::ceil(1e3 * static_cast<double>(wanted[i]) / static_cast<double>(share.usable)) /
                        1e3),
          {}};
    }
  }
  i64 first_file = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    mixture.shares[i].chosen = wanted[i];
    const std::vector<i64>& instances = sources[i].instances;
    if (wanted[i] > 0) {
      const std::vector<double> sizes(instances.begin(), instances.end());
      add_ranges(first_file, apportion(mixture.shares[i].usable, sizes, instances), wanted[i],
                 mixture.ranges);
    }
    first_file += static_cast<i64>(instances.size());
  }
  return mixture;
}

}  // namespace wych::data
