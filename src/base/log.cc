// Each line is formatted whole and written under one lock, so lines never mix.
#include "base/log.h"

#include <fmt/chrono.h>

#include <chrono>
#include <ctime>
#include <span>

namespace wych {
namespace {

// UTC with milliseconds.
std::string timestamp() {
  const auto now = std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const auto milliseconds = now.time_since_epoch().count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(now)),
                     milliseconds % 1000);
}

}  // namespace

std::string_view log_level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  check_failed(__FILE__, __LINE__, "level", "no such log level");
}

Log::Log(int descriptor, LogLevel threshold, std::string prefix)
    : descriptor_(descriptor), threshold_(threshold), prefix_(std::move(prefix)) {}

Expected<void> Log::open_file(const std::string& path) {
  WYCH_TRY(FileWriter file, FileWriter::append(path, ErrorKind::kUsage));
  const std::lock_guard lock(mutex_);
  file_ = std::move(file);
  return {};
}

void Log::write(LogLevel level, std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (level >= threshold_ && descriptor_ >= 0) {
    const std::string_view name = level == LogLevel::kInfo ? "" : log_level_name(level);
    const std::string line = fmt::format("{}{}{}{}\n", prefix_, name, name.empty() ? "" : ": ", text);
    (void)write_all(descriptor_, std::as_bytes(std::span(line)), "log", ErrorKind::kUsage);
  }
  if (file_.is_open()) {
    const std::string line = fmt::format("{} {} {}\n", timestamp(), log_level_name(level), text);
    if (const Expected<void> written = file_.write(line); !written) {
      file_ = FileWriter();
      const std::string complaint =
          fmt::format("{}warning: no log file from here on: {}\n", prefix_, written.error().text());
      (void)write_all(descriptor_, std::as_bytes(std::span(complaint)), "log", ErrorKind::kUsage);
    }
  }
}

}  // namespace wych
