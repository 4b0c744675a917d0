// The report of a run: one HTML file that needs nothing else, for a browser today or in ten years. What it
// shows is what run_record.h reads; the charts are svg_chart.h's.
#pragma once

#include <string>

#include "base/expected.h"
#include "train/run_record.h"

namespace wych::train {

// The page: no script, no external resource, every text from the run escaped.
std::string report_html(const RunRecord& record, const std::string& run_dir);

// Reads the run folder and replaces RUN/report.html. kData if there are no metrics or it cannot be written.
Expected<void> write_report(const std::string& run_dir);

}  // namespace wych::train
