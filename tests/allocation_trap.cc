// The allocators' side of AllocationTrap. Without sanitizers the malloc family is interposed over glibc's
// (operator new calls malloc); with AddressSanitizer or ThreadSanitizer, which own malloc, their hook is
// used. State is process-wide by nature here: malloc has no object to hang it on.
#include "allocation_trap.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WYCH_SANITIZER_HOOKS 1
// Declared here because gcc does not install <sanitizer/allocator_interface.h>.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*,
                                                                             std::size_t),
                                                         void (*free_hook)(const volatile void*));
#endif

namespace wych::tests {
namespace {

enum class Mode { kOff, kAllThreads, kThisThread };

struct State {
  std::atomic<Mode> mode{Mode::kOff};
  std::atomic<bool> abort{false};
  std::atomic<i64> count{0};
  std::atomic<i64> first_bytes{0};
};
constinit State state;
constinit thread_local bool this_thread_watched = false;

void on_allocation(std::size_t bytes) {
  const Mode mode = state.mode.load(std::memory_order_relaxed);
  if (mode == Mode::kOff || (mode == Mode::kThisThread && !this_thread_watched)) {
    return;
  }
  if (state.count.fetch_add(1) == 0) {
    state.first_bytes.store(static_cast<i64>(bytes));
  }
  if (state.abort.load()) {
    constexpr std::string_view kMessage = "heap allocation inside an AllocationTrap\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
    std::abort();
  }
}

#ifdef WYCH_SANITIZER_HOOKS
void malloc_hook(const volatile void* /*address*/, std::size_t bytes) { on_allocation(bytes); }
void free_hook(const volatile void* /*address*/) {}
#endif

}  // namespace

AllocationTrap::AllocationTrap(Watch watch, Reaction reaction) {
  WYCH_CHECK(state.mode.load() == Mode::kOff, "one AllocationTrap at a time");
#ifdef WYCH_SANITIZER_HOOKS
  static const int installed = __sanitizer_install_malloc_and_free_hooks(malloc_hook, free_hook);
  WYCH_CHECK(installed > 0, "the sanitizer has no free slot for a malloc hook");
#endif
  state.count.store(0);
  state.first_bytes.store(0);
  state.abort.store(reaction == Reaction::kAbort);
  this_thread_watched = true;
  state.mode.store(watch == Watch::kAllThreads ? Mode::kAllThreads : Mode::kThisThread);
}

AllocationTrap::~AllocationTrap() {
  state.mode.store(Mode::kOff);
  this_thread_watched = false;
}

i64 AllocationTrap::count() const { return state.count.load(); }

i64 AllocationTrap::first_bytes() const { return state.first_bytes.load(); }

}  // namespace wych::tests

#ifndef WYCH_SANITIZER_HOOKS

extern "C" {

void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* old, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  wych::tests::on_allocation(bytes);
  return __libc_malloc(bytes);
}

void* calloc(std::size_t count, std::size_t bytes) {
  wych::tests::on_allocation(count * bytes);
  return __libc_calloc(count, bytes);
}

void* realloc(void* old, std::size_t bytes) {
  wych::tests::on_allocation(bytes);
  return __libc_realloc(old, bytes);
}

void* memalign(std::size_t alignment, std::size_t bytes) {
  wych::tests::on_allocation(bytes);
  return __libc_memalign(alignment, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  *out = memalign(alignment, bytes);
  return *out == nullptr ? ENOMEM : 0;
}

}  // extern "C"

#endif
