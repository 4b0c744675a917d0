#include "ir/registry.h"

#include <utility>

namespace wych::ir {

void Registry::add(std::string name, std::function<std::vector<OpCase>(DType)> cases) {
  for (const RegistryEntry& entry : entries_) {
    WYCH_CHECK(entry.name != name, "op {} is registered twice", name);
  }
  entries_.push_back({std::move(name), std::move(cases)});
}

}  // namespace wych::ir
