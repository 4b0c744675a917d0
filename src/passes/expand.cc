#include "passes/expand.h"

#include <algorithm>

#include "ir/builder.h"
#include "ir/op.h"
#include "passes/copy.h"

namespace wych::passes {
namespace {

bool has_kernel(const ir::Op& op, KernelTarget target) {
  return target == KernelTarget::kCuda ? op.has_cuda_kernel() : op.has_cpu_kernel();
}

bool needs_expansion(const ir::Graph& graph, KernelTarget target) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [&](const ir::Node& node) { return !has_kernel(*node.op, target); });
}

ir::Graph expand_once(const ir::Graph& graph, KernelTarget target) {
  ir::Graph result;
  ir::Builder builder(result);
  GraphCopy copy(graph, builder);
  copy.copy_sources();
  for (ir::NodeId id = 0; id < static_cast<ir::NodeId>(graph.nodes.size()); ++id) {
    const ir::Node& node = graph.node(id);
    if (has_kernel(*node.op, target)) {
      copy.copy_node(id);
      continue;
    }
    WYCH_CHECK(!node.accumulate, "{} accumulates without a kernel", node.op->name());
    std::vector<ir::ValueId> inputs;
    for (const ir::ValueId input : node.inputs) {
      inputs.push_back(copy.of(input));
    }
    builder.set_phase(node.phase);
    builder.set_region(node.region);
    builder.set_microbatch(node.microbatch);
    const std::vector<ir::ValueId> outputs = node.op->reference(builder, inputs);
    WYCH_CHECK(outputs.size() == node.outputs.size(), "op {} has neither a kernel nor a reference",
               node.op->name());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      result.values[static_cast<std::size_t>(outputs[i])].path = graph.value(node.outputs[i]).path;
      copy.replace(node.outputs[i], outputs[i]);
    }
  }
  copy.copy_results();
  return result;
}

}  // namespace

ir::Graph expand(const ir::Graph& graph, KernelTarget target) {
  ir::Graph result = expand_once(graph, target);
  while (needs_expansion(result, target)) {
    result = expand_once(result, target);
  }
  return result;
}

}  // namespace wych::passes
