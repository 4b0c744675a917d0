// Buffers: which values share memory. Views, in-place updates and accumulation must; an op that allows it
// (AliasKind::kMay) writes over an input that dies there.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace wych::plan {

// One piece of memory and the values it holds, one after the other.
struct Buffer {
  std::vector<ir::ValueId> values;
  i64 bytes = 0;
  ir::NodeId first = 0;                   // node that writes it first; -1: filled before the program
  ir::NodeId last = 0;                    // last node that touches it; num_nodes if the host reads it
  ir::ValueId persistent = ir::kNoValue;  // a persistent value in it
  bool io = false;                        // written by the host before, or read by it after, the program
};

class Buffers {
 public:
  explicit Buffers(const ir::Graph& graph);
  [[nodiscard]] const std::vector<Buffer>& all() const { return buffers_; }
  // Index of the buffer that holds a value.
  [[nodiscard]] std::size_t of(ir::ValueId id) const { return of_[static_cast<std::size_t>(id)]; }

 private:
  void find_last_uses();
  void join_required();
  void join_optional();
  void join(ir::ValueId child, ir::ValueId parent);
  ir::ValueId root(ir::ValueId id);

  const ir::Graph& graph_;
  std::vector<ir::ValueId> parent_;
  std::vector<ir::NodeId> last_;  // by root
  std::vector<char> fixed_;       // by root: persistent or io
  std::vector<Buffer> buffers_;
  std::vector<std::size_t> of_;
};

}  // namespace wych::plan
