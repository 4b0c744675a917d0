// An unset TERM, as in most services and containers without a terminal, means no cursor control.
#include "cli/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

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

}  // namespace wych::cli
