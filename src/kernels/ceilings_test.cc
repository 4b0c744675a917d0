#include "kernels/ceilings.h"

#include <gtest/gtest.h>

namespace wych::kernels {
namespace {

// Loose on purpose: what a machine reaches is its own affair, but a loop that the compiler folded away, or a
// unit that is off by a thousand, is far outside.
TEST(Ceilings, AreRatesOfARealProcessor) {
  ThreadPool pool(1);
  const Ceilings ceilings = measure_ceilings(pool);
  EXPECT_GT(ceilings.flops_per_second, 1e9);
  EXPECT_LT(ceilings.flops_per_second, 1e12);
  EXPECT_GT(ceilings.bytes_per_second, 1e8);
  EXPECT_LT(ceilings.bytes_per_second, 1e12);
}

}  // namespace
}  // namespace wych::kernels
