#include "train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace wych::train {

LearningRateSchedule LearningRateSchedule::from(const config::Config& config) {
  return {.type = config.schedule.type,
          .peak = config.optimizer.lr,
          .final_ratio = config.schedule.final_lr_ratio,
          .warmup = config::warmup_steps(config),
          .decay = config::decay_steps(config),
          .total = config::total_steps(config)};
}

double LearningRateSchedule::at(i64 step) const {
  if (step < warmup) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  }
  const auto share_over = [&](i64 begin) {
    const double length = static_cast<double>(std::max<i64>(total - begin, 1));
    return std::clamp(static_cast<double>(step - begin) / length, 0.0, 1.0);
  };
  const auto straight = [&](double share) { return peak * (1.0 - share * (1.0 - final_ratio)); };
  switch (type) {
    case config::ScheduleType::kConstant:
      return peak;
    case config::ScheduleType::kLinear:
      return straight(share_over(warmup));
    case config::ScheduleType::kCosine:
      return straight(0.5 * (1.0 - std::cos(std::numbers::pi * share_over(warmup))));
    case config::ScheduleType::kWsd:
      return straight(share_over(std::max(warmup, total - decay)));
  }
  return peak;
}

}  // namespace wych::train
