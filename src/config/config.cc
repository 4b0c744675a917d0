// Derived quantities of the configuration (config.h).
#include "config/config.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace wych::config {

bool ModelConfig::is_dense_layer(i64 layer) const {
  return moe.experts == 0 || layer < first_dense_layers ||
         std::find(dense_layers.begin(), dense_layers.end(), layer) != dense_layers.end();
}

i64 ModelConfig::window_of(i64 layer) const {
  if (attention.window_pattern.empty()) {
    return attention.window;
  }
  const i64 period = static_cast<i64>(attention.window_pattern.size());
  return attention.window_pattern[static_cast<std::size_t>(layer % period)];
}

double YarnConfig::scale() const {
  return attention_factor > 0.0 ? attention_factor : 0.1 * std::log(factor) + 1.0;
}

i64 batch_tokens(const Config& config) { return config.data.batch_sequences * config.model.sequence_length; }

i64 total_steps(const Config& config) {
  if (config.run.max_steps > 0) {
    return config.run.max_steps;
  }
  WYCH_CHECK(config.run.max_tokens > 0 && batch_tokens(config) > 0, "a loaded config has a length");
  return ceil_div(config.run.max_tokens, batch_tokens(config));
}

i64 warmup_steps(const Config& config) {
  const ScheduleConfig& schedule = config.schedule;
  return schedule.warmup_tokens > 0 ? ceil_div(schedule.warmup_tokens, batch_tokens(config))
                                    : schedule.warmup_steps;
}

i64 decay_steps(const Config& config) {
  const ScheduleConfig& schedule = config.schedule;
  if (schedule.decay_tokens > 0) {
    return ceil_div(schedule.decay_tokens, batch_tokens(config));
  }
  if (schedule.decay_fraction > 0.0) {
    return static_cast<i64>(std::ceil(schedule.decay_fraction * static_cast<double>(total_steps(config))));
  }
  return schedule.decay_steps;
}

}  // namespace wych::config
