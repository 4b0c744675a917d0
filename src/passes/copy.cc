#include "passes/copy.h"

namespace wych::passes {

using ir::Graph;
using ir::kNoNode;
using ir::kNoValue;
using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;

GraphCopy::GraphCopy(const Graph& from, ir::Builder& to)
    : from_(from), to_(to), map_(from.values.size(), kNoValue) {
  to.graph().regions = from.regions;
}

void GraphCopy::copy_sources() {
  for (std::size_t id = 0; id < from_.values.size(); ++id) {
    const Value& value = from_.values[id];
    if (value.producer == kNoNode) {
      to_.set_region(value.region);
      map_[id] = value.lifetime == ir::Lifetime::kInput
                     ? to_.input(value.path, value.type)
                     : to_.persistent(value.path, value.type, value.category);
    }
  }
}

void GraphCopy::copy_node(NodeId id, ValueId accumulator) {
  const Node& node = from_.node(id);
  const std::size_t num_inputs = node.inputs.size() - (node.accumulate ? 1 : 0);
  std::vector<ValueId> inputs;
  for (std::size_t i = 0; i < num_inputs; ++i) {
    inputs.push_back(of(node.inputs[i]));
    WYCH_CHECK(inputs.back() != kNoValue, "node {} {} is copied before its input", id, node.op->name());
  }
  if (node.accumulate && accumulator == kNoValue) {
    accumulator = of(node.inputs.back());
  }
  to_.set_region(node.region);
  to_.set_phase(node.phase);
  to_.set_microbatch(node.microbatch);
  const std::vector<ValueId> outputs = to_.add(node.op, std::move(inputs), accumulator);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    stand_for(node.outputs[i], outputs[i]);
  }
}

void GraphCopy::stand_for(ValueId old, ValueId value) {
  const Value& original = from_.value(old);
  Value& copy = to_.graph().values[static_cast<std::size_t>(value)];
  copy.path = original.path;
  copy.lifetime = original.lifetime;
  copy.category = original.category;
  replace(old, value);
}

void GraphCopy::copy_results() {
  Graph& to = to_.graph();
  for (const ir::Loss& loss : from_.losses) {
    to.losses.push_back({loss.name, of(loss.value), loss.weight});
  }
  for (const ir::Output& output : from_.outputs) {
    to.outputs.push_back({output.name, of(output.value)});
  }
  for (const ir::Gradient& gradient : from_.gradients) {
    to.gradients.push_back({of(gradient.parameter), of(gradient.gradient)});
  }
}

Graph eliminate_dead(const Graph& graph) {
  std::vector<char> needed(graph.values.size(), 0);
  const auto need = [&](ValueId id) { needed[static_cast<std::size_t>(id)] = 1; };
  for (const ir::Loss& loss : graph.losses) {
    need(loss.value);
  }
  for (const ir::Output& output : graph.outputs) {
    need(output.value);
  }
  for (const ir::Gradient& gradient : graph.gradients) {
    need(gradient.gradient);
  }
  for (std::size_t id = 0; id < graph.values.size(); ++id) {
    if (graph.values[id].lifetime == ir::Lifetime::kPersistent) {
      need(static_cast<ValueId>(id));
    }
  }
  std::vector<char> keep(graph.nodes.size(), 0);
  for (auto id = static_cast<NodeId>(graph.nodes.size()) - 1; id >= 0; --id) {
    const Node& node = graph.node(id);
    for (const ValueId output : node.outputs) {
      keep[static_cast<std::size_t>(id)] |= needed[static_cast<std::size_t>(output)];
    }
    if (keep[static_cast<std::size_t>(id)] != 0) {
      for (const ValueId input : node.inputs) {
        need(input);
      }
    }
  }
  Graph result;
  ir::Builder builder(result);
  GraphCopy copy(graph, builder);
  copy.copy_sources();
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    if (keep[static_cast<std::size_t>(id)] != 0) {
      copy.copy_node(id);
    }
  }
  copy.copy_results();
  return result;
}

}  // namespace wych::passes
