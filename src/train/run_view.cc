// Where a style becomes a view.
#include "train/run_view.h"

#include "train/json_view.h"
#include "train/live_view.h"
#include "train/plain_view.h"

namespace wych::train {

std::unique_ptr<RunView> make_run_view(config::LogStyle style, const Terminal& terminal, i64 interval,
                                       std::FILE* out) {
  if (style == config::LogStyle::kAuto) {
    style = terminal.interactive ? config::LogStyle::kLive : config::LogStyle::kPlain;
  }
  switch (style) {
    case config::LogStyle::kLive:
      return std::make_unique<LiveView>(terminal, interval, out);
    case config::LogStyle::kJson:
      return std::make_unique<JsonView>(interval, out);
    case config::LogStyle::kAuto:
    case config::LogStyle::kPlain:
      break;
  }
  return std::make_unique<PlainView>(interval, out);
}

}  // namespace wych::train
