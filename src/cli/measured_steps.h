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
  double first_seconds = 0;     // from the configuration to the end of the first step
  double floor_seconds = 0;     // the plan's floor of train + update for `target`
  double flops = 0;             // of a step, config/model_size.h
  double waits_per_step = 0;    // of the host for a CUDA device
  i64 planned_bytes = 0;        // all arenas
  i64 device_bytes = 0;         // in use on a CUDA device, this process's context and whoever else is there
  std::string device;           // "CPU, 2 threads"
  plan::Target target;          // this machine, measured
  [[nodiscard]] double median() const;
};

struct MeasureOptions {
  i64 steps = 1;
  bool update = true;                  // without: forward and backward alone (train/programs.h)
  exec::Profiler* profiler = nullptr;  // time per op is added there
};

// Builds the configuration's programs, runs one step to touch all memory and then the timed ones. Writes
// nothing.
Expected<MeasuredSteps> measure_steps(const config::Config& config, const MeasureOptions& options,
                                      ThreadPool& pool);

}  // namespace wych::cli
