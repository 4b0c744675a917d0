// The configuration that a command line names.
#pragma once

#include "base/expected.h"
#include "cli/commands.h"
#include "config/load.h"

namespace wych::cli {

// config::load for one rank. What this build cannot run is refused where programs are built
// (train/programs.h).
Expected<config::Loaded> load_config(const ConfigOptions& options, config::Purpose purpose);

}  // namespace wych::cli
