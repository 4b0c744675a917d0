// Training steps on random tokens, timed: what `wych bench step` and `wych profile` share.
#pragma once

#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "config/config.h"
#include "exec/profiler.h"
#include "plan/report.h"
#include "train/engine.h"

namespace wych::cli {

struct MeasuredSteps {
  std::vector<double> seconds;  // of each step, batch writing and reading of results included
  double floor_seconds = 0;     // the plan's floor of train + update for `target`
  std::string device;           // "CPU, 2 threads"
  plan::Target target;          // this machine, measured
  [[nodiscard]] double median() const;
};

// Builds the configuration's programs, runs one step to touch all memory and then `steps` timed ones; with a
// profiler, time per op is added there. Writes nothing.
Expected<MeasuredSteps> measure_steps(const config::Config& config, i64 steps, ThreadPool& pool,
                                      exec::Profiler* profiler = nullptr);

}  // namespace wych::cli
