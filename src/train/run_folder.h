// The folder of a run: config.toml, env.json, plan.json, metrics.jsonl and the same numbers as TensorBoard
// events, events.jsonl, run.log and the tokenizer. Checkpoints are in checkpointing.h, the reader for people
// in report.h.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/expected.h"
#include "base/folder_lock.h"
#include "base/log.h"
#include "config/config.h"
#include "data/tokenizer.h"
#include "io/metrics.h"
#include "io/tensorboard.h"
#include "train/engine.h"
#include "train/run_view.h"

namespace wych::train {

// Where the time of a step went, and the run's so far.
struct StepTiming {
  double seconds = 0;            // of the step, its data included
  double data_seconds = 0;       // until its batch was there
  double tokens_per_second = 0;  // of this session up to here, everything included
};

class RunFolder {
 public:
  // Creates the folder and takes it for this process. kUsage if another process trains in it.
  static Expected<FolderLock> lock(const config::Config& config);

  // Takes back what lock() made, for a run that did not begin: removes the folder if nothing but the lock is
  // in it.
  static void remove_unused(const config::Config& config);

  // The settings in which `config` differs from a checkpoint's configuration text: "optimizer.lr 0.1 -> 0.2".
  static std::vector<std::string> changed_settings(const std::string& before, const config::Config& config);

  // Whether events.jsonl has an event of that kind.
  static bool has_event(const config::Config& config, std::string_view kind);

  // The checkpoint to resume from, by config.run.resume: "auto" the folder's latest if there is one, "never"
  // none (an error if the folder holds checkpoints), else the one in that folder (an error if the run's
  // folder holds another run). Changes nothing.
  static Expected<std::optional<std::string>> find_resume(const config::Config& config);

  // `error`, which reading `checkpoint` made, with what to do about it: the settings that make another model
  // of it, or another checkpoint of the same run.
  static Error with_remedy(Error error, const std::string& checkpoint, const config::Config& config);

  // Opens the files of a locked folder for a run on `num_threads` that goes on after `resumed_step`, and
  // writes the tokenizer there unless it is nullptr. kData if the folder cannot be written.
  static Expected<std::unique_ptr<RunFolder>> open(const config::Config& config, const Programs& programs,
                                                   int num_threads, i64 resumed_step,
                                                   const data::Tokenizer* tokenizer);

  // Each appends a line to metrics.jsonl: Olmo-core's names, arrays per layer for expert counts. The scalars
  // among them go to TensorBoard too, and at every config.log.interval steps the counts as histograms.
  Expected<void> write_step(const config::Config& config, i64 step, i64 tokens, const StepResult& result,
                            const StepTiming& timing);
  // eval/lm/valid, and per domain eval/lm/NAME. `seconds`: what the evaluation took.
  Expected<void> write_evaluation(const EvalReport& report, std::span<const DomainScore> domains,
                                  double seconds);
  Expected<void> write_save_time(i64 step, double seconds);
  // Replaces RUN/metrics.json: each scalar's last value in this session, and the step.
  Expected<void> write_last_metrics(i64 step) const;
  Expected<void> write_event(i64 step, std::string_view kind, const io::JsonObject& details = {});
  Log& log() { return log_; }

 private:
  RunFolder(std::string dir, io::MetricsWriter metrics, io::EventsWriter events,
            io::TensorBoardWriter tensorboard)
      : dir_(std::move(dir)),
        metrics_(std::move(metrics)),
        events_(std::move(events)),
        tensorboard_(std::move(tensorboard)),
        log_(-1) {}
  // The line and the scalars' record.
  Expected<void> write_metrics(i64 step, std::span<const io::Scalar> scalars,
                               std::span<const io::Histogram> histograms, bool draw_histograms);

  std::string dir_;
  std::map<std::string, double> last_;  // values by name
  io::MetricsWriter metrics_;
  io::EventsWriter events_;
  io::TensorBoardWriter tensorboard_;
  Log log_;
};

// max / mean of a layer's expert counts; 1 when balanced.
double load_imbalance(const std::vector<i64>& counts);

}  // namespace wych::train
