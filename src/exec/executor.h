// Executor: owns the arenas of a run and executes programs in them. CpuExecutor and CudaExecutor implement
// it; what runs, where and in which order was decided by the plan.
#pragma once

#include <cstddef>
#include <span>

#include "exec/profiler.h"
#include "plan/program.h"

namespace wych::exec {

class Executor {
 public:
  Executor() = default;
  virtual ~Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Prepares a program, which must have been lowered with this executor's layout and must outlive it.
  // Returns its number for run().
  virtual int load(const plan::Program& program) = 0;

  // Takes the inputs from host(), runs all instructions and leaves the outputs in host(). With a profiler,
  // the time of each instruction is added there.
  virtual void run(int program, Profiler* profiler = nullptr) = 0;

  // Host memory of a program's input, to be written before run(), or of its output, valid until the program
  // runs again.
  virtual std::byte* host(const plan::Slot& slot) = 0;

  // Copy a persistent value out of and into the arenas; spans of exactly slot.type.bytes().
  virtual void read(const plan::Slot& slot, std::span<std::byte> to) = 0;
  virtual void write(const plan::Slot& slot, std::span<const std::byte> from) = 0;
};

}  // namespace wych::exec
