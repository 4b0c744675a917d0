#include "train/loop.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "config/model_size.h"
#include "config/schema.h"
#include "data/dataset.h"
#include "model/update.h"
#include "ops/step_decision.h"
#include "plan/report.h"
#include "train/checkpointing.h"
#include "train/final_evaluation.h"
#include "train/generate.h"
#include "train/learning_rate.h"
#include "train/report.h"
#include "train/run_data.h"
#include "train/run_folder.h"
#include "train/run_request.h"
#include "train/run_text.h"

namespace wych::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class TrainingRun {
 public:
  TrainingRun(const config::Config& config, StopRequests& requests, RunView& view)
      : config_(config),
        requests_(requests),
        view_(view),
        pool_(static_cast<int>(config.run.threads)),
        schedule_(LearningRateSchedule::from(config)) {}

  // However the run ends, once there is a run folder there is a report.
  Expected<RunEnd> run() {
    WYCH_TRY(const FolderLock lock, RunFolder::lock(config_));
    Expected<RunEnd> end = train();
    if (folder_) {
      if (!end) {
        save_before(end.error());
        record(end.error());
      }
      report();
    } else {
      RunFolder::remove_unused(config_);
    }
    return end;
  }

 private:
  Expected<RunEnd> train() {
    WYCH_TRY(const std::optional<std::string> resume, RunFolder::find_resume(config_));
    WYCH_TRY_VOID(prepare(resume));
    show_header(resume.value_or(""));
    while (progress_.step < last_step()) {
      WYCH_TRY_VOID(one_step());
      WYCH_TRY_VOID(after_step());
      WYCH_TRY(const std::optional<RunEnd> end, answer_requests());
      if (end) {
        return *end;
      }
    }
    return finish();
  }

  [[nodiscard]] i64 last_step() const {
    return config_.run.hard_stop > 0 ? std::min(config_.run.hard_stop, schedule_.total) : schedule_.total;
  }

  Expected<void> prepare(const std::optional<std::string>& resume) {
    const ProgramRequest request = run_request(config_);
    WYCH_TRY(RunData data, open_run_data(config_, request.evaluation_sequences));
    data_.emplace(std::move(data));
    WYCH_TRY_VOID(check_sample_prompt());
    WYCH_TRY(engine_, Engine::create(config_, request, pool_));
    if (resume) {
      Expected<RunProgress> loaded = load_run(*engine_, *resume);
      if (!loaded) {
        return RunFolder::with_remedy(std::move(loaded).error(), *resume, config_);
      }
      progress_ = *loaded;
      WYCH_TRY_VOID(check_data(*resume));
      first_step_ = progress_.step;
    } else {
      engine_->initialise(config_.run.seed);
    }
    progress_.data_fingerprint = data_->fingerprint;
    WYCH_TRY(folder_, RunFolder::open(config_, engine_->programs(), pool_.num_threads(), progress_.step,
                                      data_->tokenizer ? &*data_->tokenizer : nullptr));
    io::JsonObject details;
    details.add("data_fingerprint", fmt::format("{:016x}", data_->fingerprint));
    if (!data_->shares.empty()) {
      details.add("data_shares", fmt::format("{}", fmt::join(data_->shares, "\n")));
    }
    if (resume) {
      folder_->log().info("resumed from {} after step {}", *resume, progress_.step);
      WYCH_TRY_VOID(report_changes(*resume));
      details.add("checkpoint", *resume);
    }
    WYCH_TRY_VOID(folder_->write_event(progress_.step, resume ? "resume" : "start", details));
    if (!resume && config_.checkpoint.save_first) {
      WYCH_TRY_VOID(save());
    }
    started_ = Clock::now();
    return {};
  }

  // The configuration wins over the checkpoint's; what differs is said.
  Expected<void> report_changes(const std::string& checkpoint) {
    WYCH_TRY(const io::CheckpointReader reader, io::CheckpointReader::open(checkpoint));
    WYCH_TRY(const std::string before, reader.config_text());
    for (const std::string& change : RunFolder::changed_settings(before, config_)) {
      say("changed since the checkpoint: " + change);
    }
    return {};
  }

  // Before the run rather than at the first sample.
  Expected<void> check_sample_prompt() const {
    if (config_.log.sample_interval == 0) {
      return {};
    }
    const i64 tokens = std::ssize(data_->tokenizer->encode(config_.log.sample_prompt));
    if (tokens < config_.model.sequence_length) {
      return {};
    }
    return Error{.kind = ErrorKind::kUsage,
                 .where = "log.sample_prompt",
                 .what = fmt::format("has {} tokens, expected fewer than model.sequence_length, {}", tokens,
                                     config_.model.sequence_length),
                 .hint = "shorten it",
                 .more = {}};
  }

  // A resumed run must find the data it began with, in the same order.
  Expected<void> check_data(const std::string& checkpoint) const {
    if (progress_.data_fingerprint == data_->fingerprint) {
      return {};
    }
    return Error{
        .kind = ErrorKind::kData,
        .where = "data",
        .what = fmt::format("{} was trained on other training files than {} now names, or in another order: "
                            "data.seed, model.sequence_length, how sequences are made, or the mixture differ",
                            checkpoint, config_.data.dir.empty() ? "[data]" : config_.data.dir),
        .hint =
            "go on with the data and settings the run began with (a mixture's size is data.mixture_tokens in "
            "the run's config.toml), or start a new run with another --run.dir",
        .more = {}};
  }

  void show_header(const std::string& resumed_from) {
    const config::ModelConfig& model = config_.model;
    const config::ParameterCounts counts = config::count_parameters(model);
    const Programs& programs = engine_->programs();
    RunHeader header;
    header.name = config_.run.name;
    header.dir = config_.run.dir;
    header.model = model_text(model);
    header.data = data_->description;
    header.active_parameters = counts.active;
    header.total_parameters = counts.total;
    header.active_non_embedding_parameters = counts.active - counts.embedding;
    header.device = engine_->device_name();
    header.memory_table = plan::memory_table(programs.layout, planned(programs));
    header.resumed_from = resumed_from;
    header.first_step = progress_.step;
    header.total_steps = last_step();
    header.batch_tokens = config::batch_tokens(config_);
    view_.header(header);
    for (const std::string& share : data_->shares) {
      say(share);
    }
    if (!data_->valid) {
      say("no held-out text: the run is not evaluated");
    }
  }

  Expected<void> one_step() {
    const Clock::time_point start = Clock::now();
    WYCH_TRY_VOID(data_->sampler.fill(progress_.position, batch_));
    StepTiming timing{.data_seconds = seconds_since(start)};
    result_ = engine_->step(batch_, schedule_.at(progress_.step));
    timing.seconds = seconds_since(start);
    const RunProgress before = progress_;
    progress_.position = data_->sampler.after(progress_.position);
    ++progress_.step;
    progress_.tokens += config::batch_tokens(config_);
    timing.tokens_per_second =
        static_cast<double>((progress_.step - first_step_) * config::batch_tokens(config_)) /
        seconds_since(started_);
    WYCH_TRY_VOID(folder_->write_step(config_, progress_.step, progress_.tokens, result_, timing));
    constexpr double kSmoothing = 0.9;  // of the step time, over about ten steps
    step_seconds_ =
        step_seconds_ == 0 ? timing.seconds : kSmoothing * step_seconds_ + (1 - kSmoothing) * timing.seconds;
    show_step();
    if (Expected<void> targets = check_targets(result_.targets, "the batch"); !targets) {
      progress_ = before;  // it changed no weight and does not count
      return targets;
    }
    return check_step();
  }

  void show_step() {
    StepReport report;
    report.step = progress_.step;
    report.total_steps = last_step();
    report.tokens = progress_.tokens;
    report.epoch = progress_.position.epoch;
    report.ce = result_.ce;
    report.balance = result_.balance;
    report.grad_norm = result_.grad_norm;
    report.learning_rate = result_.learning_rate;
    report.skipped = result_.skipped;
    report.non_finite = result_.non_finite;
    report.tokens_per_second = static_cast<double>(config::batch_tokens(config_)) / step_seconds_;
    report.elapsed_seconds = seconds_since(started_);
    const auto done = static_cast<double>(progress_.step - first_step_);
    report.eta_seconds = report.elapsed_seconds / done * static_cast<double>(last_step() - progress_.step);
    for (const std::vector<i64>& counts : result_.expert_counts) {
      report.imbalance = std::max(report.imbalance, load_imbalance(counts));
    }
    report.expert_counts = result_.expert_counts;
    view_.step(report);
  }

  // A mean over no targets is no number.
  [[nodiscard]] Expected<void> check_targets(double targets, std::string_view what) const {
    if (targets > 0) {
      return {};
    }
    return Error{.kind = ErrorKind::kData,
                 .where = fmt::format("step {}", progress_.step),
                 .what = fmt::format("no token of {} has a target", what),
                 .hint =
                     "every document is one token long, or label masks leave nothing: look at the data with "
                     "`wych data inspect`",
                 .more = {}};
  }

  // Whether the run may go on after this step's decision.
  Expected<void> check_step() {
    if (!result_.non_finite) {
      if (result_.skipped) {
        const std::string text =
            fmt::format("step {} skipped: loss {:.4f} or gradient norm {:.4f} is an outlier", progress_.step,
                        result_.ce, result_.grad_norm);
        say(text);
        WYCH_TRY_VOID(folder_->write_event(
            progress_.step, "skip",
            io::JsonObject().add("loss", result_.ce).add("grad_norm", result_.grad_norm)));
      }
      return {};
    }
    WYCH_TRY_VOID(
        folder_->write_event(progress_.step, "non_finite", io::JsonObject().add("loss", result_.ce)));
    const std::vector<double> state = engine_->read_doubles(model::kOptimizerStatePath);
    const auto consecutive = static_cast<i64>(state[ops::StepState::kConsecutiveNonFinite]);
    const bool halt = config_.optimizer.non_finite == config::NonFinitePolicy::kHalt;
    if (halt || consecutive >= config_.optimizer.max_consecutive_non_finite) {
      return Error{
          .kind = ErrorKind::kNonFinite,
          .where = fmt::format("step {}", progress_.step),
          .what = fmt::format("loss {} and gradient norm {} are not finite, {} step(s) in a row", result_.ce,
                              result_.grad_norm, consecutive),
          .hint =
              "the weights are those of the last finite step; resume from the latest checkpoint with a lower "
              "--optimizer.lr, or look at the batch",
          .more = {}};
    }
    say(fmt::format("step {}: loss or gradient is not finite; the update was not applied", progress_.step));
    return {};
  }

  [[nodiscard]] bool is_due(i64 interval) const { return interval > 0 && progress_.step % interval == 0; }

  Expected<void> after_step() {
    const bool last = progress_.step == last_step();
    if (data_->valid && is_due(config_.log.eval_interval) && !last) {
      WYCH_TRY_VOID(evaluate(config_.log.eval_batches));
    }
    if (is_due(config_.log.sample_interval) || (last && config_.log.sample_interval > 0)) {
      WYCH_TRY_VOID(sample());
    }
    if (is_due(config_.checkpoint.interval) && !last) {
      WYCH_TRY_VOID(save());
    }
    return {};
  }

  // Mean loss of the first `max_batches` held-out batches of config.data.batch_sequences (0: all), whatever
  // the microbatch.
  Expected<EvalReport> measure(i64 max_batches) {
    const i64 per_batch =
        config_.data.batch_sequences / data_->valid->instances().options().sequences_per_batch;
    const i64 available = data_->valid->num_batches();
    const i64 num_batches = max_batches > 0 ? std::min(max_batches * per_batch, available) : available;
    Evaluation sum;
    for (i64 index = 0; index < num_batches; ++index) {
      WYCH_TRY_VOID(data_->valid->fill(index, evaluation_batch_));
      const Evaluation part = engine_->evaluate(evaluation_batch_);
      sum.ce_sum += part.ce_sum;
      sum.targets += part.targets;
    }
    WYCH_TRY_VOID(check_targets(sum.targets, "the held-out text"));
    EvalReport report;
    report.step = progress_.step;
    report.ce = sum.ce_sum / sum.targets;
    report.bits_per_byte = held_out_bits(data_->valid->instances(), report.ce);
    return report;
  }

  Expected<void> evaluate(i64 max_batches) {
    const Clock::time_point start = Clock::now();
    WYCH_TRY(const EvalReport report, measure(max_batches));
    view_.evaluated(report);
    return folder_->write_evaluation(report, {}, seconds_since(start));
  }

  // The whole held-out text, beside what a unigram and a bigram reach on it, and where the routers send it.
  Expected<void> evaluate_finally() {
    const Clock::time_point start = Clock::now();
    const data::Instances& held_out = data_->valid->instances();
    WYCH_TRY(FinalEvaluation final,
             evaluate_held_out(*engine_, config_.model, data_->sampler.instances().files(), held_out,
                               data_->tokenizer ? &*data_->tokenizer : nullptr, progress_.step));
    const i64 targets =
        std::accumulate(final.domains.begin(), final.domains.end(), i64{0},
                        [](i64 sum, const DomainScore& score) { return sum + score.targets; });
    WYCH_TRY_VOID(check_targets(static_cast<double>(targets), "the held-out text"));
    view_.evaluated(final.report);
    WYCH_TRY_VOID(folder_->write_event(progress_.step, "final_evaluation", scores_json(final)));
    WYCH_TRY_VOID(folder_->write_evaluation(final.report, final.domains, seconds_since(start)));
    if (final.routing.empty()) {
      return {};
    }
    if (engine_->programs().prefill) {
      WYCH_TRY_VOID(add_written_text(final.routing, held_out.options()));
    }
    return write_routing(config_.run.dir, final.routing);
  }

  // What the model itself writes, as long as one sequence has room, with its routes: in front of the others.
  Expected<void> add_written_text(RoutingRecord& routing, const data::BatchOptions& options) {
    std::vector<i32> ids = data_->tokenizer->encode(config_.log.sample_prompt);
    const i64 given = std::ssize(ids);
    WYCH_TRY(const std::string text, continuation(config_.model.sequence_length));
    const std::vector<i32> written = data_->tokenizer->encode(text);
    ids.insert(ids.end(), written.begin(), written.end());
    routing.texts.insert(routing.texts.begin(), route_text(*engine_, &*data_->tokenizer, options, routing,
                                                           "what the model writes", ids, given));
    return {};
  }

  Expected<std::string> continuation(i64 max_new_tokens) {
    const GenerateOptions options{.max_new_tokens = max_new_tokens,
                                  .temperature = 0.8,
                                  .seed = static_cast<u64>(config_.run.seed + progress_.step)};
    return generate(*engine_, *data_->tokenizer, config_.log.sample_prompt, options, [](std::string_view) {});
  }

  Expected<void> sample() {
    WYCH_TRY(const std::string text, continuation(config_.log.sample_tokens));
    view_.sampled(progress_.step, config_.log.sample_prompt, text);
    return folder_->write_event(progress_.step, "sample",
                                io::JsonObject().add("prompt", config_.log.sample_prompt).add("text", text));
  }

  Expected<void> save() {
    const Clock::time_point start = Clock::now();
    WYCH_TRY(const std::string dir, save_run(*engine_, config_, progress_));
    saved_step_ = progress_.step;
    const double seconds = seconds_since(start);
    say(fmt::format("saved {} in {:.2f} s", dir, seconds));
    WYCH_TRY_VOID(folder_->write_save_time(progress_.step, seconds));
    return folder_->write_event(progress_.step, "checkpoint",
                                io::JsonObject().add("dir", dir).add("seconds", seconds));
  }

  Expected<std::optional<RunEnd>> answer_requests() {
    if (requests_.checkpoint.exchange(0) > 0) {
      WYCH_TRY_VOID(save());
    }
    const bool interrupt = requests_.interrupt.load() > 0;
    const bool requeue = requests_.requeue.load() > 0;
    if ((!interrupt && !requeue) || progress_.step == last_step()) {
      return std::optional<RunEnd>();  // a finished run ends as one
    }
    if (saved_step_ != progress_.step) {
      WYCH_TRY_VOID(save());
    }
    say(fmt::format("stopped at step {} of {}; the same command goes on from there", progress_.step,
                    last_step()));
    return std::optional<RunEnd>(requeue ? RunEnd::kRequeue : RunEnd::kInterrupted);
  }

  Expected<RunEnd> finish() {
    const bool nothing_done = progress_.step == first_step_ && first_step_ > 0;
    if (nothing_done && RunFolder::has_event(config_, "end")) {
      const bool stopped_hard = last_step() < schedule_.total;
      say(fmt::format(
          "nothing to do: the run is at step {} of {}; go on with a larger --run.{}, or start anew with "
          "another --run.dir",
          progress_.step, last_step(),
          stopped_hard                ? "hard_stop"
          : config_.run.max_steps > 0 ? "max_steps"
                                      : "max_tokens"));
      return RunEnd::kFinished;
    }
    if (config_.checkpoint.save_final && saved_step_ != progress_.step && !nothing_done) {
      WYCH_TRY_VOID(save());
    }
    if (data_->valid) {
      WYCH_TRY_VOID(evaluate_finally());
    }
    WYCH_TRY_VOID(folder_->write_last_metrics(progress_.step));
    WYCH_TRY_VOID(folder_->write_event(progress_.step, "end"));
    return RunEnd::kFinished;
  }

  // Data that cannot be used, or a metrics file that cannot be written, does not take back the steps before.
  void save_before(const Error& error) {
    if (error.kind != ErrorKind::kData || progress_.step == first_step_ || saved_step_ == progress_.step) {
      return;
    }
    if (const Expected<void> saved = save(); !saved) {
      say("no checkpoint: " + saved.error().text());
    }
  }

  // Why the run ended goes where the run is read. A disk that takes no line changes nothing about that.
  void record(const Error& error) {
    folder_->log().error("{}", error.text());
    (void)folder_->write_event(progress_.step, "error", io::JsonObject().add("text", error.text()));
  }

  // A report that cannot be written does not change how the run ended.
  void report() {
    if (const Expected<void> written = write_report(config_.run.dir); !written) {
      say("no report: " + written.error().text());
    }
  }

  void say(const std::string& text) {
    folder_->log().info("{}", text);
    view_.message(text);
  }

  const config::Config& config_;
  StopRequests& requests_;
  RunView& view_;
  ThreadPool pool_;
  LearningRateSchedule schedule_;
  std::optional<RunData> data_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<RunFolder> folder_;
  data::Batch batch_;
  data::Batch evaluation_batch_;
  StepResult result_;
  RunProgress progress_;
  i64 first_step_ = 0;
  i64 saved_step_ = -1;
  double step_seconds_ = 0;
  Clock::time_point started_;
};

}  // namespace

Expected<RunEnd> run_training(const config::Loaded& loaded, StopRequests& requests, RunView& view) {
  return TrainingRun(loaded.config, requests, view).run();
}

}  // namespace wych::train
