// A step allocates nothing outside its arenas: not in the executor, not in a kernel, not in the pool.
#include <gtest/gtest.h>

#include "allocation_trap.h"
#include "config/load.h"
#include "exec/cpu_executor.h"
#include "train/programs.h"

namespace wych::train {
namespace {

TEST(Allocation, ProgramsOfTheLaptopModelAllocateNothing) {
  for (const char* compute : {"f32", "f64"}) {
    const std::vector<std::string> overrides = {"--data.batch_sequences=2", "--data.microbatch_sequences=1",
                                                "--memory.recompute=block",
                                                std::string("--precision.compute=") + compute};
    const Expected<config::Loaded> loaded =
        config::load("preset:laptop", overrides, {.purpose = config::Purpose::kPlan});
    ASSERT_TRUE(loaded.has_value()) << loaded.error().text();
    const Expected<Programs> programs = build_programs(
        loaded->config,
        {.training = true, .evaluation_sequences = 1, .prefill_tokens = 16, .cache_length = 32});
    ASSERT_TRUE(programs.has_value()) << programs.error().text();
    ThreadPool pool(2);
    Expected<std::unique_ptr<exec::CpuExecutor>> created = exec::CpuExecutor::create(programs->layout, pool);
    ASSERT_TRUE(created.has_value());
    exec::CpuExecutor* executor = created->get();
    for (const auto* program : {&programs->initialise, &programs->train, &programs->update,
                                &programs->evaluate, &programs->prefill, &programs->decode}) {
      const int prepared = executor->load(**program);
      executor->run(prepared);  // a library may set itself up on its first call
      const tests::AllocationTrap trap;
      executor->run(prepared);
      EXPECT_EQ(trap.count(), 0) << (*program)->name << ", first of " << trap.first_bytes() << " bytes";
    }
  }
}

TEST(Allocation, TheTrapSeesAnAllocation) {
  const tests::AllocationTrap trap;
  const auto number = std::make_unique<i64>(3);
  EXPECT_EQ(*number, 3);
  EXPECT_GE(trap.count(), 1);
}

}  // namespace
}  // namespace wych::train
