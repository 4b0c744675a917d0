// For tests that bound time: processor seconds of this process, which other processes do not change.
#pragma once

#include <ctime>

namespace wych::data {

class CpuSeconds {
 public:
  // Since this was made.
  double operator()() const { return static_cast<double>(std::clock() - start_) / CLOCKS_PER_SEC; }

 private:
  std::clock_t start_ = std::clock();
};

}  // namespace wych::data
