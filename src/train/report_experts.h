// The report's parts about experts: their load over the run, which domains and tokens they take, and texts
// with every token's expert. Fragments of HTML without scripts; empty where a run has nothing to show.
#pragma once

#include <string>

#include "train/run_record.h"

namespace wych::train {

// Rules for the style sheet: which look each expert has in the layer that is chosen.
std::string expert_rules(const RoutingRecord& routing);

// Per layer a picture, experts down and steps across, blue below the mean load and orange above; the experts
// that got nothing in the last steps are named.
std::string load_maps(const RunRecord& record);

// Per layer the share of each domain's routes that each expert got, and what a route tells about its domain.
std::string domain_matrices(const RoutingRecord& routing);

// With a choice of layer: what each expert is chosen for, and texts tinted by their tokens' first expert.
std::string token_routes(const RoutingRecord& routing);

}  // namespace wych::train
