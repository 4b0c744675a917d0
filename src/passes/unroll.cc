#include "passes/unroll.h"

#include <map>

#include "ir/add.h"
#include "ir/builder.h"
#include "ir/paths.h"
#include "ops/add_n.h"
#include "ops/count_targets.h"
#include "passes/copy.h"

namespace wych::passes {
namespace {

using ir::Graph;
using ir::kNoNode;
using ir::kNoValue;
using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;

class Unroller {
 public:
  Unroller(const Graph& from, i32 num_microbatches)
      : from_(from),
        builder_(to_),
        gradients_(from.gradients.size(), kNoValue),
        has_root_(from.gradients.size(), 0) {
    for (i32 microbatch = 0; microbatch < num_microbatches; ++microbatch) {
      copies_.emplace_back(from, builder_);
    }
    find_accumulation_roots();
  }

  Graph run(std::span<const MicrobatchAction> actions) {
    map_sources();
    for (const MicrobatchAction& action : actions) {
      for (NodeId id = 0; id < static_cast<NodeId>(from_.nodes.size()); ++id) {
        if ((from_.node(id).phase != ir::Phase::kForward) == action.backward) {
          copy_node(id, action.microbatch);
        }
      }
      if (action.backward) {
        collect_gradients(action.microbatch);
      }
    }
    finish();
    return std::move(to_);
  }

 private:
  // A weight used twice has a chain of accumulating nodes; the step's accumulator enters at its first node.
  void find_accumulation_roots() {
    for (std::size_t i = 0; i < from_.gradients.size(); ++i) {
      ValueId value = from_.gradients[i].gradient;
      for (;;) {
        const NodeId producer = from_.value(value).producer;
        const Node& node = from_.node(producer);
        if (node.op->accumulates() != from_.value(value).producer_output) {
          break;
        }
        if (!node.accumulate) {
          root_to_gradient_[producer] = i;
          has_root_[i] = 1;
          break;
        }
        value = node.inputs.back();
      }
    }
  }

  void map_sources() {
    std::vector<ValueId> targets;
    for (std::size_t id = 0; id < from_.values.size(); ++id) {
      const Value& value = from_.values[id];
      if (value.producer != kNoNode || value.path == ir::kDenominatorPath) {
        continue;
      }
      for (std::size_t microbatch = 0; microbatch < copies_.size(); ++microbatch) {
        ValueId mapped = kNoValue;
        if (value.lifetime == ir::Lifetime::kPersistent) {
          builder_.set_region(value.region);
          mapped = builder_.persistent(value.path, value.type, value.category);
        } else {
          mapped = builder_.input(ir::microbatch_path(static_cast<i32>(microbatch), value.path), value.type);
        }
        copies_[microbatch].replace(static_cast<ValueId>(id), mapped);
        if (value.path == ir::kTargetsPath) {
          targets.push_back(mapped);
        }
      }
    }
    builder_.set_region(0);
    builder_.set_phase(ir::Phase::kForward);
    denominator_ = builder_.name(ops::count_targets(builder_, targets), ir::kDenominatorPath);
    if (const ValueId old = from_.find(ir::kDenominatorPath); old != kNoValue) {
      for (GraphCopy& copy : copies_) {
        copy.replace(old, denominator_);
      }
    }
  }

  void copy_node(NodeId id, i32 microbatch) {
    const auto root = root_to_gradient_.find(id);
    const ValueId accumulator = root == root_to_gradient_.end() ? kNoValue : gradients_[root->second];
    copies_[static_cast<std::size_t>(microbatch)].copy_node(id, accumulator);
    to_.nodes.back().microbatch = microbatch;
  }

  void collect_gradients(i32 microbatch) {
    for (std::size_t i = 0; i < from_.gradients.size(); ++i) {
      ValueId gradient = copies_[static_cast<std::size_t>(microbatch)].of(from_.gradients[i].gradient);
      if (gradients_[i] != kNoValue && has_root_[i] == 0) {
        builder_.set_phase(ir::Phase::kBackward);
        builder_.set_microbatch(microbatch);
        gradient = ir::add(builder_, gradients_[i], gradient);
      }
      gradients_[i] = gradient;
    }
  }

  void finish() {
    builder_.set_microbatch(-1);
    builder_.set_region(0);
    builder_.set_phase(ir::Phase::kBackward);
    const auto sum = [&](ValueId old) {
      std::vector<ValueId> parts;
      for (const GraphCopy& copy : copies_) {
        parts.push_back(copy.of(old));
      }
      return parts.size() == 1 ? parts[0] : ops::add_n(builder_, parts);
    };
    for (const ir::Loss& loss : from_.losses) {
      to_.outputs.push_back({"loss." + loss.name, sum(loss.value)});
    }
    for (const ir::Output& output : from_.outputs) {
      to_.outputs.push_back({output.name, sum(output.value)});
    }
    to_.outputs.push_back({"targets", denominator_});
    for (std::size_t i = 0; i < from_.gradients.size(); ++i) {
      const ValueId weight = copies_[0].of(from_.gradients[i].parameter);
      builder_.bind(gradients_[i], ir::gradient_path(to_.value(weight).path), ir::Category::kGradients);
      to_.gradients.push_back({weight, gradients_[i]});
    }
  }

  const Graph& from_;
  Graph to_;
  ir::Builder builder_;
  std::vector<GraphCopy> copies_;
  std::map<NodeId, std::size_t> root_to_gradient_;
  std::vector<ValueId> gradients_;  // the sum so far
  std::vector<char> has_root_;      // whether a kernel adds to that sum, or an add node must
  ValueId denominator_ = kNoValue;
};

}  // namespace

Graph unroll(const Graph& microbatch, i32 num_microbatches, std::span<const MicrobatchAction> actions) {
  std::vector<int> seen(static_cast<std::size_t>(2 * num_microbatches), 0);
  for (const MicrobatchAction& action : actions) {
    WYCH_CHECK(action.microbatch >= 0 && action.microbatch < num_microbatches, "no microbatch {}",
               action.microbatch);
    const std::size_t microbatch_index = static_cast<std::size_t>(action.microbatch);
    ++seen[2 * microbatch_index + (action.backward ? 1 : 0)];
  }
  for (const int count : seen) {
    WYCH_CHECK(count == 1, "every microbatch needs one forward and one backward");
  }
  return Unroller(microbatch, num_microbatches).run(actions);
}

}  // namespace wych::passes
