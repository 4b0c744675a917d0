// The static graph: values in SSA form and nodes in the order in which they run. Plain data. A graph is
// appended to by one Builder and never changed afterwards: a pass returns a new graph. verify.h holds the
// rules that every graph keeps, print.h its text form.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/type.h"

namespace wych::ir {

class Op;

using ValueId = i32;  // index into Graph::values
using NodeId = i32;   // index into Graph::nodes
inline constexpr ValueId kNoValue = -1;
inline constexpr NodeId kNoNode = -1;

// transient: lives between its producer and its last reader.
// persistent: has a slot that outlives the program and is shared by path between programs.
// input: an io slot that the host fills before the program runs.
enum class Lifetime : u8 { kTransient, kPersistent, kInput };

// What the bytes are for; the rows of the memory table.
enum class Category : u8 { kWeights, kState, kGradients, kStash, kScratch, kSymmetric, kIo };
inline constexpr int kNumCategories = 7;
std::string_view category_name(Category category);

enum class Phase : u8 { kForward, kRecompute, kBackward, kUpdate };
std::string_view phase_name(Phase phase);

struct Value {
  TensorType type;
  std::string path;  // "blocks.3.moe.w13"; unique among persistent values and inputs
  Lifetime lifetime = Lifetime::kTransient;
  Category category = Category::kScratch;
  i32 region = 0;             // index into Graph::regions
  NodeId producer = kNoNode;  // kNoNode: exists before the program runs
  i32 producer_output = 0;
};

// One op applied to values. If `accumulate`, the last input is an accumulator of the type of output
// op->accumulates(): the kernel adds into its buffer, and the output is that buffer.
struct Node {
  std::shared_ptr<const Op> op;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  bool accumulate = false;
  Phase phase = Phase::kForward;
  i32 region = 0;
  i32 microbatch = -1;  // -1: once per step
};

// A scalar f64[1] that is minimised with this weight. Losses are never summed except for metrics.
struct Loss {
  std::string name;
  ValueId value = kNoValue;
  double weight = 1.0;
};

// A value that the host may read after the program ran.
struct Output {
  std::string name;
  ValueId value = kNoValue;
};

// The gradient of a persistent value, filled by autodiff.
struct Gradient {
  ValueId parameter = kNoValue;
  ValueId gradient = kNoValue;
};

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<std::string> regions = {""};  // "blocks.3"; region 0 is outside all blocks
  std::vector<Loss> losses;
  std::vector<Output> outputs;
  std::vector<Gradient> gradients;

  [[nodiscard]] const Value& value(ValueId id) const { return values[static_cast<std::size_t>(id)]; }
  [[nodiscard]] const Node& node(NodeId id) const { return nodes[static_cast<std::size_t>(id)]; }
  [[nodiscard]] const TensorType& type(ValueId id) const { return value(id).type; }
  // The input or persistent value of that path that exists before the program runs, or kNoValue.
  [[nodiscard]] ValueId find(std::string_view path) const;
  // The value of the output of that name, or kNoValue.
  [[nodiscard]] ValueId find_output(std::string_view name) const;
};

}  // namespace wych::ir
