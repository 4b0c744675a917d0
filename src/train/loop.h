// The training loop: data in, steps, metrics, evaluations, samples, checkpoints, signals. Everything in it is
// a function of (configuration, step), so that a resumed run goes on with the same bits.
#pragma once

#include <atomic>

#include "base/expected.h"
#include "base/log.h"
#include "config/load.h"
#include "train/run_view.h"

namespace wych::train {

// Set by signal handlers, read between steps. Several requests add up.
struct StopRequests {
  std::atomic<int> interrupt{0};   // SIGINT, SIGTERM: save and stop
  std::atomic<int> requeue{0};     // SIGUSR1: save and exit 75
  std::atomic<int> checkpoint{0};  // SIGUSR2: save and go on
};

enum class RunEnd {
  kFinished,     // reached its last step or hard_stop: exit code 0
  kInterrupted,  // saved after SIGINT or SIGTERM: 0
  kRequeue,      // saved after SIGUSR1: 75
};

// Trains as configured, into config.run.dir; resumes if the configuration says so. Errors keep their kind,
// which is the exit code.
Expected<RunEnd> run_training(const config::Loaded& loaded, StopRequests& requests, RunView& view);

}  // namespace wych::train
