// Named models, as TOML that `extends = "preset:NAME"` includes and `wych plan preset:NAME` reads directly.
// Invariant: each reproduces the parameter counts that its source publishes (presets_test.cc). A preset says
// what the model and its batch are, never where it runs: mesh, paths and length belong to the run.
#pragma once

#include <span>
#include <string_view>

#include "base/expected.h"

namespace wych::config {

struct Preset {
  std::string_view name;
  std::string_view summary;  // one line for lists
  std::string_view toml;
};

// All presets, in a fixed order.
[[nodiscard]] std::span<const Preset> presets();

// Errors: unknown name, with the nearest one.
[[nodiscard]] Expected<const Preset*> find_preset(std::string_view name);

}  // namespace wych::config
