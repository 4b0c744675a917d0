// CpuExecutor: owns the arenas of a run and executes programs in them, instruction by instruction.
// Everything is resolved to pointers at load: running allocates nothing and looks nothing up.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "base/thread_pool.h"
#include "device/arena.h"
#include "exec/executor.h"

namespace wych::exec {

struct CpuOptions {
  // Fills every buffer with NaN before it is first written, and again when its last reader is done. A
  // program that reads outside live buffers then shows it.
  bool poison = false;
};

class CpuExecutor final : public Executor {
 public:
  // Allocates one arena per category, as large as the layout says: lower all programs first. Persistent
  // values start as zero. `pool` must outlive the executor. kMemory if the system refuses, naming the arena.
  static Expected<std::unique_ptr<CpuExecutor>> create(const plan::Layout& layout, ThreadPool& pool,
                                                       const CpuOptions& options = {});

  int load(const plan::Program& program) override;
  // Runs the program before it returns.
  void start(int program, Profiler* profiler = nullptr) override;
  void wait() override {}
  std::byte* host(const plan::Slot& slot) override { return address(slot); }
  void read(const plan::Slot& slot, std::span<std::byte> to) override;
  void write(const plan::Slot& slot, std::span<const std::byte> from) override;

  // Where a slot of this layout lies.
  [[nodiscard]] std::byte* address(const plan::Slot& slot);
  [[nodiscard]] ir::View view(const plan::Slot& slot) { return {address(slot), &slot.type}; }

 private:
  struct Operands {
    std::vector<ir::View> inputs;
    std::vector<ir::View> outputs;
    std::byte* workspace = nullptr;
  };
  struct LoadedProgram {
    const plan::Program* program = nullptr;
    std::vector<Operands> operands;  // by instruction
  };

  CpuExecutor(ThreadPool& pool, const CpuOptions& options) : pool_(&pool), options_(options) {}
  void fill_with_nan(const std::vector<plan::Slot>& slots);

  ThreadPool* pool_;
  CpuOptions options_;
  std::vector<device::Arena> arenas_;  // by category
  std::vector<LoadedProgram> loaded_;
};

}  // namespace wych::exec
