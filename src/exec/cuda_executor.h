// CudaExecutor: a run's arenas in device memory and its programs as captured graphs: one launch each,
// whatever the number of instructions. Exists in builds with WYCH_CUDA.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "device/cuda.h"
#include "exec/executor.h"

namespace wych::exec {

struct CudaOptions {
  bool poison = false;  // as CpuOptions::poison
  // Runs programs instruction by instruction, waits behind each and looks for values that are not finite in
  // what it wrote: the first such node is printed.
  bool eager = false;
  bool cudnn = true;  // false: kernels of our own alone
};

class CudaExecutor final : public Executor {
 public:
  // Allocates one arena per category and pinned host memory for inputs and outputs. Persistent values start
  // as zero. kMemory if the device refuses, naming the arena.
  static Expected<std::unique_ptr<CudaExecutor>> create(const plan::Layout& layout,
                                                        std::unique_ptr<device::CudaDevice> device,
                                                        const CudaOptions& options = {});

  // Prepares its ops and captures the program. What people should know of it goes to standard error, once.
  int load(const plan::Program& program) override;
  // One launch, of the captured graph. With a profiler: instruction by instruction, each timed on the device.
  void start(int program, Profiler* profiler = nullptr) override;
  void wait() override { device_->synchronize(); }
  [[nodiscard]] i64 num_waits() const override { return device_->num_synchronizations(); }
  [[nodiscard]] i64 device_bytes_in_use() const override {
    return device_->memory_bytes() - device_->free_bytes();
  }
  std::byte* host(const plan::Slot& slot) override;
  void read(const plan::Slot& slot, std::span<std::byte> to) override;
  void write(const plan::Slot& slot, std::span<const std::byte> from) override;

  [[nodiscard]] const device::CudaDevice& device() const { return *device_; }

 private:
  struct Operands {
    std::vector<ir::View> inputs;
    std::vector<ir::View> outputs;
    std::byte* workspace = nullptr;
  };
  // A piece of device memory and its twin on the host.
  struct Twin {
    std::byte* device = nullptr;
    std::byte* host = nullptr;
    i64 bytes = 0;
  };
  struct LoadedProgram {
    const plan::Program* program = nullptr;
    std::vector<Operands> operands;  // by instruction
    std::vector<Twin> inputs;
    std::vector<Twin> outputs;
    device::CudaGraph graph;
  };

  CudaExecutor(std::unique_ptr<device::CudaDevice> device, const CudaOptions& options)
      : device_(std::move(device)), options_(options) {}
  [[nodiscard]] std::byte* address(const plan::Slot& slot) const;
  void place_twins(const std::vector<plan::Binding>& bindings, std::vector<Twin>& twins);
  void queue_inputs(const LoadedProgram& loaded);
  ir::CudaContext context(const LoadedProgram& loaded, std::size_t instruction);
  void prepare(const LoadedProgram& loaded);
  void queue(const LoadedProgram& loaded, std::size_t instruction);
  void queue_outputs(const LoadedProgram& loaded);
  void queue_all(const LoadedProgram& loaded);
  void run_each(const LoadedProgram& loaded, Profiler* profiler);
  void check_finite(const LoadedProgram& loaded, std::size_t instruction);
  void fill_with_nan(const std::vector<plan::Slot>& slots);

  std::unique_ptr<device::CudaDevice> device_;
  CudaOptions options_;
  std::vector<device::CudaArena> arenas_;  // by category
  device::PinnedMemory io_;                // the io arena as the host sees it
  // Outputs that are persistent values: their twins, by address on the device.
  std::map<std::byte*, device::PinnedMemory> outside_io_;
  std::vector<LoadedProgram> loaded_;  // graphs go before the arenas
};

}  // namespace wych::exec
