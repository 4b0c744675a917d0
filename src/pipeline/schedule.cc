#include "pipeline/schedule.h"

#include <fmt/format.h>

#include <algorithm>

namespace wych::pipeline {

Schedule one_stage(i32 num_microbatches) {
  Schedule schedule(1);
  for (i32 microbatch = 0; microbatch < num_microbatches; ++microbatch) {
    schedule[0].push_back({0, Kind::kForward, microbatch});
    schedule[0].push_back({0, Kind::kBackward, microbatch});
  }
  return schedule;
}

std::string action_text(const Action& action) {
  return fmt::format("{}{}{}", action.stage, action.kind == Kind::kForward ? 'F' : 'B', action.microbatch);
}

std::string schedule_text(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Action>& rank : schedule) {
    for (std::size_t i = 0; i < rank.size(); ++i) {
      text += (i == 0 ? "" : " ") + action_text(rank[i]);
    }
    text += "\n";
  }
  return text;
}

namespace {

// What has run so far, by stage and microbatch.
class Replay {
 public:
  Replay(i32 num_stages, i32 num_microbatches)
      : num_stages_(num_stages),
        num_microbatches_(num_microbatches),
        done_(static_cast<std::size_t>(i64{2} * num_stages * num_microbatches), 0) {}

  [[nodiscard]] bool in_range(const Action& action) const {
    return action.stage >= 0 && action.stage < num_stages_ && action.microbatch >= 0 &&
           action.microbatch < num_microbatches_;
  }
  [[nodiscard]] bool done(i32 stage, Kind kind, i32 microbatch) const {
    return done_[index(stage, kind, microbatch)] != 0;
  }
  [[nodiscard]] bool ready(const Action& action) const {
    if (action.kind == Kind::kForward) {
      return action.stage == 0 || done(action.stage - 1, Kind::kForward, action.microbatch);
    }
    return done(action.stage, Kind::kForward, action.microbatch) &&
           (action.stage + 1 == num_stages_ || done(action.stage + 1, Kind::kBackward, action.microbatch));
  }
  void mark(const Action& action) { done_[index(action.stage, action.kind, action.microbatch)] = 1; }
  [[nodiscard]] bool complete() const {
    return std::all_of(done_.begin(), done_.end(), [](char flag) { return flag != 0; });
  }

 private:
  [[nodiscard]] std::size_t index(i32 stage, Kind kind, i32 microbatch) const {
    const i64 pair = i64{stage} * num_microbatches_ + microbatch;
    return static_cast<std::size_t>(2 * pair + (kind == Kind::kBackward ? 1 : 0));
  }
  i32 num_stages_;
  i32 num_microbatches_;
  std::vector<char> done_;
};

Error invalid(std::string what) {
  return {.kind = ErrorKind::kInternal, .where = "schedule", .what = std::move(what), .hint = "", .more = {}};
}

Expected<void> check_owners(const Schedule& schedule, i32 num_stages) {
  std::vector<i32> owner(static_cast<std::size_t>(num_stages), -1);
  for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
    for (const Action& action : schedule[rank]) {
      if (action.stage < 0 || action.stage >= num_stages) {
        return invalid(fmt::format("rank {} runs {}, which names no stage", rank, action_text(action)));
      }
      i32& stage_owner = owner[static_cast<std::size_t>(action.stage)];
      if (stage_owner != -1 && stage_owner != static_cast<i32>(rank)) {
        return invalid(fmt::format("stage {} is on ranks {} and {}", action.stage, stage_owner, rank));
      }
      stage_owner = static_cast<i32>(rank);
    }
  }
  return {};
}

}  // namespace

Expected<void> validate(const Schedule& schedule, i32 num_stages, i32 num_microbatches) {
  WYCH_TRY_VOID(check_owners(schedule, num_stages));
  Replay replay(num_stages, num_microbatches);
  std::vector<std::size_t> next(schedule.size(), 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
      while (next[rank] < schedule[rank].size()) {
        const Action& action = schedule[rank][next[rank]];
        if (!replay.in_range(action) || replay.done(action.stage, action.kind, action.microbatch)) {
          return invalid(
              fmt::format("rank {} runs {}, which is out of range or ran before", rank, action_text(action)));
        }
        if (!replay.ready(action)) {
          break;
        }
        replay.mark(action);
        ++next[rank];
        progress = true;
      }
    }
  }
  for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
    if (next[rank] < schedule[rank].size()) {
      return invalid(
          fmt::format("rank {} waits for ever before {}", rank, action_text(schedule[rank][next[rank]])));
    }
  }
  if (!replay.complete()) {
    return invalid("some microbatch has no forward or no backward on some stage");
  }
  return {};
}

i32 max_in_flight(const std::vector<Action>& actions) {
  i32 in_flight = 0;
  i32 maximum = 0;
  for (const Action& action : actions) {
    in_flight += action.kind == Kind::kForward ? 1 : -1;
    maximum = std::max(maximum, in_flight);
  }
  return maximum;
}

}  // namespace wych::pipeline
