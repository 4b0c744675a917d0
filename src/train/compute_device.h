// Where the programs of a run execute: this machine's processor or one CUDA device. Decides what
// run.device = "auto" means and makes the executor.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/cuda_target.h"
#include "base/expected.h"
#include "base/thread_pool.h"
#include "config/config.h"
#include "exec/executor.h"

namespace wych::train {

// `configured` with "auto" decided: a CUDA device if this build can use one and there is one.
config::Device resolve_device(config::Device configured);

// The table that programs are planned with where no device is at hand; nullopt for the CPU.
std::optional<CudaTarget> planned_target(config::Device device);

class ComputeDevice {
 public:
  // kUsage if the configuration asks for CUDA and there is none, or this build has none.
  static Expected<ComputeDevice> open(const config::Config& config);
  ComputeDevice(ComputeDevice&&) noexcept;
  ComputeDevice& operator=(ComputeDevice&&) noexcept;
  ~ComputeDevice();

  // What to plan for; nullopt: the CPU.
  [[nodiscard]] std::optional<CudaTarget> target() const;
  // "CPU, 2 threads", "NVIDIA H200".
  [[nodiscard]] std::string name(const ThreadPool& pool) const;

  // Memory for the layout's arenas. Once per ComputeDevice; `pool` must outlive the executor. kMemory, naming
  // the arena, if there is not that much.
  Expected<std::unique_ptr<exec::Executor>> create_executor(const config::Config& config,
                                                            const plan::Layout& layout, ThreadPool& pool);

 private:
  struct Cuda;  // the open device; null: the CPU
  explicit ComputeDevice(std::unique_ptr<Cuda> cuda);
  std::unique_ptr<Cuda> cuda_;
};

}  // namespace wych::train
