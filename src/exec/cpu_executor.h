// CpuExecutor: owns the arenas of a run and executes programs in them, instruction by instruction.
// Everything is resolved to pointers at load: running allocates nothing and looks nothing up.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "base/thread_pool.h"
#include "device/arena.h"
#include "exec/profiler.h"
#include "plan/program.h"

namespace wych::exec {

struct CpuOptions {
  // Fills every buffer with NaN before it is first written, and again when its last reader is done. A
  // program that reads outside live buffers then shows it.
  bool poison = false;
};

// A program with its operands resolved. Valid as long as its executor and its Program.
class LoadedProgram {
 public:
  [[nodiscard]] const plan::Program& program() const { return *program_; }

 private:
  friend class CpuExecutor;
  struct Operands {
    std::vector<ir::View> inputs;
    std::vector<ir::View> outputs;
    std::byte* workspace = nullptr;
  };
  const plan::Program* program_ = nullptr;
  std::vector<Operands> operands_;
};

class CpuExecutor {
 public:
  // Allocates one arena per category, as large as the layout says: lower all programs first. Persistent
  // values start as zero. `pool` must outlive the executor. kMemory if the system refuses, naming the arena.
  static Expected<CpuExecutor> create(const plan::Layout& layout, ThreadPool& pool,
                                      const CpuOptions& options = {});

  // `program` must have been lowered with this executor's layout and must outlive the result.
  [[nodiscard]] LoadedProgram load(const plan::Program& program);

  // Runs all instructions on the pool. With a profiler, the time of each is added there.
  void run(const LoadedProgram& loaded, Profiler* profiler = nullptr);

  // Where a slot of this layout lies.
  [[nodiscard]] std::byte* address(const plan::Slot& slot);
  [[nodiscard]] ir::View view(const plan::Slot& slot) { return {address(slot), &slot.type}; }

 private:
  CpuExecutor(ThreadPool& pool, const CpuOptions& options) : pool_(&pool), options_(options) {}
  void fill_with_nan(const std::vector<plan::Slot>& slots);

  ThreadPool* pool_;
  CpuOptions options_;
  std::vector<device::Arena> arenas_;  // by category
};

}  // namespace wych::exec
