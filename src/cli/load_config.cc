// Refused by name here: what the configuration can say and no code of this build implements.
#include "cli/load_config.h"

namespace wych::cli {

Expected<config::Loaded> load_config(const ConfigOptions& options, config::Purpose purpose) {
  WYCH_TRY(config::Loaded loaded, config::load(options.source, options.overrides, {.purpose = purpose}));
  if (loaded.config.precision.compute == config::Compute::kBF16) {
    return Error{.kind = ErrorKind::kUsage,
                 .where = "precision.compute",
                 .what = "is \"bf16\", which is not available in this build",
                 .hint = "use --precision.compute=f32",
                 .more = {}};
  }
  return loaded;
}

}  // namespace wych::cli
