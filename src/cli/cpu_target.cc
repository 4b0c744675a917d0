// The rates are stated, not measured, so that a plan says the same on every machine; the memory is asked for.
#include "cli/cpu_target.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/file.h"

namespace wych::cli {
namespace {

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

}  // namespace wych::cli
