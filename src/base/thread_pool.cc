// How a job is handed out. One word, the gate, holds {job number, open bit, workers inside}. The caller fills
// the job, opens the gate, takes indices itself, then closes the gate and waits until nobody is inside. A
// worker enters only through an open gate with a job number it has not served, so one that wakes late finds
// it closed and is never waited for: a busy machine delays nobody. All waits spin briefly, then sleep.
#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"

namespace wych {
namespace {

constexpr std::chrono::microseconds kSpinTime{30};
constexpr u64 kInsideMask = 0x7fffffffU;  // bits 0..30: workers inside
constexpr u64 kOpenBit = 0x80000000U;     // bit 31; bits 32..63: job number

u32 job_of(u64 gate) { return static_cast<u32>(gate >> 32U); }
bool is_open(u64 gate) { return (gate & kOpenBit) != 0; }

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Polls `ready` for at most kSpinTime; returns its last answer.
bool spin_until(FunctionRef<bool()> ready) {
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) {
        return true;
      }
      relax();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return ready();
}

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    return std::max(1, CPU_COUNT(&set));
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));  // more than 1024 cores
}

}  // namespace

struct ThreadPool::State {
  alignas(64) std::atomic<u64> gate{0};
  alignas(64) std::atomic<i64> next{0};  // the next index of the current job
  // The current job: written by the caller while the gate is closed and nobody is inside.
  alignas(64) i64 count = 0;
  const FunctionRef<void(i64)>* body = nullptr;

  std::atomic<bool> in_use{false};
  std::atomic<bool> stopping{false};
  std::atomic<int> sleepers{0};            // workers in `work`; changed under `mutex`
  std::atomic<bool> caller_sleeps{false};  // the caller is in `done`; changed under `mutex`
  std::mutex mutex;
  std::condition_variable work;
  std::condition_variable done;
  std::vector<std::thread> workers;

  void take_indices() {
    for (i64 i = next.fetch_add(1, std::memory_order_relaxed); i < count;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      (*body)(i);
    }
  }

  [[nodiscard]] bool has_work(u32 served) const {
    const u64 now = gate.load();
    return stopping.load() || (is_open(now) && job_of(now) != served);
  }

  void wait_for_work(u32 served) {
    if (spin_until([&] { return has_work(served); })) {
      return;
    }
    // sleepers is raised before the gate is read and open() reads it after raising the gate (both
    // sequentially consistent), so at least one side sees the other: no wake-up is lost.
    std::unique_lock lock(mutex);
    sleepers.fetch_add(1);
    work.wait(lock, [&] { return has_work(served); });
    sleepers.fetch_sub(1);
  }

  // True, and counted inside, if there is an open job other than `served`, which becomes its number.
  bool enter(u32& served) {
    u64 now = gate.load();
    while (is_open(now) && job_of(now) != served) {
      if (gate.compare_exchange_weak(now, now + 1)) {
        served = job_of(now);
        return true;
      }
    }
    return false;
  }

  void leave() {
    const u64 now = gate.fetch_sub(1) - 1;
    if (!is_open(now) && (now & kInsideMask) == 0 && caller_sleeps.load()) {
      { const std::lock_guard lock(mutex); }  // the caller is in `done` or has yet to read the gate
      done.notify_one();
    }
  }

  void run_worker() {
    u32 served = 0;
    while (true) {
      wait_for_work(served);
      if (stopping.load()) {
        return;
      }
      if (enter(served)) {
        take_indices();
        leave();
      }
    }
  }

  void open() {
    u32 job = job_of(gate.load(std::memory_order_relaxed)) + 1;
    job += job == 0 ? 1 : 0;  // 0 is what a new worker has served
    next.store(0, std::memory_order_relaxed);
    gate.store((static_cast<u64>(job) << 32U) | kOpenBit);
    const i64 wanted = std::min<i64>(count - 1, sleepers.load());
    if (wanted > 0) {
      { const std::lock_guard lock(mutex); }  // who counted itself asleep is now waiting
      for (i64 i = 0; i < wanted; ++i) {
        work.notify_one();
      }
    }
  }

  void close() {
    const auto empty = [&] { return (gate.load() & kInsideMask) == 0; };
    gate.fetch_and(~kOpenBit);
    if (spin_until(empty)) {
      return;
    }
    std::unique_lock lock(mutex);
    caller_sleeps.store(true);
    done.wait(lock, empty);
    caller_sleeps.store(false);
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  WYCH_CHECK(num_threads >= 0, "a pool of {} threads", num_threads);
  const int total = num_threads == 0 ? available_cores() : num_threads;
  State* state = state_.get();
  for (int i = 1; i < total; ++i) {
    try {
      state->workers.emplace_back([state] { state->run_worker(); });
    } catch (const std::system_error& error) {
      WYCH_CHECK(false, "the system does not start thread {} of {}: {}", i + 1, total, error.what());
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping.store(true);
  }
  state_->work.notify_all();
  for (std::thread& worker : state_->workers) {
    worker.join();
  }
}

int ThreadPool::num_threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::parallel_for(i64 count, FunctionRef<void(i64)> body) {
  State& state = *state_;
  if (state.workers.empty() || count <= 1) {
    for (i64 i = 0; i < count; ++i) {
      body(i);
    }
    return;
  }
  WYCH_CHECK(!state.in_use.exchange(true, std::memory_order_acquire),
             "parallel_for of a pool that is already running one");
  state.count = count;
  state.body = &body;
  state.open();
  state.take_indices();
  state.close();
  state.in_use.store(false, std::memory_order_release);
}

void ThreadPool::parallel_chunks(i64 count, i64 grain, FunctionRef<void(i64, i64)> body) {
  WYCH_CHECK(grain > 0, "chunks of {}", grain);
  parallel_for(ceil_div(std::max<i64>(count, 0), grain), [&](i64 chunk) {
    const i64 begin = chunk * grain;
    body(begin, std::min(begin + grain, count));
  });
}

}  // namespace wych
