// TensorBoard event files: scalars and histograms per step, written without any library. A file is a sequence
// of records (length, its checksum, an Event message, its checksum); the first names the format, the second
// tells readers at which step this file takes over from those of earlier sessions of the run.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/expected.h"
#include "base/file.h"
#include "base/types.h"

namespace wych::io {

using Scalar = std::pair<std::string, double>;  // tag, value
// tag, counts: drawn as a distribution over 0, 1, 2, ...
using Histogram = std::pair<std::string, std::vector<i64>>;

class TensorBoardWriter {
 public:
  // Creates RUN/events.out.tfevents.<unix time>.<host>.<pid> for a run that goes on after `resumed_step`
  // (0: from the start); readers drop what earlier files say about later steps. Errors (kData): I/O.
  static Expected<TensorBoardWriter> create(const std::string& run_dir, i64 resumed_step);

  // Appends one record with everything given, scalars rounded to float as the format wants; complete on
  // return, so a reader may follow the file. Values that are not finite are kept: TensorBoard marks them.
  Expected<void> write(i64 step, std::span<const Scalar> scalars, std::span<const Histogram> histograms = {});

 private:
  FileWriter file_;
};

// The format's pieces, for tests and other writers.

// CRC-32C (Castagnoli) of `bytes`.
[[nodiscard]] u32 crc32c(std::string_view bytes);
// `payload` as a record: u64 length, masked CRC-32C of it, payload, masked CRC-32C, all little-endian.
[[nodiscard]] std::string event_record(std::string_view payload);
// Event messages. `wall_time`: seconds since 1970.
[[nodiscard]] std::string version_event(double wall_time);
[[nodiscard]] std::string session_start_event(double wall_time, i64 first_step);
[[nodiscard]] std::string summary_event(double wall_time, i64 step, std::span<const Scalar> scalars,
                                        std::span<const Histogram> histograms);

}  // namespace wych::io
