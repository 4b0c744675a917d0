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

  // Starts a program: takes the inputs from host(), runs all instructions behind what was started before and
  // leaves the outputs in host(). Until wait() returns, the program's inputs must not be written and its
  // outputs not be read. With a profiler, instructions are run one by one and the time of each is added
  // there.
  virtual void start(int program, Profiler* profiler = nullptr) = 0;
  // Waits for all that was started.
  virtual void wait() = 0;
  void run(int program, Profiler* profiler = nullptr) {
    start(program, profiler);
    wait();
  }
  // How often the host has waited for the device, for whatever reason.
  [[nodiscard]] virtual i64 num_waits() const { return 0; }
  // Memory of the device in use by anyone, as it reports it; 0 on the CPU.
  [[nodiscard]] virtual i64 device_bytes_in_use() const { return 0; }

  // Host memory of a program's input, to be written before start(), or of its output, valid from wait() until
  // the program starts again.
  virtual std::byte* host(const plan::Slot& slot) = 0;

  // Copy a persistent value out of and into the arenas; spans of exactly slot.type.bytes().
  virtual void read(const plan::Slot& slot, std::span<std::byte> to) = 0;
  virtual void write(const plan::Slot& slot, std::span<const std::byte> from) = 0;
};

}  // namespace wych::exec
