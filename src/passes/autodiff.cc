#include "passes/autodiff.h"

#include <fmt/format.h>

#include "ir/builder.h"
#include "ops/fill.h"
#include "passes/copy.h"

namespace wych::passes {
namespace {

using ir::Graph;
using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

// head_loss_backward computes the losses again by the way. Where it reads the same inputs as a head_loss, the
// losses are taken from it; the forward node then has no reader and is dropped.
Graph take_losses_from_backward(const Graph& graph) {
  constexpr std::size_t kSharedInputs = 4;  // x, w, targets, denominator
  Graph result;
  ir::Builder builder(result);
  GraphCopy copy(graph, builder);
  copy.copy_sources();
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    copy.copy_node(id);
    const ir::Node& backward = graph.node(id);
    if (backward.op->name() != "head_loss_backward") {
      continue;
    }
    for (NodeId earlier = 0; earlier < id; ++earlier) {
      const ir::Node& forward = graph.node(earlier);
      if (forward.op->name() == "head_loss" &&
          std::equal(forward.inputs.begin(), forward.inputs.begin() + kSharedInputs,
                     backward.inputs.begin())) {
        for (std::size_t i = 0; i < forward.outputs.size(); ++i) {
          copy.replace(forward.outputs[i], copy.of(backward.outputs[i]));
        }
      }
    }
  }
  copy.copy_results();
  return eliminate_dead(result);
}

}  // namespace

Expected<Graph> autodiff(const Graph& forward) {
  Graph graph;
  ir::Builder builder(graph);
  GraphCopy copy(forward, builder);
  copy.copy_sources();
  const auto num_nodes = static_cast<NodeId>(forward.nodes.size());
  for (NodeId id = 0; id < num_nodes; ++id) {
    copy.copy_node(id);
  }
  copy.copy_results();

  builder.set_phase(ir::Phase::kBackward);
  builder.set_region(0);
  std::vector<ir::Seed> seeds;
  for (const ir::Loss& loss : graph.losses) {
    seeds.push_back({loss.value, ops::fill(builder, loss.weight, {DType::kF64, {1}})});
  }
  std::vector<ValueId> weights;
  for (std::size_t id = 0; id < graph.values.size(); ++id) {
    const ir::Value& value = graph.values[id];
    if (value.producer == ir::kNoNode && value.category == ir::Category::kWeights) {
      weights.push_back(static_cast<ValueId>(id));
    }
  }
  const std::vector<ValueId> gradients = ir::reverse(builder, 0, num_nodes, seeds, weights);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (gradients[i] == kNoValue) {
      return Error{.kind = ErrorKind::kInternal,
                   .where = "autodiff",
                   .what = fmt::format("no loss depends on weight '{}': it would never train",
                                       graph.value(weights[i]).path),
                   .hint = "",
                   .more = {}};
    }
    graph.gradients.push_back({weights[i], gradients[i]});
  }
  return take_losses_from_backward(graph);
}

}  // namespace wych::passes
