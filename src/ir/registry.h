// Registry: every op with the cases that check it. Built once in main or in a test from the generated list
// (all_ops.inc) and passed by reference; there is no global.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/cases.h"

namespace wych::ir {

struct RegistryEntry {
  std::string name;  // the op's name()
  // Cases for compute type kF32 or kF64: the suite asks for both.
  std::function<std::vector<OpCase>(DType)> cases;
};

class Registry {
 public:
  // CHECK-fails on a second entry of that name.
  void add(std::string name, std::function<std::vector<OpCase>(DType)> cases);
  [[nodiscard]] const std::vector<RegistryEntry>& entries() const { return entries_; }

 private:
  std::vector<RegistryEntry> entries_;
};

}  // namespace wych::ir
