// The rates of a plan are stated, not measured, so that it says the same on every machine; the memory is
// asked for.
#include "cli/target.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/file.h"
#include "kernels/ceilings.h"
#if WYCH_CUDA
#include "kernels/cuda_ceilings.h"
#endif

namespace wych::cli {
namespace {

// The largest products by cuBLASLt in bfloat16, or our own in float32; a copy; what cudaMemGetInfo calls
// total.
constexpr double kCudaFlopsBf16 = 790e12;
constexpr double kCudaFlopsF32 = 40e12;
constexpr double kCudaBytesPerSecond = 4.2e12;
constexpr i64 kCudaMemoryBytes = i64{143'771} << 20U;

// float32 GEMM of one core, and the memory bandwidth that two cores saturate.
constexpr double kFlopsPerCore = 150e9;
constexpr double kBytesPerSecond = 20e9;

i64 memory_bytes() {
  i64 bytes = static_cast<i64>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const Expected<std::string> limit = read_file("/sys/fs/cgroup/memory.max", ErrorKind::kInternal);
  if (i64 value = 0;
      limit && std::from_chars(limit->data(), limit->data() + limit->size(), value).ec == std::errc()) {
    bytes = std::min(bytes, value);  // "max" is no number: no limit
  }
  return bytes;
}

}  // namespace

plan::Target cpu_target(int cores) {
  return {.name = fmt::format("{} CPU core{} of {:.0f} GFLOP/s with {:.0f} GB/s", cores,
                              cores == 1 ? "" : "s", 1e-9 * kFlopsPerCore, 1e-9 * kBytesPerSecond),
          .flops_per_second = kFlopsPerCore * cores,
          .bytes_per_second = kBytesPerSecond,
          .memory_bytes = memory_bytes()};
}

plan::Target cuda_target(DType compute) {
  const double flops = compute == DType::kBF16 ? kCudaFlopsBf16 : kCudaFlopsF32;
  return {.name = fmt::format("one NVIDIA H200 of {:.0f} TFLOP/s in {} with {:.1f} TB/s", 1e-12 * flops,
                              dtype_name(compute), 1e-12 * kCudaBytesPerSecond),
          .flops_per_second = flops,
          .bytes_per_second = kCudaBytesPerSecond,
          .memory_bytes = kCudaMemoryBytes};
}

Expected<plan::Target> measured_target(config::Device device, DType compute, ThreadPool& pool) {
  const auto target = [&](std::string what, const kernels::Ceilings& ceilings, i64 bytes) {
    return plan::Target{.name = fmt::format("{} reaching {:.0f} GFLOP/s in {} and {:.1f} GB/s here", what,
                                            1e-9 * ceilings.flops_per_second, dtype_name(compute),
                                            1e-9 * ceilings.bytes_per_second),
                        .flops_per_second = ceilings.flops_per_second,
                        .bytes_per_second = ceilings.bytes_per_second,
                        .memory_bytes = bytes};
  };
#if WYCH_CUDA
  if (device == config::Device::kCuda) {
    WYCH_TRY(const std::unique_ptr<device::CudaDevice> cuda, device::CudaDevice::open());
    WYCH_TRY(const kernels::Ceilings ceilings, kernels::measure_cuda_ceilings(*cuda, compute));
    return target(cuda->name(), ceilings, cuda->memory_bytes());
  }
#endif
  WYCH_CHECK(device == config::Device::kCpu, "a device that this build has not");
  return target(fmt::format("{} thread{}", pool.num_threads(), pool.num_threads() == 1 ? "" : "s"),
                kernels::measure_ceilings(pool), memory_bytes());
}

}  // namespace wych::cli
