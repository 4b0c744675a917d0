#include "ir/verify.h"

#include <fmt/format.h>

#include <set>

#include "ir/op.h"

namespace wych::ir {
namespace {

Error broken(const Graph& graph, NodeId id, std::string what) {
  const Node& node = graph.node(id);
  return {.kind = ErrorKind::kInternal,
          .where = fmt::format("node {} {} in region '{}'", id, op_text(*node.op),
                               graph.regions[static_cast<std::size_t>(node.region)]),
          .what = std::move(what),
          .hint = "",
          .more = {}};
}

// Union-find over values that share one buffer through views and in-place updates.
class Buffers {
 public:
  explicit Buffers(std::size_t count) : parent_(count) {
    for (std::size_t i = 0; i < count; ++i) {
      parent_[i] = static_cast<ValueId>(i);
    }
  }
  ValueId root(ValueId id) {
    while (parent_[static_cast<std::size_t>(id)] != id) {
      id = parent_[static_cast<std::size_t>(id)];
    }
    return id;
  }
  void join(ValueId child, ValueId parent) { parent_[static_cast<std::size_t>(root(child))] = root(parent); }

 private:
  std::vector<ValueId> parent_;
};

Expected<void> verify_types(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  const std::size_t num_inputs = node.inputs.size() - (node.accumulate ? 1 : 0);
  std::vector<TensorType> types;
  for (std::size_t i = 0; i < num_inputs; ++i) {
    types.push_back(graph.type(node.inputs[i]));
  }
  const Expected<std::vector<TensorType>> outputs = node.op->infer(types);
  if (!outputs) {
    return broken(graph, id, outputs.error().what);
  }
  if (outputs->size() != node.outputs.size()) {
    return broken(graph, id,
                  fmt::format("has {} outputs, its op has {}", node.outputs.size(), outputs->size()));
  }
  for (std::size_t i = 0; i < outputs->size(); ++i) {
    if ((*outputs)[i] != graph.type(node.outputs[i])) {
      return broken(graph, id,
                    fmt::format("output {} is {}, its op gives {}", i, graph.type(node.outputs[i]).text(),
                                (*outputs)[i].text()));
    }
  }
  if (node.accumulate) {
    const int output = node.op->accumulates();
    if (output < 0 || graph.type(node.inputs.back()) != (*outputs)[static_cast<std::size_t>(output)]) {
      return broken(graph, id, "accumulates into a value of another type");
    }
  }
  return {};
}

Expected<void> verify_nodes(const Graph& graph) {
  Buffers buffers(graph.values.size());
  // Per buffer root: the newest version; only it may be read. kNoValue while nothing overwrote the buffer.
  std::vector<ValueId> newest(graph.values.size(), kNoValue);
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    const Node& node = graph.node(id);
    for (const ValueId input : node.inputs) {
      if (input < 0 || input >= static_cast<ValueId>(graph.values.size()) ||
          graph.value(input).producer >= id) {
        return broken(graph, id, fmt::format("reads value {} before it is defined", input));
      }
      const ValueId version = newest[static_cast<std::size_t>(buffers.root(input))];
      if (version != kNoValue && version != input) {
        return broken(graph, id,
                      fmt::format("reads value {} ('{}') after it was overwritten in place by value {}",
                                  input, graph.value(input).path, version));
      }
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const Value& value = graph.value(node.outputs[i]);
      if (value.producer != id || value.producer_output != static_cast<i32>(i)) {
        return broken(graph, id, fmt::format("does not own its output {}", i));
      }
    }
    WYCH_TRY_VOID(verify_types(graph, id));
    const auto overwrite = [&](ValueId input, ValueId output) {
      const ValueId root = buffers.root(input);
      buffers.join(output, root);
      newest[static_cast<std::size_t>(root)] = output;
    };
    for (const Alias& alias : node.op->aliases()) {
      const ValueId input = node.inputs[static_cast<std::size_t>(alias.input)];
      const ValueId output = node.outputs[static_cast<std::size_t>(alias.output)];
      if (alias.kind == AliasKind::kInPlace) {
        overwrite(input, output);
      } else if (alias.kind == AliasKind::kView) {
        buffers.join(output, input);
      }
    }
    if (node.accumulate) {
      overwrite(node.inputs.back(), node.outputs[static_cast<std::size_t>(node.op->accumulates())]);
    }
  }
  return {};
}

}  // namespace

Expected<void> verify(const Graph& graph) {
  const auto wrong = [](std::string what) {
    return Error{
        .kind = ErrorKind::kInternal, .where = "graph", .what = std::move(what), .hint = "", .more = {}};
  };
  std::set<std::string> paths;
  for (std::size_t id = 0; id < graph.values.size(); ++id) {
    const Value& value = graph.values[id];
    if (value.producer == kNoNode) {
      if (value.lifetime == Lifetime::kTransient) {
        return wrong(fmt::format("value {} is transient and has no producer", id));
      }
      if (value.path.empty() || !paths.insert(value.path).second) {
        return wrong(fmt::format("path '{}' is empty or used twice", value.path));
      }
    } else if (value.producer >= static_cast<NodeId>(graph.nodes.size())) {
      return wrong(fmt::format("value {} has a producer that does not exist", id));
    }
  }
  WYCH_TRY_VOID(verify_nodes(graph));
  for (const Loss& loss : graph.losses) {
    if (graph.type(loss.value) != TensorType{DType::kF64, {1}}) {
      return wrong(fmt::format("loss '{}' is {}, not f64[1]", loss.name, graph.type(loss.value).text()));
    }
  }
  for (const Gradient& gradient : graph.gradients) {
    if (graph.type(gradient.gradient).shape != graph.type(gradient.parameter).shape) {
      return wrong(fmt::format("gradient of '{}' has another shape", graph.value(gradient.parameter).path));
    }
  }
  return {};
}

}  // namespace wych::ir
