// The handlers only add to lock-free counters; the loop reads them between steps.
#include "cli/signals.h"

#include <unistd.h>

#include "base/check.h"

namespace wych::cli {
namespace {

// The one global: a signal handler can reach nothing else.
std::atomic<train::StopRequests*> current_requests{nullptr};  // NOLINT(*-avoid-non-const-global-variables)

void on_signal(int signal) {
  train::StopRequests* requests = current_requests.load();
  if (requests == nullptr) {
    return;
  }
  if (signal == SIGUSR1) {
    requests->requeue.fetch_add(1);
  } else if (signal == SIGUSR2) {
    requests->checkpoint.fetch_add(1);
  } else if (requests->interrupt.fetch_add(1) > 0 && signal == SIGINT) {
    _exit(128 + SIGINT);
  }
}

}  // namespace

SignalScope::SignalScope(train::StopRequests& requests) {
  static_assert(std::atomic<int>::is_always_lock_free, "handlers may only touch lock-free atomics");
  WYCH_CHECK(current_requests.exchange(&requests) == nullptr, "two signal scopes at once");
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = kSignals[i] == SIGPIPE ? SIG_IGN : on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(kSignals[i], &action, &previous_[i]);
  }
}

SignalScope::~SignalScope() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &previous_[i], nullptr);
  }
  current_requests.store(nullptr);
}

}  // namespace wych::cli
