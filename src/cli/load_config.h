// The configuration of a command, loaded and checked against what this build can run.
#pragma once

#include "base/expected.h"
#include "cli/commands.h"
#include "config/load.h"

namespace wych::cli {

// config::load for one rank; kUsage if the configuration asks for a device or a type that this build lacks.
Expected<config::Loaded> load_config(const ConfigOptions& options, config::Purpose purpose);

}  // namespace wych::cli
