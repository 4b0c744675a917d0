#include "cli/load_config.h"

namespace wych::cli {

Expected<config::Loaded> load_config(const ConfigOptions& options, config::Purpose purpose) {
  return config::load(options.source, options.overrides, {.purpose = purpose});
}

}  // namespace wych::cli
