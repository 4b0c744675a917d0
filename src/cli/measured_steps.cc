#include "cli/measured_steps.h"

#include <algorithm>
#include <chrono>

#include "base/hash.h"
#include "base/philox.h"
#include "cli/target.h"
#include "config/model_size.h"
#include "train/compute_device.h"

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

double MeasuredSteps::median() const {
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : 0.5 * (sorted[middle - 1] + sorted[middle]);
}

Expected<MeasuredSteps> measure_steps(const config::Config& config, const MeasureOptions& options,
                                      ThreadPool& pool) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  MeasuredSteps measured;
  // Before the run takes the device's memory.
  WYCH_TRY(measured.target,
           measured_target(train::resolve_device(config.run.device), train::compute_dtype(config), pool));
  const auto begin = Clock::now();
  WYCH_TRY(const std::unique_ptr<train::Engine> engine,
           train::Engine::create(config, {.training = true, .update = options.update}, pool));
  engine->initialise(config.run.seed);
  engine->step(random_batch(config, 0), config.optimizer.lr);
  measured.first_seconds = seconds_since(begin);
  measured.device = engine->device_name();
  measured.flops =
      config::train_flops_per_token(config.model) * static_cast<double>(config::batch_tokens(config));
  measured.planned_bytes = engine->memory_bytes();
  measured.device_bytes = engine->device_bytes_in_use();
  const i64 waits = engine->num_waits();
  for (i64 step = 1; step <= options.steps; ++step) {
    const data::Batch batch = random_batch(config, static_cast<u64>(step));
    const auto start = Clock::now();
    engine->step(batch, config.optimizer.lr, options.profiler);
    measured.seconds.push_back(seconds_since(start));
  }
  measured.waits_per_step =
      static_cast<double>(engine->num_waits() - waits) / static_cast<double>(options.steps);
  const train::Programs& programs = engine->programs();
  measured.floor_seconds = plan::estimate_seconds(*programs.train, measured.target);
  if (programs.update) {
    measured.floor_seconds += plan::estimate_seconds(*programs.update, measured.target);
  }
  return measured;
}

}  // namespace wych::cli
