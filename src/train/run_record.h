// What a run folder says about its run, read back for people: the curves, expert loads, samples, events, the
// final comparison and routing. Nothing but metrics.jsonl is required, and lines that a kill or another hand
// left unreadable are counted and passed over. The writer is run_folder.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/expected.h"
#include "config/config.h"
#include "train/load_history.h"
#include "train/routing.h"
#include "train/run_view.h"

namespace wych::train {

// A metric at a step; NaN where the run logged null (a value that was not finite).
struct Point {
  double step = 0;
  double value = 0;
  double tokens = 0;  // consumed by then; 0 if the run does not say
};

// Load of each expert of a block relative to the mean: 1 when balanced, 0 when dead.
struct LayerLoad {
  i64 block = 0;
  std::vector<double> relative;
};

struct RunEvent {
  double time = 0;  // seconds since 1970
  i64 step = 0;
  std::string kind;    // "start", "resume", "checkpoint", "skip", "non_finite", "end"
  std::string detail;  // "runs/laptop/checkpoints/step000200, 0.12 s"; may be empty
};

struct Sample {
  i64 step = 0;
  std::string prompt;
  std::string text;
};

// Bytes of one memory category, or of one program's scratch beside the least that any packing needs.
struct MemoryRow {
  std::string name;
  i64 bytes = 0;
  i64 lower_bound = 0;  // 0: not known
};

struct RunRecord {
  std::vector<Point> loss;
  std::vector<Point> validation;
  std::vector<Point> learning_rate;
  std::vector<Point> grad_norm;
  std::vector<Point> tokens_per_second;
  std::vector<Point> skipped;         // gradient norms of steps that were not applied
  std::vector<Point> non_finite;      // loss or norm was; the value says nothing
  std::vector<Point> imbalance;       // largest over blocks of max / mean load
  std::vector<Point> mean_imbalance;  // mean over blocks
  std::vector<LayerLoad> loads;       // summed over the last `load_steps` steps
  i64 load_steps = 0;
  std::vector<LoadSpan> load_history;  // of the whole run
  i64 last_step = 0;
  i64 tokens = 0;
  double step_seconds = 0;  // sum over all steps: evaluation, samples and checkpoints left out
  double seconds = 0;       // sum over sessions from their first event to their last
  i64 num_sessions = 0;     // starts and resumptions
  i64 unreadable_lines = 0;

  std::vector<Sample> samples;   // by step, the last one of each
  std::vector<RunEvent> events;  // all but samples and evaluations
  std::optional<EvalReport> final_evaluation;
  std::vector<DomainScore> domains;  // of the final evaluation
  RoutingRecord routing;             // empty if the run did not get that far
  bool finished = false;             // the last session reached its end

  std::string config_text;               // config.toml
  std::optional<config::Config> config;  // the same, if this version reads it
  std::vector<MemoryRow> memory;         // categories, then their sum as "total"
  std::vector<MemoryRow> scratch;        // per program
  std::string host;                      // "Intel(R) Xeon(R), 2 cores, 23.5 GiB"; empty if not known
  std::string device;                    // "CPU, 2 threads"; empty if not known
  std::string build;                     // "wych 0.1.0 (94ad5b20c1d2)"; empty if not known
  std::string started;                   // of the last session, "2026-11-30T15:13:05Z"
};

// Reads RUN/metrics.jsonl and, where they are and whole, events.jsonl, config.toml, plan.json, env.json and
// routing.json. kData if metrics.jsonl cannot be read. Time in proportion to the steps, whatever a line
// holds.
Expected<RunRecord> read_run_record(const std::string& run_dir);

}  // namespace wych::train
