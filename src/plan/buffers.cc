#include "plan/buffers.h"

#include <algorithm>

#include "ir/op.h"

namespace wych::plan {

using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

Buffers::Buffers(const ir::Graph& graph) : graph_(graph) {
  const std::size_t count = graph.values.size();
  parent_.resize(count);
  last_.assign(count, -1);
  fixed_.assign(count, 0);
  for (std::size_t id = 0; id < count; ++id) {
    parent_[id] = static_cast<ValueId>(id);
    last_[id] = graph.values[id].producer;
    fixed_[id] = static_cast<char>(graph.values[id].lifetime != ir::Lifetime::kTransient);
  }
  find_last_uses();
  join_required();
  join_optional();
  of_.assign(count, 0);
  std::vector<std::size_t> index(count, count);
  for (std::size_t id = 0; id < count; ++id) {
    const auto top = static_cast<std::size_t>(root(static_cast<ValueId>(id)));
    if (index[top] == count) {
      index[top] = buffers_.size();
      buffers_.push_back({.values = {}, .bytes = 0, .first = graph.values[id].producer, .last = last_[top]});
    }
    Buffer& buffer = buffers_[index[top]];
    of_[id] = index[top];
    const ir::Value& value = graph.values[id];
    buffer.values.push_back(static_cast<ValueId>(id));
    buffer.bytes = std::max(buffer.bytes, value.type.bytes());
    buffer.first = std::min(buffer.first, value.producer);
    if (value.lifetime == ir::Lifetime::kPersistent) {
      WYCH_CHECK(buffer.persistent == kNoValue || graph.value(buffer.persistent).path == value.path,
                 "'{}' and '{}' would share one buffer", graph.value(buffer.persistent).path, value.path);
      buffer.persistent = static_cast<ValueId>(id);
    }
    buffer.io = buffer.io || value.lifetime == ir::Lifetime::kInput ||
                last_[top] == static_cast<NodeId>(graph.nodes.size());
  }
}

ValueId Buffers::root(ValueId id) {
  while (parent_[static_cast<std::size_t>(id)] != id) {
    id = parent_[static_cast<std::size_t>(id)] =
        parent_[static_cast<std::size_t>(parent_[static_cast<std::size_t>(id)])];
  }
  return id;
}

void Buffers::join(ValueId child, ValueId parent) {
  const ValueId from = root(child);
  const ValueId to = root(parent);
  if (from != to) {
    parent_[static_cast<std::size_t>(from)] = to;
    last_[static_cast<std::size_t>(to)] =
        std::max(last_[static_cast<std::size_t>(to)], last_[static_cast<std::size_t>(from)]);
    fixed_[static_cast<std::size_t>(to)] |= fixed_[static_cast<std::size_t>(from)];
  }
}

void Buffers::find_last_uses() {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    for (const ValueId input : graph_.nodes[id].inputs) {
      NodeId& last = last_[static_cast<std::size_t>(input)];
      last = std::max(last, static_cast<NodeId>(id));
    }
  }
  const auto keep = [&](ValueId value) {
    last_[static_cast<std::size_t>(value)] = static_cast<NodeId>(graph_.nodes.size());
  };
  for (const ir::Output& output : graph_.outputs) {
    keep(output.value);
  }
  for (const ir::Loss& loss : graph_.losses) {
    keep(loss.value);
  }
}

void Buffers::join_required() {
  for (const ir::Node& node : graph_.nodes) {
    for (const ir::Alias& alias : node.op->aliases()) {
      if (alias.kind != ir::AliasKind::kMay) {
        join(node.outputs[static_cast<std::size_t>(alias.output)],
             node.inputs[static_cast<std::size_t>(alias.input)]);
      }
    }
    if (node.accumulate) {
      join(node.outputs[static_cast<std::size_t>(node.op->accumulates())], node.inputs.back());
    }
  }
}

void Buffers::join_optional() {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const ir::Node& node = graph_.nodes[id];
    std::vector<char> taken(node.outputs.size(), 0);
    for (const ir::Alias& alias : node.op->aliases()) {
      const ValueId input = node.inputs[static_cast<std::size_t>(alias.input)];
      const ValueId output = node.outputs[static_cast<std::size_t>(alias.output)];
      const ValueId input_root = root(input);
      const auto same_buffer = std::count_if(node.inputs.begin(), node.inputs.end(),
                                             [&](ValueId other) { return root(other) == input_root; });
      // The output must not have been joined to something else, or outlive a fixed buffer's content.
      if (alias.kind == ir::AliasKind::kMay && taken[static_cast<std::size_t>(alias.output)] == 0 &&
          same_buffer == 1 && root(output) == output && fixed_[static_cast<std::size_t>(input_root)] == 0 &&
          fixed_[static_cast<std::size_t>(output)] == 0 &&
          last_[static_cast<std::size_t>(input_root)] == static_cast<NodeId>(id) &&
          graph_.type(input).bytes() == graph_.type(output).bytes()) {
        join(output, input);
        taken[static_cast<std::size_t>(alias.output)] = 1;
      }
    }
  }
}

}  // namespace wych::plan
