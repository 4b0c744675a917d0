#include "ir/graph.h"

#include <array>

namespace wych::ir {

std::string_view category_name(Category category) {
  constexpr std::array<std::string_view, kNumCategories> kNames = {
      "weights", "state", "gradients", "stash", "scratch", "symmetric", "io"};
  return kNames[static_cast<std::size_t>(category)];
}

std::string_view phase_name(Phase phase) {
  constexpr std::array<std::string_view, 4> kNames = {"forward", "recompute", "backward", "update"};
  return kNames[static_cast<std::size_t>(phase)];
}

ValueId Graph::find(std::string_view path) const {
  for (std::size_t id = 0; id < values.size(); ++id) {
    if (values[id].producer == kNoNode && values[id].path == path) {
      return static_cast<ValueId>(id);
    }
  }
  return kNoValue;
}

ValueId Graph::find_output(std::string_view name) const {
  for (const Output& output : outputs) {
    if (output.name == name) {
      return output.value;
    }
  }
  return kNoValue;
}

}  // namespace wych::ir
