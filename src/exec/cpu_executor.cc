#include "exec/cpu_executor.h"

#include <chrono>
#include <cstring>

#include "base/check.h"

namespace wych::exec {

Expected<std::unique_ptr<CpuExecutor>> CpuExecutor::create(const plan::Layout& layout, ThreadPool& pool,
                                                           const CpuOptions& options) {
  std::unique_ptr<CpuExecutor> executor(new CpuExecutor(pool, options));
  for (int arena = 0; arena < ir::kNumCategories; ++arena) {
    const auto category = static_cast<ir::Category>(arena);
    WYCH_TRY(device::Arena memory,
             device::Arena::create(std::string(ir::category_name(category)), layout.bytes(category)));
    executor->arenas_.push_back(std::move(memory));
  }
  return executor;
}

std::byte* CpuExecutor::address(const plan::Slot& slot) {
  device::Arena& arena = arenas_[static_cast<std::size_t>(slot.arena)];
  WYCH_DCHECK(slot.offset + slot.type.bytes() <= arena.bytes(), "slot {} at {} is outside arena {}",
              slot.type.text(), slot.offset, arena.name());
  return arena.data() + slot.offset;
}

void CpuExecutor::read(const plan::Slot& slot, std::span<std::byte> to) {
  WYCH_CHECK(static_cast<i64>(to.size()) == slot.type.bytes(), "{} bytes for {}", to.size(),
             slot.type.text());
  std::memcpy(to.data(), address(slot), to.size());
}

void CpuExecutor::write(const plan::Slot& slot, std::span<const std::byte> from) {
  WYCH_CHECK(static_cast<i64>(from.size()) == slot.type.bytes(), "{} bytes for {}", from.size(),
             slot.type.text());
  std::memcpy(address(slot), from.data(), from.size());
}

int CpuExecutor::load(const plan::Program& program) {
  LoadedProgram loaded;
  loaded.program = &program;
  for (const plan::Instruction& instruction : program.instructions) {
    Operands operands;
    for (const plan::Slot& slot : instruction.inputs) {
      operands.inputs.push_back(view(slot));
    }
    for (const plan::Slot& slot : instruction.outputs) {
      operands.outputs.push_back(view(slot));
    }
    operands.workspace = address(instruction.workspace);
    loaded.operands.push_back(std::move(operands));
  }
  loaded_.push_back(std::move(loaded));
  return static_cast<int>(loaded_.size()) - 1;
}

void CpuExecutor::fill_with_nan(const std::vector<plan::Slot>& slots) {
  for (const plan::Slot& slot : slots) {
    std::memset(address(slot), 0xff, static_cast<std::size_t>(slot.type.bytes()));
  }
}

void CpuExecutor::start(int program_number, Profiler* profiler) {
  using Clock = std::chrono::steady_clock;
  const LoadedProgram& loaded = loaded_[static_cast<std::size_t>(program_number)];
  const plan::Program& program = *loaded.program;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const plan::Instruction& instruction = program.instructions[i];
    const Operands& operands = loaded.operands[i];
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
