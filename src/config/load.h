// Reads a configuration: a TOML file or "preset:NAME", what it extends, then overrides from the command line.
// Invariant: a Loaded config is complete and valid; every key is known, typed, in range and consistent with
// the others. All errors are found in one pass, before anything is allocated.
#pragma once

#include <span>
#include <string>

#include "base/expected.h"
#include "config/config.h"
#include "config/schema.h"
#include "config/validate.h"

namespace wych::config {

struct Loaded {
  Config config;
  Origins origins;  // for to_toml(config, &origins)
};

struct LoadOptions {
  Purpose purpose = Purpose::kTrain;
  i64 world = 1;  // ranks of the run; 0: as many as the config's mesh has
};

// `source` is a file or "preset:NAME". A file may say `extends = "preset:NAME"` or a path relative to itself.
// Each override is "--a.b=value" or "a.b=value": a TOML literal, or a bare word where a string is expected;
// the last one wins. Errors (kUsage): the first one found, the others in Error.more, each with file and line
// (or "command line"), the key, what was found and what is expected.
[[nodiscard]] Expected<Loaded> load(const std::string& source, std::span<const std::string> overrides,
                                    LoadOptions options = {});

}  // namespace wych::config
