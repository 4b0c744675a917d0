#include "cli/cuda_timing.h"

#include <algorithm>
#include <vector>

namespace wych::cli {

double median_seconds(device::CudaDevice& device, i64 repeats, const std::function<void()>& work) {
  constexpr i64 kWarmUp = 2;
  std::vector<double> seconds;
  device::CudaTimer timer;
  for (i64 repeat = 0; repeat < repeats + kWarmUp; ++repeat) {
    timer.start(device);
    work();
    timer.stop(device);
    if (repeat >= kWarmUp) {
      seconds.push_back(timer.seconds());
    }
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace wych::cli
