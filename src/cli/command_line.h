// From argv to a Command. The table of commands, options and help texts is in command_line.cc.
#pragma once

#include <string>
#include <variant>

#include "base/expected.h"
#include "cli/commands.h"

namespace wych::cli {

// Text that answers the command line by itself: help or the version. Exit code 0.
struct Answer {
  std::string text;
};

// Errors are kUsage.
Expected<std::variant<Command, Answer>> parse_command_line(int argc, const char* const* argv);

}  // namespace wych::cli
