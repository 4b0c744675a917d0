// The folder of a run: config.toml, env.json, plan.json, metrics.jsonl and the same numbers as TensorBoard
// events, events.jsonl, run.log and the tokenizer. Checkpoints are in checkpointing.h, the reader for people
// in report.h.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/expected.h"
#include "base/folder_lock.h"
#include "base/log.h"
#include "config/config.h"
#include "io/metrics.h"
#include "io/tensorboard.h"
#include "train/engine.h"

namespace wych::train {

class RunFolder {
 public:
  // Creates the folder and takes it for this process. kUsage if another process trains in it.
  static Expected<FolderLock> lock(const config::Config& config);

  // The settings in which `config` differs from a checkpoint's configuration text: "optimizer.lr 0.1 -> 0.2".
  static std::vector<std::string> changed_settings(const std::string& before, const config::Config& config);

  // Whether events.jsonl has an event of that kind.
  static bool has_event(const config::Config& config, std::string_view kind);

  // The checkpoint to resume from, by config.run.resume: "auto" the folder's latest if there is one, "never"
  // none (an error if the folder holds checkpoints), else the one in that folder (an error if the run's
  // folder holds another run). Changes nothing.
  static Expected<std::optional<std::string>> find_resume(const config::Config& config);

  // Opens the files of a locked folder for a run that goes on after `resumed_step`. kData if the folder
  // cannot be written.
  static Expected<std::unique_ptr<RunFolder>> open(const config::Config& config, const Programs& programs,
                                                   i64 resumed_step);

  // Appends a line to metrics.jsonl: Olmo-core's names, arrays per layer for expert counts. The scalars among
  // them go to TensorBoard too.
  Expected<void> write_step(const config::Config& config, i64 step, i64 tokens, const StepResult& result,
                            double seconds);
  Expected<void> write_evaluation(i64 step, double ce, double bits_per_byte);
  Expected<void> write_event(i64 step, std::string_view kind, const io::JsonObject& details = {});
  Log& log() { return log_; }

 private:
  RunFolder(io::MetricsWriter metrics, io::EventsWriter events, io::TensorBoardWriter tensorboard)
      : metrics_(std::move(metrics)),
        events_(std::move(events)),
        tensorboard_(std::move(tensorboard)),
        log_(-1) {}
  using JsonMember = std::pair<std::string, std::string>;  // name, JSON text
  Expected<void> write_metrics(i64 step, std::span<const io::Scalar> scalars,
                               std::span<const JsonMember> arrays);

  io::MetricsWriter metrics_;
  io::EventsWriter events_;
  io::TensorBoardWriter tensorboard_;
  Log log_;
};

// max / mean of a layer's expert counts; 1 when balanced.
double load_imbalance(const std::vector<i64>& counts);

}  // namespace wych::train
