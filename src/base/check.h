// CHECK: a programmer's fault. On in all builds outside hot kernels; prints and aborts.
// DCHECK: the same for hot paths, on unless NDEBUG. A user's fault is an Error (expected.h) instead.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace wych {

// Prints "file:line: check failed: condition: message" to stderr and aborts. Never returns.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view message);

}  // namespace wych

#define WYCH_CHECK(condition, ...)                                                       \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      ::wych::check_failed(__FILE__, __LINE__, #condition, fmt::format("" __VA_ARGS__)); \
    }                                                                                    \
  } while (false)

#ifdef NDEBUG
#define WYCH_DCHECK(condition, ...) \
  do {                              \
  } while (false)
#else
#define WYCH_DCHECK(condition, ...) WYCH_CHECK(condition, __VA_ARGS__)
#endif
