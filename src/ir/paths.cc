#include "ir/paths.h"

#include <fmt/format.h>

namespace wych::ir {

std::string microbatch_path(int microbatch, std::string_view input) {
  return fmt::format("microbatch.{}.{}", microbatch, input);
}

std::string compute_path(std::string_view weight) { return fmt::format("{}{}", kComputePrefix, weight); }

std::string gradient_path(std::string_view weight) {
  if (weight.starts_with(kComputePrefix)) {
    weight.remove_prefix(kComputePrefix.size());
  }
  return fmt::format("grad.{}", weight);
}

}  // namespace wych::ir
