// An unset TERM, as in most services and containers without a terminal, means no cursor control.
#include "cli/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/file.h"

namespace wych::cli {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

train::Terminal standard_output() {
  const std::string_view type = variable("TERM");
  train::Terminal terminal;
  terminal.interactive = isatty(STDOUT_FILENO) == 1 && !type.empty() && type != "dumb";
  terminal.color = terminal.interactive && variable("NO_COLOR").empty();
  const std::string_view columns = variable("COLUMNS");
  std::from_chars(columns.data(), columns.data() + columns.size(), terminal.columns);
  terminal.columns = std::max(terminal.columns, 0);
  return terminal;
}

Expected<void> flush_standard_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) {
    return {};
  }
  // Of an earlier failure the cause is no longer known.
  return file_error(ErrorKind::kData, "standard output", "write", errno != 0 ? errno : EIO);
}

}  // namespace wych::cli
