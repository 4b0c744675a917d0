// Learning-rate schedules: pure functions of the number of steps done, so that resuming needs no state and
// hard_stop or a changed batch never bends them.
#pragma once

#include "config/config.h"

namespace wych::train {

// Everything a schedule needs, in steps.
struct LearningRateSchedule {
  config::ScheduleType type = config::ScheduleType::kConstant;
  double peak = 0;
  double final_ratio = 0;  // rate at the end / peak
  i64 warmup = 0;
  i64 decay = 0;  // steps of the final decay (wsd)
  i64 total = 0;

  static LearningRateSchedule from(const config::Config& config);

  // The rate of the step after `step` steps were done, step in [0, total). Linear warm-up reaches the peak at
  // step `warmup`: step s < warmup has peak * (s + 1) / (warmup + 1). Then
  //   constant: peak
  //   linear:   peak to peak * final_ratio, straight
  //   cosine:   the same along half a cosine
  //   wsd:      peak, then straight down to peak * final_ratio over the last `decay` steps.
  // With p in [0, 1] the share of the decaying part that is over, the last step has p < 1 and step `total`
  // would have p = 1.
  [[nodiscard]] double at(i64 step) const;
};

}  // namespace wych::train
