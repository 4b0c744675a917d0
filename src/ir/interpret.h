// Interpreter: runs a graph node by node with a buffer of its own for every value and no plan. It is slow
// and obvious: the oracle for the planner and the executor, and the engine of the op suite.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"

namespace wych::ir {

class Interpreter {
 public:
  // `graph` must outlive the interpreter. Every buffer starts as NaN (0xff bytes) and is followed by a guard
  // zone; so do workspaces. In-place ops work on a copy, so every value stays readable.
  Interpreter(const Graph& graph, ThreadPool& pool);

  // The bytes of a value that exists before the program runs, to be filled before run(); or of any value
  // afterwards.
  [[nodiscard]] std::byte* data(ValueId id);
  // As doubles, whatever the dtype.
  [[nodiscard]] std::vector<double> read(ValueId id);
  void write(ValueId id, const std::vector<double>& values);

  // Runs every node. CHECK-fails if a kernel writes outside its outputs and workspace.
  void run();

 private:
  void run_node(const Node& node);

  const Graph& graph_;
  ThreadPool& pool_;
  std::vector<std::vector<std::byte>> buffers_;  // one per value, with alignment slack and guard
};

// Element `index` of a buffer of `dtype` as double, and back (integers are rounded).
double load_element(const std::byte* data, DType dtype, i64 index);
void store_element(std::byte* data, DType dtype, i64 index, double value);

}  // namespace wych::ir
