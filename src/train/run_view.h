// RunView: what a person sees of a run. The loop reports events; a view draws them: live on a terminal, one
// plain line an interval elsewhere, JSON lines on request. A view never changes a run.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "config/config.h"

namespace wych::train {

struct RunHeader {
  std::string name;
  std::string dir;
  std::string model;  // "4 layers, d_model 128, 8 experts top-2"
  std::string data;   // "data/laptop: 2.21 M tokens, vocabulary 2048"
  i64 active_parameters = 0;
  i64 total_parameters = 0;
  i64 active_non_embedding_parameters = 0;
  std::string device;        // "CPU, 2 threads"
  std::string memory_table;  // the plan's, several lines
  std::string resumed_from;  // a checkpoint; empty: from the start
  i64 first_step = 0;        // steps done by then
  i64 total_steps = 0;
  i64 batch_tokens = 0;
};

struct StepReport {
  i64 step = 0;  // steps done, this one included
  i64 total_steps = 0;
  i64 tokens = 0;  // consumed so far
  i64 epoch = 1;
  double ce = 0;
  double balance = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  bool skipped = false;
  bool non_finite = false;
  double tokens_per_second = 0;  // smoothed over the last steps
  double eta_seconds = 0;
  double elapsed_seconds = 0;
  double imbalance = 0;                         // largest over layers of max / mean load
  std::vector<std::vector<i64>> expert_counts;  // per MoE layer
};

// How well a text is predicted.
struct Scores {
  double ce = 0;             // nats per target
  double bits_per_byte = 0;  // 0 if the data does not say how many bytes it has
  // The same text under simpler models of the same training data; 0 if not known.
  double unigram_ce = 0;
  double unigram_bits_per_byte = 0;
  double bigram_ce = 0;
  double bigram_bits_per_byte = 0;
};

// Of one domain of the held-out text.
struct DomainScore : Scores {
  std::string name;
  i64 targets = 0;
};

struct EvalReport : Scores {
  i64 step = 0;
  bool final = false;
};

class RunView {
 public:
  virtual ~RunView() = default;
  virtual void header(const RunHeader& header) = 0;
  virtual void step(const StepReport& report) = 0;
  virtual void evaluated(const EvalReport& report) = 0;
  virtual void sampled(i64 step, std::string_view prompt, std::string_view continuation) = 0;
  // A line worth reading: a checkpoint, a signal, a warning.
  virtual void message(std::string_view text) = 0;
  // Leaves the terminal as it was found. Called once, also after an error.
  virtual void finish() = 0;
};

// How the output stream looks; decided in the command line from isatty, NO_COLOR, COLUMNS, TERM.
struct Terminal {
  bool interactive = false;
  bool color = false;
  int columns = 0;  // at most this many; 0: as wide as the terminal is at the moment, 80 if it has no width
};

// The view for a style: kAuto is live on an interactive terminal, else plain. A plain view prints a step line
// every `interval` steps. `out` must outlive the view.
std::unique_ptr<RunView> make_run_view(config::LogStyle style, const Terminal& terminal, i64 interval,
                                       std::FILE* out);

}  // namespace wych::train
