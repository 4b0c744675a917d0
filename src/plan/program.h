// Program: what an executor runs. Straight-line instructions whose operands are addresses in arenas; nothing
// is allocated, looked up or decided while it runs. Layout: the addresses that programs of one run share.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"

namespace wych::plan {

// Offsets and sizes are multiples of this.
inline constexpr i64 kAlignment = 256;

// A piece of one arena; arenas are named by category.
struct Slot {
  ir::Category arena = ir::Category::kScratch;
  i64 offset = 0;
  ir::TensorType type;
};

struct Instruction {
  std::shared_ptr<const ir::Op> op;
  std::vector<Slot> inputs;  // without the accumulator
  std::vector<Slot> outputs;
  bool accumulate = false;
  Slot workspace{ir::Category::kScratch, 0, {DType::kU8, {0}}};  // u8[bytes]
  std::vector<Slot> fresh;        // outputs whose former content is garbage: what poison mode fills before
  std::vector<Slot> released;     // transient buffers nobody reads after this: what poison mode fills behind
  ir::NodeId node = ir::kNoNode;  // in Program::graph
};

// A buffer the host writes before or reads after the program.
struct Binding {
  std::string name;
  Slot slot;
};

// Bytes by arena, with the lower bound where buffers share memory.
struct ArenaPlan {
  i64 bytes = 0;
  i64 lower_bound = 0;
};

// A buffer that is live at the step where scratch is fullest.
struct PeakBuffer {
  std::string what;  // "blocks.3 swiglu f32[4112,160]"
  i64 bytes = 0;
};

struct Program {
  std::string name;  // "train"
  ir::Graph graph;
  std::vector<Instruction> instructions;
  std::vector<Binding> inputs;
  std::vector<Binding> outputs;
  std::array<ArenaPlan, ir::kNumCategories> arenas;  // stash, scratch and io of this program alone
  i32 stash_slots = 0;                               // microbatches in flight
  std::vector<PeakBuffer> peak;                      // largest first, at most eight

  // The slot of an input or output; CHECK-fails if there is none.
  [[nodiscard]] const Slot& input(std::string_view input_name) const;
  [[nodiscard]] const Slot& output(std::string_view output_name) const;
};

// Where persistent values live, by path; all programs of a run share one layout. Programs lowered with it
// share stash, scratch and io as well: those arenas are as large as the largest program needs.
class Layout {
 public:
  // The slot of a persistent value; the first asking places it. CHECK-fails if the type differs from before.
  const Slot& place(const ir::Value& value);
  // The slot of a path, or nullptr.
  [[nodiscard]] const Slot* find(std::string_view path) const;
  // Every persistent value in order of paths.
  [[nodiscard]] const std::map<std::string, Slot, std::less<>>& slots() const { return slots_; }

  // Makes room for a program's own arenas. Io is not shared: each program gets its own part.
  void reserve(const Program& program);
  [[nodiscard]] i64 bytes(ir::Category arena) const { return bytes_[static_cast<std::size_t>(arena)]; }
  // What the device will hold beside the arenas (base/cuda_target.h); nobody allocates it.
  void add_overhead(i64 bytes) { overhead_bytes_ += bytes; }
  [[nodiscard]] i64 overhead_bytes() const { return overhead_bytes_; }
  // Arenas and overhead.
  [[nodiscard]] i64 total_bytes() const;

 private:
  std::map<std::string, Slot, std::less<>> slots_;
  std::array<i64, ir::kNumCategories> bytes_{};
  i64 overhead_bytes_ = 0;
};

// One line per instruction: node text, then arena offsets.
std::string program_text(const Program& program);

}  // namespace wych::plan
