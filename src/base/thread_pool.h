// The process's one thread pool. Work is split by *index*, never by thread count, so results do not depend
// on how many threads there are: callers choose chunks from the problem alone.
#pragma once

#include <memory>

#include "base/function_ref.h"
#include "base/types.h"

namespace wych {

// Runs index ranges on a fixed set of threads (the caller is one of them). Not re-entrant: a body must not
// call parallel_for of the same pool, nor may two threads use a pool at once (CHECKed where there are
// workers). A pool of 1 runs everything on the caller, starts no thread and may be shared.
class ThreadPool {
 public:
  // num_threads >= 1, the caller included; 0 means one per core this process may run on.
  explicit ThreadPool(int num_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int num_threads() const;

  // Calls body(i) for every i in [0, count), each once, in any order on any thread; returns when all ended.
  // The body must not throw. Spawning costs a few microseconds: give each index at least that much work.
  // Allocates nothing.
  void parallel_for(i64 count, FunctionRef<void(i64)> body);

  // Calls body(begin, end) over [0, count) cut into chunks of `grain` (the last one shorter).
  void parallel_chunks(i64 count, i64 grain, FunctionRef<void(i64, i64)> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace wych
