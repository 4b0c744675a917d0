// Names that the writer and the reader of checkpoints share (checkpoint.h). Private to src/io.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/types.h"

namespace wych::io {

inline constexpr std::string_view kFolder = "checkpoints";
inline constexpr std::string_view kLatestFile = "latest";
inline constexpr std::string_view kIndexFile = "index.json";
inline constexpr std::string_view kConfigFile = "config.toml";
inline constexpr std::string_view kTemporarySuffix = ".tmp";  // with a number: StagedFolder's
inline constexpr std::string_view kFormatName = "wych checkpoint";
inline constexpr i64 kFormatVersion = 1;
// The index ends in this, the quoted hash of everything before it, "}" and a line break.
inline constexpr std::string_view kIndexHashKey = ",\n\"index_xxh3\":";

// "step000123"; more digits from a million on.
[[nodiscard]] std::string step_name(i64 step);
// The step of such a name; nullopt for any other name.
[[nodiscard]] std::optional<i64> step_of(std::string_view name);

}  // namespace wych::io
