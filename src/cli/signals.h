// Signals of a training run: SIGINT and SIGTERM save and stop, SIGUSR1 saves and exits for requeue, SIGUSR2
// saves and goes on; a second SIGINT exits at once with 130.
#pragma once

#include <csignal>

#include <array>

#include "train/loop.h"

namespace wych::cli {

// Signals add to `requests` while this object lives; at most one at a time. SIGPIPE is ignored meanwhile: a
// reader of the output that goes away must not end a run.
class SignalScope {
 public:
  explicit SignalScope(train::StopRequests& requests);
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

 private:
  static constexpr std::array<int, 5> kSignals = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGPIPE};
  std::array<struct sigaction, kSignals.size()> previous_{};
};

}  // namespace wych::cli
