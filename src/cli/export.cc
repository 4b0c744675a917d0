// wych export: the metrics of a run as a table, and its report.
#include <fmt/format.h>

#include <cerrno>

#include "base/file.h"
#include "cli/commands.h"
#include "io/metrics_csv.h"
#include "train/report.h"

namespace wych::cli {

Expected<int> run(const ExportCsvOptions& options) {
  if (options.out.empty()) {
    WYCH_TRY_VOID(io::metrics_to_csv(options.run_dir, [](std::string_view piece) -> Expected<void> {
      if (std::fwrite(piece.data(), 1, piece.size(), stdout) != piece.size()) {
        return file_error(ErrorKind::kData, "standard output", "write", errno);
      }
      return {};
    }));
    return 0;
  }
  std::string table;
  WYCH_TRY_VOID(io::metrics_to_csv(options.run_dir, [&table](std::string_view piece) -> Expected<void> {
    table += piece;
    return {};
  }));
  WYCH_TRY_VOID(write_file_atomic(options.out, table, ErrorKind::kData));
  return 0;
}

Expected<int> run(const ExportReportOptions& options) {
  WYCH_TRY_VOID(train::write_report(options.run_dir));
  fmt::print("{}/report.html\n", options.run_dir);
  return 0;
}

}  // namespace wych::cli
