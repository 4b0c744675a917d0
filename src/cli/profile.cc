// wych profile: a few training steps on random tokens, and where their time went.
#include <fmt/format.h>

#include <chrono>

#include "base/hash.h"
#include "base/philox.h"
#include "cli/commands.h"
#include "cli/cpu_target.h"
#include "cli/load_config.h"
#include "exec/profiler.h"
#include "train/engine.h"

namespace wych::cli {
namespace {

// The batch of a step: uniform ids, one document a sequence.
data::Batch random_batch(const config::Config& config, u64 step) {
  const auto size = static_cast<std::size_t>(config::batch_tokens(config));
  const auto sequence = static_cast<std::size_t>(config.model.sequence_length);
  const RandomStream stream = random_stream(static_cast<u64>(config.run.seed), step, hash_bytes("profile"));
  data::Batch batch{.tokens = std::vector<i32>(size),
                    .targets = std::vector<i32>(size),
                    .document_start = std::vector<i32>(size, 0)};
  for (std::size_t i = 0; i < size; ++i) {
    batch.tokens[i] = static_cast<i32>(random_word(stream, i) % static_cast<u64>(config.model.vocab_size));
  }
  for (std::size_t i = 0; i < size; ++i) {
    batch.targets[i] = (i + 1) % sequence == 0 ? data::kIgnoredTarget : batch.tokens[i + 1];
  }
  return batch;
}

}  // namespace

Expected<int> run(const ProfileOptions& options) {
  WYCH_TRY(const config::Loaded loaded, load_config(options.config, config::Purpose::kPlan));
  const config::Config& config = loaded.config;
  ThreadPool pool(static_cast<int>(config.run.threads));
  WYCH_TRY(const std::unique_ptr<train::Engine> engine,
           train::Engine::create(config, {.training = true}, pool));
  engine->initialise(config.run.seed);
  engine->step(random_batch(config, 0), config.optimizer.lr);  // touches all memory once
  exec::Profiler profiler;
  double seconds = 0;
  for (i64 step = 1; step <= options.steps; ++step) {
    const data::Batch batch = random_batch(config, static_cast<u64>(step));
    const auto start = std::chrono::steady_clock::now();
    engine->step(batch, config.optimizer.lr, &profiler);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  fmt::print("{}", profiler.table());
  const double step_seconds = seconds / static_cast<double>(options.steps);
  fmt::print("\n{} steps of {} tokens on {} threads: {:.1f} ms a step, {:.0f} tokens/s\n", options.steps,
             config::batch_tokens(config), pool.num_threads(), 1e3 * step_seconds,
             static_cast<double>(config::batch_tokens(config)) / step_seconds);
  const plan::Target target = cpu_target(pool.num_threads());
  const train::Programs& programs = engine->programs();
  const double estimate =
      plan::estimate_seconds(*programs.train, target) + plan::estimate_seconds(*programs.update, target);
  fmt::print("the plan's floor for {}: {:.1f} ms\n", target.name, 1e3 * estimate);
  return 0;
}

}  // namespace wych::cli
