// recompute: trades activations for time. Forward results that the policy drops are computed again in the
// backward, immediately before their first reader there. The same kernels run on the same inputs, so
// gradients are equal to the bit. Ops that say Recompute::kNever (routing, losses) always keep their results,
// and so do values that another region reads.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "ir/graph.h"

namespace wych::passes {

// none: keep everything. selective: drop what is cheap to compute (norms, SwiGLU, permutations).
// block: keep only what enters a block.
enum class RecomputePolicy : u8 { kNone, kSelective, kBlock };
std::optional<RecomputePolicy> parse_recompute_policy(std::string_view name);

// One policy per region of the differentiated graph; region 0 (outside all blocks) is always kept.
ir::Graph recompute(const ir::Graph& graph, std::span<const RecomputePolicy> policy_of_region);

}  // namespace wych::passes
