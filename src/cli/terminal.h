// What standard output is. The only place that asks isatty and reads NO_COLOR, COLUMNS and TERM.
#pragma once

#include "base/expected.h"
#include "train/run_view.h"

namespace wych::cli {

// Interactive: a terminal that can move its cursor. Colour: unless NO_COLOR is set to anything. COLUMNS, if
// exported, bounds the width.
train::Terminal standard_output();

// What was printed reaches its place, or kData: a full disk behind a redirection, a stream that was closed.
Expected<void> flush_standard_output();

}  // namespace wych::cli
