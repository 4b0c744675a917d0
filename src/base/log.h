// Lines for people: to the terminal as they are, to the run's log file with a time. The Log is an object that
// is passed along; there is no global one. Numbers for machines go to metrics and events instead.
#pragma once

#include <fmt/format.h>

#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/expected.h"
#include "base/file.h"
#include "base/types.h"

namespace wych {

enum class LogLevel : u8 { kDebug, kInfo, kWarning, kError };

// "debug", "info", "warning", "error".
std::string_view log_level_name(LogLevel level);

// Thread-safe: each call writes its text with one system call per destination. Failures to write never
// propagate: losing a log line must not end a run; a failing log file is reported once and given up.
class Log {
 public:
  // Lines of at least `threshold` go to `descriptor` (not owned; default standard error), preceded by
  // "debug: ", "warning: " or "error: " and by `prefix` ("rank 3: "). A negative descriptor writes nowhere.
  explicit Log(int descriptor = 2, LogLevel threshold = LogLevel::kInfo, std::string prefix = "");
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // From now on every line, whatever its level, is also appended to `path` as
  // "2026-10-01T12:34:56.789Z info text".
  Expected<void> open_file(const std::string& path);

  // `text` without trailing newline; may have several lines.
  void write(LogLevel level, std::string_view text);

  template <class... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const int descriptor_;
  const LogLevel threshold_;
  const std::string prefix_;
  std::mutex mutex_;
  FileWriter file_;
};

}  // namespace wych
