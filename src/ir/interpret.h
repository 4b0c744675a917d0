// Interpreter: runs a graph node by node with a buffer of its own for every value and no plan. It is slow
// and obvious: the oracle for the planner and the executor, and the engine of the op suite.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"

namespace wych::ir {

struct InterpreterOptions {
  // What fresh buffers, workspaces and guard zones are filled with; 0xff is NaN in every float type.
  std::byte poison{0xff};
  // If >= 0, every node with that many aliases runs aliases()[may_alias] in place where it is a kMay.
  int may_alias = -1;
};

class Interpreter {
 public:
  // `graph` must outlive the interpreter. Every buffer and workspace starts poisoned and is followed by a
  // guard zone (unreadable under AddressSanitizer). In-place ops work on a copy, so every value stays
  // readable.
  Interpreter(const Graph& graph, ThreadPool& pool, InterpreterOptions options = {});

  // The bytes of a value that exists before the program runs, to be filled before run(); or of any value
  // afterwards.
  [[nodiscard]] std::byte* data(ValueId id);
  // As doubles, whatever the dtype.
  [[nodiscard]] std::vector<double> read(ValueId id);
  void write(ValueId id, const std::vector<double>& values);

  // Runs every node. CHECK-fails if a kernel writes behind an input, an output or its workspace.
  void run();

 private:
  // Bytes at a 64-byte boundary with a guard zone behind them.
  class Buffer {
   public:
    Buffer(i64 bytes, std::byte poison);
    Buffer(Buffer&&) = default;
    Buffer& operator=(Buffer&&) = default;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() = default;
    [[nodiscard]] std::byte* data();
    [[nodiscard]] bool guard_intact();

   private:
    std::vector<std::byte> storage_;
    i64 bytes_;
    std::byte poison_;
  };

  [[nodiscard]] Buffer& buffer(ValueId id) { return buffers_[static_cast<std::size_t>(id)]; }
  void run_node(const Node& node);

  const Graph& graph_;
  ThreadPool& pool_;
  InterpreterOptions options_;
  std::vector<Buffer> buffers_;  // one per value
};

// Element `index` of a buffer of `dtype` as double, and back (integers are rounded).
double load_element(const std::byte* data, DType dtype, i64 index);
void store_element(std::byte* data, DType dtype, i64 index, double value);

}  // namespace wych::ir
