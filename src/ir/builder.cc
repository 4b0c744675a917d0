#include "ir/builder.h"

#include <algorithm>

#include "ir/add.h"

namespace wych::ir {

ValueId Builder::input(std::string_view path, const TensorType& type) {
  WYCH_CHECK(graph_.find(path) == kNoValue, "input {} exists already", path);
  graph_.values.push_back({.type = type,
                           .path = std::string(path),
                           .lifetime = Lifetime::kInput,
                           .category = Category::kIo,
                           .region = 0});
  return static_cast<ValueId>(graph_.values.size() - 1);
}

ValueId Builder::persistent(std::string_view path, const TensorType& type, Category category) {
  if (const ValueId existing = graph_.find(path); existing != kNoValue) {
    WYCH_CHECK(graph_.type(existing) == type, "{} is {} and was asked for as {}", path,
               graph_.type(existing).text(), type.text());
    return existing;
  }
  graph_.values.push_back({.type = type,
                           .path = std::string(path),
                           .lifetime = Lifetime::kPersistent,
                           .category = category,
                           .region = region_});
  return static_cast<ValueId>(graph_.values.size() - 1);
}

std::vector<ValueId> Builder::add(std::shared_ptr<const Op> op, std::vector<ValueId> inputs,
                                  ValueId accumulator) {
  std::vector<TensorType> types;
  types.reserve(inputs.size());
  for (const ValueId id : inputs) {
    WYCH_CHECK(id >= 0 && id < static_cast<ValueId>(graph_.values.size()), "{} reads no value", op->name());
    types.push_back(graph_.type(id));
  }
  Expected<std::vector<TensorType>> outputs = op->infer(types);
  if (!outputs) {
    Error error = outputs.error();
    error.where = scoped(op_text(*op));
    throw GraphError(std::move(error));
  }
  Node node{.op = std::move(op),
            .inputs = std::move(inputs),
            .outputs = {},
            .accumulate = accumulator != kNoValue,
            .phase = phase_,
            .region = region_,
            .microbatch = microbatch_};
  if (node.accumulate) {
    const int output = node.op->accumulates();
    WYCH_CHECK(output >= 0 && graph_.type(accumulator) == (*outputs)[static_cast<std::size_t>(output)],
               "{} cannot accumulate into {}", node.op->name(), graph_.type(accumulator).text());
    node.inputs.push_back(accumulator);
  }
  const auto producer = static_cast<NodeId>(graph_.nodes.size());
  for (std::size_t i = 0; i < outputs->size(); ++i) {
    node.outputs.push_back(static_cast<ValueId>(graph_.values.size()));
    graph_.values.push_back({.type = (*outputs)[i],
                             .path = "",
                             .lifetime = Lifetime::kTransient,
                             .category = Category::kScratch,
                             .region = region_,
                             .producer = producer,
                             .producer_output = static_cast<i32>(i)});
  }
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.back().outputs;
}

ValueId Builder::add_one(std::shared_ptr<const Op> op, std::vector<ValueId> inputs, ValueId accumulator) {
  const std::vector<ValueId> outputs = add(std::move(op), std::move(inputs), accumulator);
  WYCH_CHECK(outputs.size() == 1, "op has {} outputs", outputs.size());
  return outputs[0];
}

void Builder::bind(ValueId id, std::string_view path, Category category) {
  Value& value = graph_.values[static_cast<std::size_t>(id)];
  WYCH_CHECK(value.producer != kNoNode, "'{}' exists before the program and cannot be bound to '{}'",
             value.path, path);
  WYCH_CHECK(value.lifetime == Lifetime::kTransient, "a value cannot be both '{}' and '{}'", value.path,
             path);
  value.path = std::string(path);
  value.lifetime = Lifetime::kPersistent;
  value.category = category;
}

ValueId Builder::name(ValueId id, std::string_view path) {
  graph_.values[static_cast<std::size_t>(id)].path = scoped(path);
  return id;
}

std::string Builder::scoped(std::string_view path) const {
  return prefix_.empty() ? std::string(path) : prefix_ + "." + std::string(path);
}

Builder::Scope Builder::scope(std::string_view path, bool region) {
  Scope scope(this, prefix_.size(), region_);
  prefix_ = scoped(path);
  if (region) {
    const auto found = std::find(graph_.regions.begin(), graph_.regions.end(), prefix_);
    region_ = static_cast<i32>(found - graph_.regions.begin());
    if (found == graph_.regions.end()) {
      graph_.regions.push_back(prefix_);
    }
  }
  return scope;
}

Builder::Scope::~Scope() {
  if (builder_ != nullptr) {
    builder_->prefix_.resize(length_);
    builder_->region_ = region_;
  }
}

namespace {

// Whether the kernel behind a value could have added it to another one.
bool is_accumulating(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  return value.producer != kNoNode && graph.node(value.producer).op->accumulates() == value.producer_output;
}

bool is_read(const Graph& graph, ValueId id) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return std::find(node.inputs.begin(), node.inputs.end(), id) != node.inputs.end();
  });
}

// Sums cotangents per value. A kernel that can add into its output does so; otherwise an add node is
// appended.
class Cotangents {
 public:
  explicit Cotangents(Builder& builder) : builder_(builder), of_(builder.graph().values.size(), kNoValue) {}

  [[nodiscard]] ValueId of(ValueId value) const {
    return static_cast<std::size_t>(value) < of_.size() ? of_[static_cast<std::size_t>(value)] : kNoValue;
  }

  // `shared`: `cotangent` is also that of another value.
  void add_to(ValueId value, ValueId cotangent, bool shared) {
    if (static_cast<std::size_t>(value) >= of_.size()) {
      of_.resize(builder_.graph().values.size(), kNoValue);
    }
    ValueId& sum = of_[static_cast<std::size_t>(value)];
    if (sum == kNoValue) {
      sum = cotangent;
    } else if (!shared && can_chain(sum, cotangent)) {
      Graph& graph = builder_.graph();
      Node& producer = graph.nodes[static_cast<std::size_t>(graph.value(cotangent).producer)];
      producer.accumulate = true;
      producer.inputs.push_back(sum);
      sum = cotangent;
    } else {
      sum = add(builder_, sum, cotangent);
    }
  }

 private:
  // The kernel of `cotangent` may add into the buffer of `sum` if it runs later and nothing else wants
  // either: d(a + b) is one value for both a and b, and a sum for a must leave b's alone.
  [[nodiscard]] bool can_chain(ValueId sum, ValueId cotangent) const {
    const Graph& graph = builder_.graph();
    return is_accumulating(graph, sum) && is_accumulating(graph, cotangent) &&
           !graph.node(graph.value(cotangent).producer).accumulate &&
           graph.value(sum).producer < graph.value(cotangent).producer &&
           std::count(of_.begin(), of_.end(), sum) == 1 &&
           std::count(of_.begin(), of_.end(), cotangent) == 0 && !is_read(graph, sum) &&
           !is_read(graph, cotangent);
  }

  Builder& builder_;
  std::vector<ValueId> of_;
};

}  // namespace

std::vector<ValueId> reverse(Builder& builder, NodeId first, NodeId last, std::span<const Seed> seeds,
                             std::span<const ValueId> wanted) {
  const i32 region = builder.region();
  Cotangents cotangents(builder);
  for (const Seed& seed : seeds) {
    cotangents.add_to(seed.value, seed.cotangent, /*shared=*/true);
  }
  for (NodeId id = last - 1; id >= first; --id) {
    const Node node = builder.graph().node(id);  // a copy: appending nodes moves the vector
    std::vector<ValueId> incoming;
    bool any = false;
    for (const ValueId output : node.outputs) {
      incoming.push_back(cotangents.of(output));
      any = any || incoming.back() != kNoValue;
    }
    if (!any) {
      continue;
    }
    WYCH_CHECK(!node.accumulate, "{} accumulates and cannot be differentiated", node.op->name());
    builder.set_region(node.region);
    const std::vector<ValueId> outgoing = node.op->vjp(builder, {node.inputs, node.outputs}, incoming);
    WYCH_CHECK(outgoing.size() == node.inputs.size(), "vjp of {} gave {} cotangents for {} inputs",
               node.op->name(), outgoing.size(), node.inputs.size());
    for (std::size_t i = 0; i < outgoing.size(); ++i) {
      if (outgoing[i] != kNoValue) {
        // The gradient of a bfloat16 weight is float32.
        const TensorType& given = builder.type(outgoing[i]);
        const TensorType& value = builder.type(node.inputs[i]);
        WYCH_CHECK(given == value || (given.shape == value.shape && given.dtype == DType::kF32 &&
                                      value.dtype == DType::kBF16),
                   "vjp of {} gave {} for input {} of type {}", node.op->name(),
                   builder.type(outgoing[i]).text(), i, builder.type(node.inputs[i]).text());
        cotangents.add_to(node.inputs[i], outgoing[i],
                          std::count(outgoing.begin(), outgoing.end(), outgoing[i]) > 1);
      }
    }
  }
  builder.set_region(region);
  std::vector<ValueId> result;
  for (const ValueId value : wanted) {
    result.push_back(cotangents.of(value));
  }
  return result;
}

}  // namespace wych::ir
