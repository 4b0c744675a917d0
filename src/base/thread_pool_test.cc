// ThreadPool: every index once, at any pool size and count, without lost wake-ups, and with no need of the
// workers ever being scheduled.
#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

namespace wych {
namespace {

TEST(ThreadPool, VisitsEveryIndexOnceAtAnySize) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (const i64 count : {0, 1, 2, 3, 7, 64, 1001}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
      pool.parallel_for(count, [&](i64 i) { visits[static_cast<std::size_t>(i)].fetch_add(1); });
      for (const std::atomic<int>& visit : visits) {
        ASSERT_EQ(visit.load(), 1) << threads << " threads, count " << count;
      }
    }
  }
}

TEST(ThreadPool, WritesOfTheBodyAreVisibleToTheCaller) {
  ThreadPool pool(4);
  std::vector<i64> out(37);
  for (i64 round = 0; round < 3000; ++round) {
    pool.parallel_for(37, [&](i64 i) { out[static_cast<std::size_t>(i)] = round * i; });
    for (i64 i = 0; i < 37; ++i) {
      ASSERT_EQ(out[static_cast<std::size_t>(i)], round * i);
    }
  }
}

TEST(ThreadPool, SleepingWorkersAreWokenAgain) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // far beyond the spin
    std::atomic<int> arrived{0};
    // Two indices that wait for each other end only if a second thread takes part.
    pool.parallel_for(2, [&](i64) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) {
        std::this_thread::yield();
      }
    });
    EXPECT_EQ(arrived.load(), 2);
  }
}

TEST(ThreadPool, CallerSleepsThroughALongLastIndex) {
  ThreadPool pool(2);
  std::atomic<int> started{0};
  std::atomic<int> ended{0};
  const std::thread::id caller = std::this_thread::get_id();
  pool.parallel_for(2, [&](i64) {
    started.fetch_add(1);
    while (started.load() < 2) {
      std::this_thread::yield();
    }
    if (std::this_thread::get_id() != caller) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ended.fetch_add(1);
  });
  EXPECT_EQ(ended.load(), 2);
}

TEST(ThreadPool, ManyMoreThreadsThanCoresMakeProgress) {
  ThreadPool pool(32);
  std::atomic<i64> sum{0};
  for (int round = 0; round < 500; ++round) {
    pool.parallel_for(5, [&](i64 i) { sum.fetch_add(i); });
  }
  EXPECT_EQ(sum.load(), 500 * 10);
}

TEST(ThreadPool, ChunksCoverTheRangeWithAShortLastOne) {
  ThreadPool pool(2);
  std::vector<i64> begins(4, -1);
  std::vector<i64> ends(4, -1);
  pool.parallel_chunks(10, 3, [&](i64 begin, i64 end) {
    begins[static_cast<std::size_t>(begin / 3)] = begin;
    ends[static_cast<std::size_t>(begin / 3)] = end;
  });
  EXPECT_EQ(begins, (std::vector<i64>{0, 3, 6, 9}));
  EXPECT_EQ(ends, (std::vector<i64>{3, 6, 9, 10}));
  pool.parallel_chunks(0, 3, [&](i64, i64) { FAIL() << "an empty range has no chunk"; });
}

TEST(ThreadPool, ZeroMeansTheCoresOfTheAffinityMask) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  EXPECT_EQ(ThreadPool().num_threads(), CPU_COUNT(&set));
}

TEST(ThreadPool, PoolOfOneRunsInOrderOnTheCaller) {
  ThreadPool pool(1);
  std::vector<i64> order;
  const std::thread::id caller = std::this_thread::get_id();
  pool.parallel_for(5, [&](i64 i) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(i);
  });
  EXPECT_EQ(order, (std::vector<i64>{0, 1, 2, 3, 4}));
}

TEST(ThreadPoolDeathTest, NestedCallIsRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.parallel_for(2, [&](i64) { pool.parallel_for(2, [](i64) {}); });
      },
      "already running one");
}

// Sanitizers need address space of their own at any time.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(ThreadPoolDeathTest, ThreadsThatDoNotStartAreCounted) {
  const auto start_without_memory = [] {
    const rlimit limit{64U << 20U, 64U << 20U};  // of address space: a few stacks
    setrlimit(RLIMIT_AS, &limit);
    const ThreadPool pool(1000);
  };
  EXPECT_DEATH(start_without_memory(), "does not start thread [0-9]+ of 1000: ");
}
#endif

TEST(FunctionRef, CallsConstMutableAndStdFunctionCallables) {
  const auto twice = [](const FunctionRef<int(int)>& f) { return f(1) + f(2); };
  int calls = 0;
  auto counter = [calls](int x) mutable { return x + ++calls; };
  EXPECT_EQ(twice(counter), 1 + 1 + 2 + 2);
  const std::function<int(int)> negate = [](int x) { return -x; };
  EXPECT_EQ(twice(negate), -3);
}

}  // namespace
}  // namespace wych
