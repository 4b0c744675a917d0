// The registry entry of ir::Add, which lives in the graph layer because the reverse sweep needs it.
#pragma once

#include "ir/add.h"
#include "ir/registry.h"

namespace wych::ops {

void register_add(ir::Registry& registry);

}  // namespace wych::ops
