// metrics.jsonl as a table for spreadsheets and data frames: RFC 4180, a row a step, a column a metric.
#pragma once

#include <string>
#include <string_view>

#include "base/expected.h"
#include "base/function_ref.h"

namespace wych::io {

// Reads RUN/metrics.jsonl and hands out the table piece by piece, the header first, lines ended by CR LF.
// Columns: "step", then the metrics in the order in which the file first has them; an array is a column an
// element, "moe/block 0/assigned tokens[3]". Rows: steps in ascending order; all lines of a step make one
// row, and of two values the later one stands. A line of an earlier step than the one before it begins a
// resumption: it takes back that step and all after it.
// Cells: integers as they are, reals as the shortest text that reads back to the same double, `nan` for null
// (the value was not finite), true and false; empty where the step has no such metric. Texts are quoted if
// they must be. Passed over: members that are objects or lists of lists; a last line torn by a kill.
// kData if the file cannot be read or holds another line that is not ours; errors of `write` are handed on.
// Memory: the names, and the places of the lines.
Expected<void> metrics_to_csv(const std::string& run_dir,
                              FunctionRef<Expected<void>(std::string_view)> write);

}  // namespace wych::io
