#include <fmt/format.h>

#include <utility>

#include "device/cuda.h"
#include "device/cuda_attention.h"
#include "device/cuda_check.h"
#include "device/cuda_matmul.h"

namespace wych::device {
namespace {

constexpr int kOldestArchitecture = 80;

Error device_error(ErrorKind kind, std::string where, std::string what, std::string hint) {
  return {
      .kind = kind, .where = std::move(where), .what = std::move(what), .hint = std::move(hint), .more = {}};
}

}  // namespace

int num_cuda_devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

Expected<std::unique_ptr<CudaDevice>> CudaDevice::open(int index) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || index >= count) {
    return device_error(
        ErrorKind::kUsage, fmt::format("CUDA device {}", index),
        status == cudaSuccess ? fmt::format("there are {}", count) : cudaGetErrorString(status),
        "`nvidia-smi` shows the devices and the driver; --run.device=cpu needs neither");
  }
  cudaDeviceProp properties;
  WYCH_CUDA_CALL(cudaGetDeviceProperties(&properties, index));
  std::unique_ptr<CudaDevice> device(new CudaDevice());
  device->name_ = properties.name;
  device->target_ = {.architecture = 10 * properties.major + properties.minor,
                     .num_sms = properties.multiProcessorCount};
  device->memory_bytes_ = static_cast<i64>(properties.totalGlobalMem);
  if (device->target_.architecture < kOldestArchitecture) {
    return device_error(ErrorKind::kUsage, device->name_,
                        fmt::format("compute capability {}.{}", properties.major, properties.minor),
                        "wych needs 8.0 or later; use --run.device=cpu");
  }
  WYCH_CUDA_CALL(cudaSetDevice(index));
  cudaStream_t stream = nullptr;
  WYCH_CUDA_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  device->stream_ = stream;
  return device;
}

CudaDevice::CudaDevice() = default;

CudaDevice::~CudaDevice() {
  attention_.reset();  // cuDNN knows the stream
  if (stream_ != nullptr) {
    cudaStreamDestroy(stream_);
  }
}

Matmul& CudaDevice::matmul() {
  if (!matmul_) {
    matmul_ = std::make_unique<Matmul>();
  }
  return *matmul_;
}

CudaAttention& CudaDevice::attention() {
  if (!attention_) {
    attention_ = std::make_unique<CudaAttention>();
  }
  return *attention_;
}

i64 CudaDevice::free_bytes() const {
  std::size_t free = 0;
  std::size_t total = 0;
  WYCH_CUDA_CALL(cudaMemGetInfo(&free, &total));
  return static_cast<i64>(free);
}

void CudaDevice::copy_to_device(std::byte* to, const std::byte* from, i64 bytes) {
  WYCH_CUDA_CALL(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, stream_));
}

void CudaDevice::copy_to_host(std::byte* to, const std::byte* from, i64 bytes) {
  WYCH_CUDA_CALL(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, stream_));
}

void CudaDevice::fill(std::byte* to, u8 value, i64 bytes) {
  WYCH_CUDA_CALL(cudaMemsetAsync(to, value, static_cast<std::size_t>(bytes), stream_));
}

void CudaDevice::synchronize() {
  ++num_synchronizations_;
  WYCH_CUDA_CALL(cudaStreamSynchronize(stream_));
}

Expected<CudaArena> CudaArena::create(CudaDevice& device, std::string name, i64 bytes) {
  CudaArena arena;
  arena.name_ = std::move(name);
  if (bytes == 0) {
    return arena;
  }
  void* data = nullptr;
  if (cudaMalloc(&data, static_cast<std::size_t>(bytes)) != cudaSuccess) {
    cudaGetLastError();  // the failure is not sticky
    return device_error(
        ErrorKind::kMemory, fmt::format("arena {}", arena.name_),
        fmt::format("{} bytes of {}: only {} are free", bytes, device.name(), device.free_bytes()),
        "`wych plan` shows what a run needs; fewer --data.microbatch_sequences or "
        "--memory.recompute=block need less");
  }
  arena.data_ = static_cast<std::byte*>(data);
  arena.bytes_ = bytes;
  device.fill(arena.data_, 0, bytes);
  return arena;
}

CudaArena::CudaArena(CudaArena&& other) noexcept
    : name_(std::move(other.name_)),
      bytes_(std::exchange(other.bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}

CudaArena& CudaArena::operator=(CudaArena&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(bytes_, other.bytes_);
  std::swap(data_, other.data_);
  return *this;
}

CudaArena::~CudaArena() { cudaFree(data_); }

Expected<PinnedMemory> PinnedMemory::create(i64 bytes) {
  PinnedMemory memory;
  if (bytes == 0) {
    return memory;
  }
  void* data = nullptr;
  if (cudaMallocHost(&data, static_cast<std::size_t>(bytes)) != cudaSuccess) {
    cudaGetLastError();
    return device_error(ErrorKind::kMemory, "pinned host memory", fmt::format("{} bytes refused", bytes),
                        "raise the limit of locked memory (ulimit -l)");
  }
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  std::fill_n(memory.data_, bytes, std::byte{0});
  return memory;
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : bytes_(std::exchange(other.bytes_, 0)), data_(std::exchange(other.data_, nullptr)) {}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(data_, other.data_);
  return *this;
}

PinnedMemory::~PinnedMemory() { cudaFreeHost(data_); }

}  // namespace wych::device
