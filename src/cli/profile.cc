// wych profile: a few training steps on random tokens, and where their time went beside the floor of each op.
#include <fmt/format.h>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/load_config.h"
#include "cli/measured_steps.h"

namespace wych::cli {

Expected<int> run(const ProfileOptions& options) {
  WYCH_TRY(const config::Loaded loaded, load_config(options.config, config::Purpose::kPlan));
  ThreadPool pool(static_cast<int>(loaded.config.run.threads));
  exec::Profiler profiler(!options.trace.empty());
  WYCH_TRY(const MeasuredSteps measured,
           measure_steps(loaded.config,
                         {.steps = options.steps, .update = !options.forward_backward, .profiler = &profiler},
                         pool));
  fmt::print("{}", profiler.table(measured.target));
  const auto tokens = static_cast<double>(config::batch_tokens(loaded.config));
  fmt::print("\n{} steps of {:.0f} tokens on {}: {:.1f} ms a step (median), {:.0f} tokens/s\n", options.steps,
             tokens, measured.device, 1e3 * measured.median(), tokens / measured.median());
  fmt::print("the floor for {}: {:.1f} ms, {:.0f} % of the time\n", measured.target.name,
             1e3 * measured.floor_seconds, 100 * measured.floor_seconds / measured.median());
  if (!options.trace.empty()) {
    WYCH_TRY_VOID(write_file_atomic(options.trace, profiler.chrome_trace(), ErrorKind::kUsage));
    fmt::print("trace in {}: open it in https://ui.perfetto.dev or chrome://tracing\n", options.trace);
  }
  return 0;
}

}  // namespace wych::cli
