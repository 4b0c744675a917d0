// Which experts a model's tokens take, measured on held-out text when a run ends: shares by domain, the
// tokens an expert is chosen for, and a few texts with the route of every token. Kept as RUN/routing.json,
// which the report draws.
#pragma once

#include <string>
#include <vector>

#include "base/expected.h"
#include "base/types.h"

namespace wych::train {

// A text whose tokens' routes are known in the detailed layers.
struct RoutedText {
  std::string title;                // "bible", or what the model wrote
  i64 num_given = 0;                // tokens at the beginning that were given to the model; 0: no such part
  std::vector<std::string> tokens;  // printable
  struct Layer {
    std::vector<i64> experts;     // [tokens k], from the largest weight down
    std::vector<double> weights;  // [tokens k]
  };
  std::vector<Layer> layers;  // one per detailed layer
};

struct RoutingRecord {
  i64 step = 0;
  i64 experts = 0;
  i64 top_k = 0;
  std::vector<std::string> domains;
  std::vector<i64> blocks;                            // the MoE layers' numbers
  std::vector<std::vector<std::vector<i64>>> counts;  // [layers][domains][experts] routes
  // Layers shown in detail, as indices into `blocks`: all, or kMostDetailed of them evenly spread.
  std::vector<i64> detailed;
  std::vector<std::vector<std::vector<std::string>>>
      favourites;  // [detailed][experts], best first; printable
  // [detailed] The mutual information of token and expert over all routes, in bits; at most log2(experts).
  std::vector<double> token_information;
  std::vector<RoutedText> texts;

  [[nodiscard]] bool empty() const { return blocks.empty(); }
};

inline constexpr i64 kMostDetailed = 6;

// Indices of at most kMostDetailed of `num_layers` layers, evenly spread, first and last included.
std::vector<i64> detailed_layers(i64 num_layers);

// What a route tells about its domain, in bits: pick a domain, each as likely, then one of its routes; the
// mutual information of the two, with shares[domain][expert]. 0: all domains use experts alike;
// log2(domains): no two share an expert. Domains without routes are left out.
double domain_information(const std::vector<std::vector<i64>>& counts);

// Replaces RUN/routing.json. kData if it cannot be written.
Expected<void> write_routing(const std::string& run_dir, const RoutingRecord& record);
// Reads it back; an empty record if there is none. kData if it is damaged or its lists do not fit together.
Expected<RoutingRecord> read_routing(const std::string& run_dir);

}  // namespace wych::train
