#include "exec/cpu_executor.h"

#include <chrono>
#include <cstring>

namespace wych::exec {

Expected<CpuExecutor> CpuExecutor::create(const plan::Layout& layout, ThreadPool& pool,
                                          const CpuOptions& options) {
  CpuExecutor executor(pool, options);
  for (int arena = 0; arena < ir::kNumCategories; ++arena) {
    const auto category = static_cast<ir::Category>(arena);
    WYCH_TRY(device::Arena memory,
             device::Arena::create(std::string(ir::category_name(category)), layout.bytes(category)));
    executor.arenas_.push_back(std::move(memory));
  }
  return executor;
}

std::byte* CpuExecutor::address(const plan::Slot& slot) {
  device::Arena& arena = arenas_[static_cast<std::size_t>(slot.arena)];
  WYCH_DCHECK(slot.offset + slot.type.bytes() <= arena.bytes(), "slot {} at {} is outside arena {}",
              slot.type.text(), slot.offset, arena.name());
  return arena.data() + slot.offset;
}

LoadedProgram CpuExecutor::load(const plan::Program& program) {
  LoadedProgram loaded;
  loaded.program_ = &program;
  for (const plan::Instruction& instruction : program.instructions) {
    LoadedProgram::Operands operands;
    for (const plan::Slot& slot : instruction.inputs) {
      operands.inputs.push_back(view(slot));
    }
    for (const plan::Slot& slot : instruction.outputs) {
      operands.outputs.push_back(view(slot));
    }
    operands.workspace = address(instruction.workspace);
    loaded.operands_.push_back(std::move(operands));
  }
  return loaded;
}

void CpuExecutor::fill_with_nan(const std::vector<plan::Slot>& slots) {
  for (const plan::Slot& slot : slots) {
    std::memset(address(slot), 0xff, static_cast<std::size_t>(slot.type.bytes()));
  }
}

void CpuExecutor::run(const LoadedProgram& loaded, Profiler* profiler) {
  using Clock = std::chrono::steady_clock;
  const plan::Program& program = *loaded.program_;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const plan::Instruction& instruction = program.instructions[i];
    const LoadedProgram::Operands& operands = loaded.operands_[i];
    if (options_.poison) {
      fill_with_nan(instruction.fresh);
      if (instruction.workspace.type.bytes() > 0) {
        std::memset(operands.workspace, 0xff, static_cast<std::size_t>(instruction.workspace.type.bytes()));
      }
    }
    const Clock::time_point start = profiler == nullptr ? Clock::time_point{} : Clock::now();
    instruction.op->run_cpu({.inputs = operands.inputs,
                             .outputs = operands.outputs,
                             .accumulate = instruction.accumulate,
                             .workspace = operands.workspace,
                             .pool = pool_});
    if (profiler != nullptr) {
      profiler->add(program, i, std::chrono::duration<double>(Clock::now() - start).count());
    }
    if (options_.poison) {
      fill_with_nan(instruction.released);
    }
  }
}

}  // namespace wych::exec
