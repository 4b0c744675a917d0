#include "cli/cuda_timing.h"

#include <algorithm>
#include <vector>

namespace wych::cli {

double median_seconds(device::CudaDevice& device, i64 repeats, const std::function<void()>& work,
                      const std::function<void()>& before) {
  std::vector<double> seconds;
  device::CudaTimer timer;
  for (i64 repeat = 0; repeat < repeats + 2; ++repeat) {
    if (before) {
      before();
    }
    timer.start(device);
    work();
    timer.stop(device);
    if (repeat >= 2) {
      seconds.push_back(timer.seconds());
    } else {
      timer.seconds();
    }
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace wych::cli
