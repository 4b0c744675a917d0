#include "passes/recompute.h"

#include "ir/builder.h"
#include "ir/op.h"
#include "passes/copy.h"

namespace wych::passes {
namespace {

using ir::Graph;
using ir::kNoNode;
using ir::kNoValue;
using ir::Node;
using ir::NodeId;
using ir::Phase;
using ir::ValueId;

bool drops(RecomputePolicy policy, ir::Recompute trait) {
  switch (policy) {
    case RecomputePolicy::kNone:
      return false;
    case RecomputePolicy::kSelective:
      return trait == ir::Recompute::kCheap;
    case RecomputePolicy::kBlock:
      return trait != ir::Recompute::kNever;
  }
  return false;
}

// Which forward nodes are dropped.
std::vector<char> choose(const Graph& graph, std::span<const RecomputePolicy> policy_of_region) {
  std::vector<char> dropped(graph.nodes.size(), 0);
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    dropped[id] = static_cast<char>(
        node.phase == Phase::kForward && node.region != 0 &&
        drops(policy_of_region[static_cast<std::size_t>(node.region)], node.op->recompute()));
  }
  for (const Node& node : graph.nodes) {
    for (const ValueId input : node.inputs) {
      const NodeId producer = graph.value(input).producer;
      if (producer != kNoNode && graph.node(producer).region != node.region) {
        dropped[static_cast<std::size_t>(producer)] = 0;
      }
    }
  }
  return dropped;
}

class Rewriter {
 public:
  Rewriter(const Graph& from, std::vector<char> dropped)
      : from_(from),
        dropped_(std::move(dropped)),
        builder_(to_),
        copy_(from, builder_),
        again_(from.nodes.size(), 0) {}

  Graph run() {
    copy_.copy_sources();
    for (NodeId id = 0; id < static_cast<NodeId>(from_.nodes.size()); ++id) {
      const Node& node = from_.node(id);
      if (node.phase != Phase::kForward) {
        for (const ValueId input : node.inputs) {
          compute_again(input);
        }
      }
      copy_.copy_node(id);
    }
    for (std::size_t id = 0; id < original_.size(); ++id) {
      copy_.replace(original_[id].first, original_[id].second);  // the host reads the forward's values
    }
    copy_.copy_results();
    return std::move(to_);
  }

 private:
  // Makes readers from here on read a recomputed copy of `value` if its producer was dropped.
  void compute_again(ValueId value) {
    const NodeId producer = from_.value(value).producer;
    if (producer == kNoNode || dropped_[static_cast<std::size_t>(producer)] == 0 ||
        again_[static_cast<std::size_t>(producer)] != 0) {
      return;
    }
    again_[static_cast<std::size_t>(producer)] = 1;
    const Node& node = from_.node(producer);
    for (const ValueId input : node.inputs) {
      compute_again(input);
    }
    for (const ValueId output : node.outputs) {
      original_.emplace_back(output, copy_.of(output));
    }
    copy_.copy_node(producer);
    to_.nodes.back().phase = Phase::kRecompute;
  }

  const Graph& from_;
  std::vector<char> dropped_;
  Graph to_;
  ir::Builder builder_;
  GraphCopy copy_;
  std::vector<char> again_;
  std::vector<std::pair<ValueId, ValueId>> original_;  // old id, id of the forward's copy
};

}  // namespace

std::optional<RecomputePolicy> parse_recompute_policy(std::string_view name) {
  if (name == "none") {
    return RecomputePolicy::kNone;
  }
  if (name == "selective") {
    return RecomputePolicy::kSelective;
  }
  if (name == "block") {
    return RecomputePolicy::kBlock;
  }
  return std::nullopt;
}

Graph recompute(const Graph& graph, std::span<const RecomputePolicy> policy_of_region) {
  WYCH_CHECK(policy_of_region.size() == graph.regions.size(), "{} policies for {} regions",
             policy_of_region.size(), graph.regions.size());
  return Rewriter(graph, choose(graph, policy_of_region)).run();
}

}  // namespace wych::passes
