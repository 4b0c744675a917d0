#include "ir/print.h"

#include <fmt/format.h>

#include "ir/op.h"

namespace wych::ir {
namespace {

std::string reference_text(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  return value.producer == kNoNode ? value.path : fmt::format("%{}", id);
}

}  // namespace

std::string node_text(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  std::string outputs;
  for (const ValueId output : node.outputs) {
    const Value& value = graph.value(output);
    outputs += fmt::format("{}%{}{}{}:{}", outputs.empty() ? "" : ", ", output, value.path.empty() ? "" : " ",
                           value.path, value.type.text());
  }
  const std::size_t num_inputs = node.inputs.size() - (node.accumulate ? 1 : 0);
  std::string inputs;
  for (std::size_t i = 0; i < num_inputs; ++i) {
    inputs += (i == 0 ? " " : ", ") + reference_text(graph, node.inputs[i]);
  }
  std::string place = graph.regions[static_cast<std::size_t>(node.region)];
  if (node.microbatch >= 0) {
    place += fmt::format("{}mb{}", place.empty() ? "" : " ", node.microbatch);
  }
  return fmt::format("{} {}| {} {}= {}{}", phase_name(node.phase).front(), place.empty() ? "" : place + " ",
                     outputs, node.accumulate ? "+" : "", op_text(*node.op), inputs) +
         (node.accumulate ? fmt::format(" onto {}", reference_text(graph, node.inputs.back())) : "");
}

std::string graph_text(const Graph& graph) {
  std::string text;
  for (const Value& value : graph.values) {
    if (value.producer == kNoNode) {
      text += fmt::format("{} {}:{}\n",
                          value.lifetime == Lifetime::kInput ? "input" : category_name(value.category),
                          value.path, value.type.text());
    }
  }
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    text += node_text(graph, id) + "\n";
  }
  for (const Gradient& gradient : graph.gradients) {
    text += fmt::format("gradient {} = %{}\n", graph.value(gradient.parameter).path, gradient.gradient);
  }
  for (const Loss& loss : graph.losses) {
    text += fmt::format("loss {} = {} * {}\n", loss.name, loss.weight, reference_text(graph, loss.value));
  }
  for (const Output& output : graph.outputs) {
    text += fmt::format("output {} = {}\n", output.name, reference_text(graph, output.value));
  }
  return text;
}

}  // namespace wych::ir
