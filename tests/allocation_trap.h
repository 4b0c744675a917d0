// Catches heap allocations while a piece of code runs: a training step must make none. Linked only into tests
// (CMake target wych_allocation_trap), because it sits under malloc of the whole process.
#pragma once

#include "base/types.h"

namespace wych::tests {

// Counts calls of malloc, calloc, realloc, aligned_alloc and operator new, by whatever library, from its
// construction to its destruction. At most one exists at a time. mmap (arenas) does not count.
class AllocationTrap {
 public:
  enum class Watch { kAllThreads, kThisThread };
  // kAbort ends the process at the first allocation, so that a debugger or core file shows who made it.
  enum class Reaction { kCount, kAbort };

  explicit AllocationTrap(Watch watch = Watch::kAllThreads, Reaction reaction = Reaction::kCount);
  ~AllocationTrap();
  AllocationTrap(const AllocationTrap&) = delete;
  AllocationTrap& operator=(const AllocationTrap&) = delete;

  // Allocations so far.
  [[nodiscard]] i64 count() const;
  // Bytes of the first one, 0 if none: usually enough to recognise it.
  [[nodiscard]] i64 first_bytes() const;
};

}  // namespace wych::tests
