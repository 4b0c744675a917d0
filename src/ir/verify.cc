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

// Which values share one buffer through views and in-place updates, and which of them still show what was
// written for them. Union-find with a count of overwrites per buffer.
class Buffers {
 public:
  explicit Buffers(std::size_t count) : parent_(count), version_(count, 0), newest_(count, kNoValue) {
    for (std::size_t i = 0; i < count; ++i) {
      parent_[i] = static_cast<ValueId>(i);
    }
  }

  // Output `view` is another shape of `value`.
  void add_view(ValueId view, ValueId value) {
    version_[index(view)] = version_[index(value)];
    parent_[index(view)] = root(value);
  }

  // The buffer of `value` now holds `output`.
  void overwrite(ValueId value, ValueId output) {
    const ValueId buffer = root(value);
    version_[index(output)] =
        newest_[index(buffer)] == kNoValue ? 1 : version_[index(newest_[index(buffer)])] + 1;
    newest_[index(buffer)] = output;
    parent_[index(output)] = buffer;
  }

  // The value that overwrote `value`, or kNoValue if it may be read.
  [[nodiscard]] ValueId overwritten_by(ValueId value) const {
    const ValueId newest = newest_[index(root(value))];
    return newest == kNoValue || version_[index(value)] == version_[index(newest)] ? kNoValue : newest;
  }

  [[nodiscard]] bool share(ValueId a, ValueId b) const { return root(a) == root(b); }

 private:
  static std::size_t index(ValueId id) { return static_cast<std::size_t>(id); }
  [[nodiscard]] ValueId root(ValueId id) const {
    while (parent_[index(id)] != id) {
      id = parent_[index(id)];
    }
    return id;
  }

  std::vector<ValueId> parent_;
  std::vector<i32> version_;     // per value: overwrites of its buffer before it was written
  std::vector<ValueId> newest_;  // per root: what overwrote the buffer last
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

// Inputs are defined, and hold what was written for them.
Expected<void> verify_inputs(const Graph& graph, NodeId id, const Buffers& buffers) {
  for (const ValueId input : graph.node(id).inputs) {
    if (input < 0 || input >= static_cast<ValueId>(graph.values.size()) ||
        graph.value(input).producer >= id) {
      return broken(graph, id, fmt::format("reads value {} before it is defined", input));
    }
    if (const ValueId version = buffers.overwritten_by(input); version != kNoValue) {
      return broken(graph, id,
                    fmt::format("reads value {} ('{}') after it was overwritten in place by value {}", input,
                                graph.value(input).path, version));
    }
  }
  return {};
}

// Node `id` updates the buffer of its input `position` in place: no other input may be in that buffer.
Expected<void> verify_update(const Graph& graph, NodeId id, std::size_t position, const Buffers& buffers) {
  const Node& node = graph.node(id);
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (i != position && buffers.share(node.inputs[i], node.inputs[position])) {
      return broken(graph, id,
                    fmt::format("reads value {} from the buffer that it overwrites", node.inputs[i]));
    }
  }
  return {};
}

Expected<void> verify_nodes(const Graph& graph, Buffers& buffers) {
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    const Node& node = graph.node(id);
    WYCH_TRY_VOID(verify_inputs(graph, id, buffers));
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const Value& value = graph.value(node.outputs[i]);
      if (value.producer != id || value.producer_output != static_cast<i32>(i)) {
        return broken(graph, id, fmt::format("does not own its output {}", i));
      }
    }
    WYCH_TRY_VOID(verify_types(graph, id));
    for (const Alias& alias : node.op->aliases()) {
      const auto position = static_cast<std::size_t>(alias.input);
      const ValueId output = node.outputs[static_cast<std::size_t>(alias.output)];
      if (alias.kind == AliasKind::kInPlace) {
        WYCH_TRY_VOID(verify_update(graph, id, position, buffers));
        buffers.overwrite(node.inputs[position], output);
      } else if (alias.kind == AliasKind::kView) {
        buffers.add_view(output, node.inputs[position]);
      }
    }
    if (node.accumulate) {
      WYCH_TRY_VOID(verify_update(graph, id, node.inputs.size() - 1, buffers));
      buffers.overwrite(node.inputs.back(), node.outputs[static_cast<std::size_t>(node.op->accumulates())]);
    }
  }
  return {};
}

Error wrong(std::string what) {
  return {.kind = ErrorKind::kInternal, .where = "graph", .what = std::move(what), .hint = "", .more = {}};
}

// Values that exist before the program runs or outlive it.
Expected<void> verify_values(const Graph& graph) {
  std::set<std::string> paths;
  for (std::size_t id = 0; id < graph.values.size(); ++id) {
    const Value& value = graph.values[id];
    if (value.producer == kNoNode && value.lifetime == Lifetime::kTransient) {
      return wrong(fmt::format("value {} is transient and has no producer", id));
    }
    if (value.producer >= static_cast<NodeId>(graph.nodes.size())) {
      return wrong(fmt::format("value {} has a producer that does not exist", id));
    }
    if (value.lifetime != Lifetime::kTransient && (value.path.empty() || !paths.insert(value.path).second)) {
      return wrong(fmt::format("path '{}' is empty or used twice", value.path));
    }
  }
  return {};
}

// What is read after the program ran: `what` ("loss 'ce'") must still be there then.
Expected<void> verify_result(const Graph& graph, const Buffers& buffers, const std::string& what,
                             ValueId id) {
  if (id < 0 || id >= static_cast<ValueId>(graph.values.size())) {
    return wrong(fmt::format("{} is no value", what));
  }
  if (const ValueId version = buffers.overwritten_by(id); version != kNoValue) {
    return wrong(fmt::format("{} is value {}, which value {} overwrites in place", what, id, version));
  }
  return {};
}

}  // namespace

Expected<void> verify(const Graph& graph) {
  WYCH_TRY_VOID(verify_values(graph));
  Buffers buffers(graph.values.size());
  WYCH_TRY_VOID(verify_nodes(graph, buffers));
  for (const Loss& loss : graph.losses) {
    WYCH_TRY_VOID(verify_result(graph, buffers, fmt::format("loss '{}'", loss.name), loss.value));
    if (graph.type(loss.value) != TensorType{DType::kF64, {1}}) {
      return wrong(fmt::format("loss '{}' is {}, not f64[1]", loss.name, graph.type(loss.value).text()));
    }
  }
  for (const Output& output : graph.outputs) {
    WYCH_TRY_VOID(verify_result(graph, buffers, fmt::format("output '{}'", output.name), output.value));
  }
  for (const Gradient& gradient : graph.gradients) {
    const std::string what = fmt::format("gradient of '{}'", graph.value(gradient.parameter).path);
    WYCH_TRY_VOID(verify_result(graph, buffers, what, gradient.gradient));
    if (graph.type(gradient.gradient).shape != graph.type(gradient.parameter).shape) {
      return wrong(fmt::format("{} has another shape", what));
    }
  }
  return {};
}

}  // namespace wych::ir
