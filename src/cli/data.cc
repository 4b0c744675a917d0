// wych data prepare, wych data inspect: folders of token files.
#include <fmt/format.h>

#include <cstdio>

#include "base/thread_pool.h"
#include "cli/commands.h"
#include "data/text_prepare.h"

namespace wych::cli {

Expected<int> run(const DataPrepareOptions& options) {
  data::PrepareOptions prepare;
  prepare.folder = options.out;
  prepare.vocab_size = options.vocab_size;
  prepare.replace = options.replace;
  if (!options.domains.empty()) {
    prepare.domains = options.domains;
  }
  ThreadPool pool;
  WYCH_TRY(const data::PrepareReport report,
           data::prepare_laptop_data(prepare, pool, [](std::string_view line) {
             fmt::print("{}\n", line);
             std::fflush(stdout);
           }));
  const data::Dataset& dataset = report.dataset;
  fmt::print("{}: {} training and {} held-out tokens, vocabulary {}{}\n", dataset.folder,
             dataset.num_tokens(data::Split::kTrain), dataset.num_tokens(data::Split::kValid),
             dataset.vocab_size, report.reused ? " (already there)" : "");
  return 0;
}

Expected<int> run(const DataInspectOptions& options) {
  WYCH_TRY(const std::string text, data::inspect_dataset(options.dir));
  fmt::print("{}", text);
  return 0;
}

}  // namespace wych::cli
