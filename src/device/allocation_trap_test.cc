// AllocationTrap itself, and that what runs in every step stays clear of the heap: arenas' slices, the thread
// pool, borrowed callables.
#include "allocation_trap.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>

#include "base/thread_pool.h"
#include "device/arena.h"

namespace wych::device {
namespace {

using tests::AllocationTrap;

// Keeps the compiler from removing a pair of new and delete.
void keep(void* pointer) { asm volatile("" : : "g"(pointer) : "memory"); }

TEST(AllocationTrap, CountsEveryWayToTheHeapOnlyWhileItLives) {
  keep(std::make_unique<int>(1).get());
  i64 count = 0;
  i64 first = 0;
  {
    const AllocationTrap trap;
    keep(std::make_unique<std::array<char, 24>>().get());
    void* aligned = ::operator new (128, std::align_val_t{64});
    keep(aligned);
    ::operator delete (aligned, std::align_val_t{64});
    void* memory = std::malloc(10);
    keep(memory);
    std::free(memory);
    count = trap.count();
    first = trap.first_bytes();
  }
  EXPECT_EQ(count, 3);
  EXPECT_EQ(first, 24);
  const AllocationTrap fresh;
  const i64 none = fresh.count();
  EXPECT_EQ(none, 0);
}

TEST(AllocationTrap, SeesOtherThreadsOnlyWhenAsked) {
  std::atomic<int> turn{-1};
  std::thread other([&] {
    turn.store(0);  // from here on this thread's own start-up allocates no more
    for (int expected = 1; expected <= 3; expected += 2) {
      while (turn.load() != expected) {
        std::this_thread::yield();
      }
      keep(std::make_unique<int>(1).get());
      turn.store(expected + 1);
    }
  });
  const auto let_other_allocate = [&](AllocationTrap::Watch watch) {
    const AllocationTrap trap(watch);
    const int before = turn.fetch_add(1);
    while (turn.load() != before + 2) {
      std::this_thread::yield();
    }
    return trap.count();
  };
  while (turn.load() != 0) {
    std::this_thread::yield();
  }
  const i64 seen_by_all = let_other_allocate(AllocationTrap::Watch::kAllThreads);
  const i64 seen_by_one = let_other_allocate(AllocationTrap::Watch::kThisThread);
  other.join();
  EXPECT_EQ(seen_by_all, 1);
  EXPECT_EQ(seen_by_one, 0);
}

TEST(AllocationTrapDeathTest, AbortsAtTheFirstAllocationWhenAsked) {
  EXPECT_DEATH(
      {
        const AllocationTrap trap(AllocationTrap::Watch::kThisThread, AllocationTrap::Reaction::kAbort);
        keep(std::make_unique<int>(1).get());
      },
      "heap allocation inside");
}

TEST(AllocationTrap, ThreadPoolAndArenaSlicesMakeNoAllocation) {
  ThreadPool pool(3);
  const Arena arena = Arena::create("scratch", 1 << 16).value();
  const float scale = 2;
  std::atomic<i64> visits{0};
  i64 count = 0;
  // A thread that starts may allocate (a sanitizer's thread-local state does), so all three run first: nobody
  // leaves the meeting until every index of it is taken, and each thread can hold only one.
  std::atomic<int> met{0};
  pool.parallel_for(3, [&](i64) {
    met.fetch_add(1);
    while (met.load() < 3) {
      std::this_thread::yield();
    }
  });
  {
    const AllocationTrap trap;
    for (int step = 0; step < 10; ++step) {
      pool.parallel_chunks(arena.bytes(), 1024, [&](i64 begin, i64 end) {
        arena.slice(begin, end - begin)[0] = static_cast<std::byte>(scale);
        visits.fetch_add(1);
      });
    }
    count = trap.count();
  }
  EXPECT_EQ(visits.load(), 640);
  EXPECT_EQ(count, 0);
}

}  // namespace
}  // namespace wych::device
