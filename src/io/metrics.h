// The run's records: metrics.jsonl, one object a step under Olmo-core's metric names; events.jsonl, anything
// else that happened; env.json, where it ran. Append-only and flushed line by line, so a killed run loses at
// most the line being written.
#pragma once

#include <string>
#include <string_view>

#include "base/expected.h"
#include "base/file.h"
#include "io/json.h"

namespace wych::io {

class MetricsWriter {
 public:
  // Opens RUN/metrics.jsonl for a run that goes on after `resumed_step` (0: from the start): lines of later
  // steps, and a last line without an end, are cut off. Errors (kData): I/O, or a line that is not ours.
  static Expected<MetricsWriter> open(const std::string& run_dir, i64 resumed_step);

  // Appends {"step": step, ...the members of `metrics`} as one line.
  Expected<void> write(i64 step, const JsonObject& metrics);

 private:
  FileWriter file_;
};

class EventsWriter {
 public:
  // Opens RUN/events.jsonl at its end; a last line without an end is closed first.
  static Expected<EventsWriter> open(const std::string& run_dir);

  // Appends {"time": seconds since 1970, "step": step, "event": kind, ...details}.
  Expected<void> write(i64 step, std::string_view kind, const JsonObject& details = {});

 private:
  FileWriter file_;
};

// Machine and build: version, commit, compiler, host, kernel, processor, cores, memory_bytes, and the time of
// the start.
[[nodiscard]] JsonObject environment();

// Replaces RUN/env.json.
Expected<void> write_environment(const std::string& run_dir, const JsonObject& environment);

}  // namespace wych::io
