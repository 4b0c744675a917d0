#include "train/compute_device.h"

#include <fmt/format.h>

#include "exec/cpu_executor.h"
#if WYCH_CUDA
#include "exec/cuda_executor.h"
#endif

namespace wych::train {

#if WYCH_CUDA
struct ComputeDevice::Cuda {
  std::unique_ptr<device::CudaDevice> device;
  std::string name;
  CudaTarget target;
};
#else
struct ComputeDevice::Cuda {
  std::string name;
  CudaTarget target;
};
#endif

config::Device resolve_device(config::Device configured) {
  if (configured != config::Device::kAuto) {
    return configured;
  }
#if WYCH_CUDA
  return device::num_cuda_devices() > 0 ? config::Device::kCuda : config::Device::kCpu;
#else
  return config::Device::kCpu;
#endif
}

std::optional<CudaTarget> planned_target(config::Device device) {
  return device == config::Device::kCuda ? std::optional<CudaTarget>(CudaTarget{}) : std::nullopt;
}

ComputeDevice::ComputeDevice(std::unique_ptr<Cuda> cuda) : cuda_(std::move(cuda)) {}
ComputeDevice::ComputeDevice(ComputeDevice&&) noexcept = default;
ComputeDevice& ComputeDevice::operator=(ComputeDevice&&) noexcept = default;
ComputeDevice::~ComputeDevice() = default;

Expected<ComputeDevice> ComputeDevice::open(const config::Config& config) {
  if (resolve_device(config.run.device) != config::Device::kCuda) {
    return ComputeDevice(nullptr);
  }
#if WYCH_CUDA
  auto cuda = std::make_unique<Cuda>();
  WYCH_TRY(cuda->device, device::CudaDevice::open());
  cuda->name = cuda->device->name();
  cuda->target = cuda->device->target();
  return ComputeDevice(std::move(cuda));
#else
  return Error{.kind = ErrorKind::kUsage,
               .where = "run.device",
               .what = "is \"cuda\", but this build has no CUDA",
               .hint = "use --run.device=cpu, or build with ./x build --cuda",
               .more = {}};
#endif
}

std::optional<CudaTarget> ComputeDevice::target() const {
  return cuda_ ? std::optional<CudaTarget>(cuda_->target) : std::nullopt;
}

std::string ComputeDevice::name(const ThreadPool& pool) const {
  return cuda_ ? cuda_->name
               : fmt::format("CPU, {} thread{}", pool.num_threads(), pool.num_threads() == 1 ? "" : "s");
}

Expected<std::unique_ptr<exec::Executor>> ComputeDevice::create_executor(const config::Config& config,
                                                                         const plan::Layout& layout,
                                                                         ThreadPool& pool) {
#if WYCH_CUDA
  if (cuda_) {
    WYCH_TRY(std::unique_ptr<exec::CudaExecutor> executor,
             exec::CudaExecutor::create(
                 layout, std::move(cuda_->device),
                 {.poison = config.memory.poison, .eager = config.run.eager, .cudnn = config.run.cudnn}));
    return std::unique_ptr<exec::Executor>(std::move(executor));
  }
#endif
  WYCH_TRY(std::unique_ptr<exec::CpuExecutor> executor,
           exec::CpuExecutor::create(layout, pool, {.poison = config.memory.poison}));
  return std::unique_ptr<exec::Executor>(std::move(executor));
}

}  // namespace wych::train
