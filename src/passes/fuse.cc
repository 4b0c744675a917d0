#include "passes/fuse.h"

#include <algorithm>

#include "ir/builder.h"
#include "ops/rms_norm.h"
#include "passes/copy.h"

namespace wych::passes {
namespace {

using ir::Graph;
using ir::kNoValue;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

class Fuser {
 public:
  explicit Fuser(const Graph& from) : from_(from), builder_(to_), copy_(from, builder_) {
    readers_.resize(from.values.size());
    for (const Node& node : from.nodes) {
      for (const ValueId input : node.inputs) {
        ++readers_[static_cast<std::size_t>(input)];
      }
    }
    for (const ir::Output& output : from.outputs) {
      ++readers_[static_cast<std::size_t>(output.value)];
    }
  }

  Graph run() {
    copy_.copy_sources();
    const auto count = static_cast<NodeId>(from_.nodes.size());
    for (NodeId id = 0; id < count; ++id) {
      if (id + 1 < count && fuse(from_.node(id), from_.node(id + 1))) {
        ++id;
      } else {
        copy_.copy_node(id);
      }
    }
    copy_.copy_results();
    return std::move(to_);
  }

 private:
  bool fuse(const Node& first, const Node& second) {
    return first.phase == second.phase && first.microbatch == second.microbatch &&
           (fuse_forward(first, second) || fuse_backward(first, second));
  }

  bool fuse_forward(const Node& add, const Node& second) {
    const auto* norm = dynamic_cast<const ops::RmsNorm*>(second.op.get());
    if (add.op->name() != "add" || norm == nullptr || second.inputs[0] != add.outputs[0]) {
      return false;
    }
    append(second, std::make_shared<ops::AddRmsNorm>(norm->eps()),
           {add.inputs[0], add.inputs[1], second.inputs[1]}, kNoValue,
           {add.outputs[0], second.outputs[0], second.outputs[1]});
    return true;
  }

  bool fuse_backward(const Node& first, const Node& add) {
    const auto* norm = dynamic_cast<const ops::RmsNormBackward*>(first.op.get());
    const ValueId dx = first.outputs[0];
    if (norm == nullptr || norm->passing() || add.op->name() != "add" ||
        std::count(add.inputs.begin(), add.inputs.end(), dx) != 1 ||
        readers_[static_cast<std::size_t>(dx)] != 1) {
      return false;
    }
    const ValueId passing = add.inputs[0] == dx ? add.inputs[1] : add.inputs[0];
    append(first, std::make_shared<ops::RmsNormBackward>(true),
           {first.inputs[0], first.inputs[1], first.inputs[2], first.inputs[3], passing},
           first.accumulate ? first.inputs.back() : kNoValue, {add.outputs[0], first.outputs[1]});
    return true;
  }

  // Appends a node in the place of `like`; its outputs stand for `outputs`. All ids are old ones.
  void append(const Node& like, std::shared_ptr<const ir::Op> op, std::vector<ValueId> inputs,
              ValueId accumulator, const std::vector<ValueId>& outputs) {
    for (ValueId& input : inputs) {
      input = copy_.of(input);
    }
    builder_.set_phase(like.phase);
    builder_.set_region(like.region);
    builder_.set_microbatch(like.microbatch);
    const std::vector<ValueId> values = builder_.add(
        std::move(op), std::move(inputs), accumulator == kNoValue ? kNoValue : copy_.of(accumulator));
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      copy_.stand_for(outputs[i], values[i]);
    }
  }

  const Graph& from_;
  Graph to_;
  ir::Builder builder_;
  GraphCopy copy_;
  std::vector<int> readers_;  // nodes and outputs
};

}  // namespace

Graph fuse(const Graph& graph) { return Fuser(graph).run(); }

}  // namespace wych::passes
