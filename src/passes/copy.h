// GraphCopy: copies nodes of one graph into another under a map of values. Every pass is a loop over the old
// nodes that decides what to copy, what to replace and what to add.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace wych::passes {

class GraphCopy {
 public:
  // `from` must outlive the copy; `to` receives nodes through the builder.
  GraphCopy(const ir::Graph& from, ir::Builder& to);

  // Copies every value that exists before the program runs (inputs and persistent values) under its own path.
  void copy_sources();

  // The new id of an old value, or kNoValue.
  [[nodiscard]] ir::ValueId of(ir::ValueId old) const { return map_[static_cast<std::size_t>(old)]; }
  // From here on, readers of `old` read `value`.
  void replace(ir::ValueId old, ir::ValueId value) { map_[static_cast<std::size_t>(old)] = value; }

  // The same for a value of a new node, which takes over the name, lifetime and category of `old`.
  void stand_for(ir::ValueId old, ir::ValueId value);

  // Copies one node with its phase, region and microbatch. All its inputs must be mapped.
  // With `accumulator` (a new id) the copy adds into it, whatever the old node did.
  void copy_node(ir::NodeId id, ir::ValueId accumulator = ir::kNoValue);

  // Copies losses, outputs and gradients under the map; all must be mapped.
  void copy_results();

 private:
  const ir::Graph& from_;
  ir::Builder& to_;
  std::vector<ir::ValueId> map_;
};

// Drops nodes that no loss, output, gradient or persistent value depends on.
ir::Graph eliminate_dead(const ir::Graph& graph);

}  // namespace wych::passes
