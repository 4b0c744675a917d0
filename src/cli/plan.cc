// wych plan: what a run will take, before anything is allocated.
#include <fmt/format.h>

#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/load_config.h"
#include "cli/target.h"
#include "config/model_size.h"
#include "io/json.h"
#include "ir/print.h"
#include "train/programs.h"
#include "train/run_request.h"
#include "train/run_text.h"

namespace wych::cli {
namespace {

struct Estimate {
  config::ParameterCounts parameters;
  plan::Target target;
  double step_seconds = 0;
  bool fits = false;
};

std::string flop_text(double flops) {
  std::string_view units = "kMGTPE";
  double scaled = flops / 1e3;
  while (scaled >= 999.5 && units.size() > 1) {
    scaled /= 1e3;
    units.remove_prefix(1);
  }
  return fmt::format("{:.1f} {}FLOP", scaled, units.front());
}

Estimate estimate(const config::Config& config, const train::Programs& programs) {
  Estimate estimate;
  estimate.parameters = config::count_parameters(config.model);
  estimate.target = config.run.device == config::Device::kCuda
                        ? cuda_target(train::compute_dtype(config))
                        : cpu_target(ThreadPool(static_cast<int>(config.run.threads)).num_threads());
  estimate.step_seconds = plan::estimate_seconds(*programs.train, estimate.target) +
                          plan::estimate_seconds(*programs.update, estimate.target);
  estimate.fits = programs.layout.total_bytes() <= estimate.target.memory_bytes;
  return estimate;
}

std::string json_text(const Estimate& estimate, const plan::Layout& layout) {
  io::JsonObject bytes;
  for (int index = 0; index < ir::kNumCategories; ++index) {
    const auto category = static_cast<ir::Category>(index);
    bytes.add(ir::category_name(category), layout.bytes(category));
  }
  const std::string rank = io::JsonObject()
                               .add("rank", 0)
                               .add("total_bytes", layout.total_bytes())
                               .add("overhead_bytes", layout.overhead_bytes())
                               .add_raw("bytes", bytes.text())
                               .text();
  return io::JsonObject()
      .add("parameters", estimate.parameters.total)
      .add("active_parameters", estimate.parameters.active)
      .add("fits", estimate.fits)
      .add("step_seconds", estimate.step_seconds)
      .add("target", estimate.target.name)
      .add("memory_bytes", estimate.target.memory_bytes)
      .add_raw("ranks", "[" + rank + "]")
      .text();
}

std::string plain_text(const config::Config& config, const Estimate& estimate,
                       const train::Programs& programs) {
  const auto tokens = static_cast<double>(config::batch_tokens(config));
  const double flops = tokens * config::train_flops_per_token(config.model);
  std::string text = fmt::format("model       {}\n", train::model_text(config.model));
  text += fmt::format("parameters  {} total, {} active per token\n",
                      train::grouped_digits(estimate.parameters.total),
                      train::grouped_digits(estimate.parameters.active));
  text += fmt::format("step        {} tokens in {} microbatch{}, {}\n",
                      train::grouped_digits(config::batch_tokens(config)), programs.num_microbatches,
                      programs.num_microbatches == 1 ? "" : "es", flop_text(flops));
  text += fmt::format(
      "time        {:.3g} s a step, {} tokens/s, at best: sum over ops for {}\n", estimate.step_seconds,
      train::grouped_digits(static_cast<i64>(tokens / estimate.step_seconds)), estimate.target.name);
  text += fmt::format("fits        {}: {} of {}\n\n", estimate.fits ? "yes" : "no",
                      plan::bytes_text(programs.layout.total_bytes()),
                      plan::bytes_text(estimate.target.memory_bytes));
  text += plan::memory_table(programs.layout, train::planned(programs));
  if (!estimate.fits) {
    text +=
        "\nTo make it fit: --memory.recompute=block, fewer --data.microbatch_sequences, or a smaller "
        "model.\n";
  }
  return text;
}

}  // namespace

Expected<int> run(const PlanOptions& options) {
  if (options.world != 1) {
    return Error{.kind = ErrorKind::kUsage,
                 .where = "--world",
                 .what = fmt::format("is {}; this build plans a mesh of 1 x 1 x 1", options.world),
                 .hint = "leave it out",
                 .more = {}};
  }
  WYCH_TRY(const config::Loaded loaded, load_config(options.config, config::Purpose::kPlan));
  if (options.dump == "graph") {
    WYCH_TRY(const ir::Graph graph, train::build_microbatch_graph(loaded.config));
    fmt::print("{}", ir::graph_text(graph));
    return 0;
  }
  WYCH_TRY(const train::Programs programs,
           train::build_programs(loaded.config, train::run_request(loaded.config)));
  if (options.dump == "program") {
    for (const plan::Program* program : train::planned(programs)) {
      fmt::print("program {}\n{}\n", program->name, plan::program_text(*program));
    }
    return 0;
  }
  const Estimate numbers = estimate(loaded.config, programs);
  fmt::print("{}", options.json ? json_text(numbers, programs.layout) + "\n"
                                : plain_text(loaded.config, numbers, programs));
  return 0;
}

}  // namespace wych::cli
