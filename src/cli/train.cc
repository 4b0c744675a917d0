// wych train: trains as configured, into the run's folder.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/load_config.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "config/schema.h"
#include "train/loop.h"

namespace wych::cli {
namespace {

// EX_TEMPFAIL: stopped with a good checkpoint, to be started again.
constexpr int kRequeueCode = 75;

Expected<void> check_ranks(const TrainOptions& options) {
  if (options.ranks == 1 && options.simulate == 1) {
    return {};
  }
  return Error{.kind = ErrorKind::kUsage,
               .where = options.ranks != 1 ? "--ranks" : "--simulate",
               .what = "is not available in this build: the mesh is 1 x 1 x 1",
               .hint = "leave it out; one rank uses all cores of this machine",
               .more = {}};
}

// Options that are another way to write a key.
ConfigOptions with_shorthands(const TrainOptions& options) {
  ConfigOptions config = options.config;
  if (!options.device.empty()) {
    config.overrides.push_back("--run.device=" + options.device);
  }
  if (!options.resume.empty()) {
    config.overrides.push_back("--run.resume=" + options.resume);
  }
  if (options.eager) {
    config.overrides.push_back("--run.eager=true");
  }
  return config;
}

}  // namespace

Expected<int> run(const TrainOptions& options) {
  WYCH_TRY_VOID(check_ranks(options));
  WYCH_TRY(const config::Loaded loaded, load_config(with_shorthands(options), config::Purpose::kTrain));
  if (options.print_config) {
    fmt::print("{}", config::to_toml(loaded.config, &loaded.origins));
    WYCH_TRY_VOID(flush_standard_output());
    return 0;
  }
  train::StopRequests requests;
  const SignalScope signals(requests);
  const config::LogConfig& log = loaded.config.log;
  const std::unique_ptr<train::RunView> view =
      train::make_run_view(log.style, standard_output(), log.interval, stdout);
  const Expected<train::RunEnd> end = train::run_training(loaded, requests, *view);
  view->finish();
  if (!end) {
    return end.error();
  }
  return *end == train::RunEnd::kRequeue ? kRequeueCode : 0;
}

}  // namespace wych::cli
