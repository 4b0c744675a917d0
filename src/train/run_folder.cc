#include "train/run_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <sstream>

#include "config/model_size.h"
#include "config/schema.h"
#include "data/dataset.h"
#include "io/checkpoint.h"

namespace wych::train {
namespace {

std::string plan_json(const config::Config& config, const Programs& programs) {
  io::JsonObject bytes;
  for (int arena = 0; arena < ir::kNumCategories; ++arena) {
    const auto category = static_cast<ir::Category>(arena);
    bytes.add(ir::category_name(category), programs.layout.bytes(category));
  }
  io::JsonObject lower_bounds;
  for (const std::optional<plan::Program>* program :
       {&programs.train, &programs.update, &programs.evaluate}) {
    if (*program) {
      const plan::ArenaPlan& scratch = (*program)->arenas[static_cast<std::size_t>(ir::Category::kScratch)];
      lower_bounds.add_raw((*program)->name,
                           io::JsonObject()
                               .add("scratch_bytes", scratch.bytes)
                               .add("scratch_lower_bound", scratch.lower_bound)
                               .add("instructions", static_cast<i64>((*program)->instructions.size()))
                               .text());
    }
  }
  return io::JsonObject()
             .add("mesh", "pp 1 x dp 1 x ep 1")
             .add("microbatches", programs.num_microbatches)
             .add("sequences", config.data.batch_sequences)
             .add_raw("bytes", bytes.text())
             .add("total_bytes", programs.layout.total_bytes())
             .add_raw("programs", lower_bounds.text())
             .text() +
         "\n";
}

// "section.key" -> value of a configuration's own TOML text.
std::map<std::string, std::string> parse_settings(const std::string& toml) {
  std::map<std::string, std::string> settings;
  std::string section;
  std::istringstream lines(toml);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("[")) {
      section = line.substr(1, line.find(']') - 1) + ".";
    } else if (const std::size_t equals = line.find(" = "); equals != std::string::npos) {
      settings[section + line.substr(0, equals)] = line.substr(equals + 3);
    }
  }
  return settings;
}

Expected<void> create_folder(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) {
    return Error{.kind = ErrorKind::kData,
                 .where = dir,
                 .what = "cannot create the run folder: " + error.message(),
                 .hint = "choose another with --run.dir",
                 .more = {}};
  }
  return {};
}

using Scalars = std::vector<io::Scalar>;

void add_losses(Scalars& scalars, const config::Config& config, const StepResult& result) {
  const config::RouterConfig& router = config.model.moe.router;
  const auto num_moe = static_cast<double>(result.expert_counts.size());
  const bool joint = router.balance_loss.scope == config::BalanceScope::kHfJoint;
  scalars.emplace_back("train/CE loss", result.ce);
  scalars.emplace_back("train/PPL", std::exp(result.ce));
  if (config.model.z_loss_weight > 0) {
    scalars.emplace_back("train/Z loss", config.model.z_loss_weight * result.z);
    scalars.emplace_back("train/Z loss unscaled", result.z);
  }
  if (router.balance_loss.weight > 0 && num_moe > 0) {
    scalars.emplace_back("train/load balancing loss",
                         router.balance_loss.weight * result.balance * (joint ? 1.0 : num_moe));
    scalars.emplace_back("train/load balancing loss unscaled", result.balance);
  }
  if (router.z_loss_weight > 0 && num_moe > 0) {
    scalars.emplace_back("train/router Z loss", router.z_loss_weight * result.router_z * num_moe);
    scalars.emplace_back("train/router Z loss unscaled", result.router_z);
  }
}

void add_throughput(Scalars& scalars, const config::Config& config, i64 tokens, const StepTiming& timing) {
  constexpr double kChinchillaTokens = 20;  // a parameter
  const double tokens_per_second = static_cast<double>(config::batch_tokens(config)) / timing.seconds;
  const double flops = config::train_flops_per_token(config.model);
  const config::ParameterCounts counts = config::count_parameters(config.model);
  const auto total = static_cast<double>(tokens);
  scalars.emplace_back("throughput/device/TPS", tokens_per_second);
  scalars.emplace_back("throughput/device/TPS (actual avg)", timing.tokens_per_second);
  scalars.emplace_back("throughput/device/BPS", 1 / timing.seconds);
  scalars.emplace_back("throughput/device/flopsPS", flops * tokens_per_second);
  scalars.emplace_back("throughput/device/data loading (s)", timing.data_seconds);
  scalars.emplace_back("throughput/device/data loading (%)", 100 * timing.data_seconds / timing.seconds);
  scalars.emplace_back("throughput/total tokens", total);
  scalars.emplace_back("throughput/total petaflops", 1e-15 * flops * total);
  scalars.emplace_back("throughput/chinchilla multiple",
                       total / (kChinchillaTokens * static_cast<double>(counts.active - counts.embedding)));
}

void add_load(Scalars& scalars, i64 block, const std::vector<i64>& counts) {
  const double mean = static_cast<double>(std::accumulate(counts.begin(), counts.end(), i64{0})) /
                      static_cast<double>(counts.size());
  double variance = 0;
  double entropy = 0;
  for (const i64 count : counts) {
    const double deviation = static_cast<double>(count) - mean;
    variance += deviation * deviation / static_cast<double>(counts.size());
    const double share = static_cast<double>(count) / (mean * static_cast<double>(counts.size()));
    entropy -= share > 0 ? share * std::log(share) : 0;
  }
  const double imbalance = load_imbalance(counts);
  scalars.emplace_back(fmt::format("train/block {}/load imbalance", block), imbalance);
  scalars.emplace_back(fmt::format("moe/block {}/max vio", block), imbalance - 1);
  scalars.emplace_back(fmt::format("moe/block {}/load cv", block),
                       mean > 0 ? std::sqrt(variance) / mean : 0.0);
  scalars.emplace_back(fmt::format("moe/block {}/load entropy", block), entropy);
  scalars.emplace_back(fmt::format("moe/block {}/dead experts", block),
                       static_cast<double>(std::count(counts.begin(), counts.end(), 0)));
}

void add_scores(Scalars& scalars, const std::string& label, const Scores& scores) {
  scalars.emplace_back(fmt::format("eval/lm/{}/CE loss", label), scores.ce);
  scalars.emplace_back(fmt::format("eval/lm/{}/PPL", label), std::exp(scores.ce));
  if (scores.bits_per_byte > 0) {
    scalars.emplace_back(fmt::format("eval/lm/{}/BPB", label), scores.bits_per_byte);
  }
}

}  // namespace

double load_imbalance(const std::vector<i64>& counts) {
  const i64 sum = std::accumulate(counts.begin(), counts.end(), i64{0});
  return sum == 0 ? 0.0
                  : static_cast<double>(*std::max_element(counts.begin(), counts.end())) *
                        static_cast<double>(counts.size()) / static_cast<double>(sum);
}

std::vector<std::string> RunFolder::changed_settings(const std::string& before,
                                                     const config::Config& config) {
  const std::map<std::string, std::string> old = parse_settings(before);
  std::vector<std::string> changes;
  for (const auto& [key, value] : parse_settings(config::to_toml(config))) {
    const auto found = old.find(key);
    if (found == old.end() || found->second != value) {
      changes.push_back(
          fmt::format("{} {} -> {}", key, found == old.end() ? "(unset)" : found->second, value));
    }
  }
  return changes;
}

Error RunFolder::with_remedy(Error error, const std::string& checkpoint, const config::Config& config) {
  if (error.kind != ErrorKind::kCheckpoint) {
    return error;
  }
  if (const Expected<io::CheckpointReader> reader = io::CheckpointReader::open(checkpoint)) {
    const Expected<std::string> before = reader->config_text();
    std::vector<std::string> changes;
    const std::vector<std::string> all = before ? changed_settings(*before, config) : changes;
    for (const std::string& change : all) {
      if (change.starts_with("model.") || change.starts_with("precision.")) {
        changes.push_back(change);
      }
    }
    if (!changes.empty()) {
      error.hint = fmt::format(
          "it was saved with other settings: {}; go on with those, or give --run.dir another folder",
          fmt::join(changes, ", "));
      return error;
    }
  }
  const std::vector<std::string> others = io::list_checkpoints(config.run.dir);
  const auto other = std::find_if(others.rbegin(), others.rend(), [&](const std::string& path) {
    return path != checkpoint && io::CheckpointReader::open(path);
  });
  if (other != others.rend()) {
    error.hint =
        fmt::format("the newest other checkpoint of this run is {0}: go on with --resume={0}", *other);
  }
  return error;
}

Expected<FolderLock> RunFolder::lock(const config::Config& config) {
  WYCH_TRY_VOID(create_folder(config.run.dir));
  return FolderLock::take(config.run.dir, ErrorKind::kData);
}

void RunFolder::remove_unused(const config::Config& config) {
  // A failure leaves an empty folder or a lock, which harm nobody.
  std::error_code error;
  const std::filesystem::directory_iterator entries(config.run.dir, error);
  const bool unused = std::all_of(begin(entries), end(entries),
                                  [](const auto& entry) { return entry.path().filename() == "lock"; });
  if (!error && unused) {
    std::filesystem::remove(config.run.dir + "/lock", error);
    std::filesystem::remove(config.run.dir, error);
  }
}

bool RunFolder::has_event(const config::Config& config, std::string_view kind) {
  const Expected<std::string> events = read_file(config.run.dir + "/events.jsonl", ErrorKind::kData);
  return events.has_value() && events->find(fmt::format("\"{}\"", kind)) != std::string::npos;
}

Expected<std::optional<std::string>> RunFolder::find_resume(const config::Config& config) {
  const std::string& resume = config.run.resume;
  if (resume != "auto" && resume != "never") {
    WYCH_TRY(std::string found, io::find_checkpoint(resume));
    std::error_code error;
    if (std::filesystem::equivalent(std::filesystem::path(found) / ".." / "..", config.run.dir, error)) {
      return std::optional<std::string>(std::move(found));
    }
    WYCH_TRY(const std::optional<std::string> own, io::latest_checkpoint(config.run.dir));
    if (own) {
      return Error{.kind = ErrorKind::kUsage,
                   .where = "run.resume",
                   .what = fmt::format("{} is of another run, and {} holds one already, at {}", found,
                                       config.run.dir, *own),
                   .hint = "give --run.dir another folder",
                   .more = {}};
    }
    return std::optional<std::string>(std::move(found));
  }
  WYCH_TRY(std::optional<std::string> latest, io::latest_checkpoint(config.run.dir));
  if (latest && resume == "never") {
    return Error{
        .kind = ErrorKind::kUsage,
        .where = "run.resume",
        .what = fmt::format("'never', but {} holds a run with checkpoint {}", config.run.dir, *latest),
        .hint = "give --run.dir another folder, or resume with --resume=auto",
        .more = {}};
  }
  return latest;
}

Expected<std::unique_ptr<RunFolder>> RunFolder::open(const config::Config& config, const Programs& programs,
                                                     int num_threads, i64 resumed_step,
                                                     const data::Tokenizer* tokenizer) {
  const std::string& dir = config.run.dir;
  WYCH_TRY_VOID(write_file_atomic(dir + "/config.toml", config::to_toml(config), ErrorKind::kData));
  WYCH_TRY_VOID(write_file_atomic(dir + "/plan.json", plan_json(config, programs), ErrorKind::kData));
  WYCH_TRY_VOID(io::write_environment(
      dir, io::environment().add("device", "cpu").add("threads", static_cast<i64>(num_threads))));
  if (tokenizer != nullptr) {
    WYCH_TRY_VOID(data::save_tokenizer(*tokenizer, dir));
  }
  WYCH_TRY(io::MetricsWriter metrics, io::MetricsWriter::open(dir, resumed_step));
  WYCH_TRY(io::EventsWriter events, io::EventsWriter::open(dir));
  WYCH_TRY(io::TensorBoardWriter tensorboard, io::TensorBoardWriter::create(dir, resumed_step));
  std::unique_ptr<RunFolder> folder(
      new RunFolder(dir, std::move(metrics), std::move(events), std::move(tensorboard)));
  WYCH_TRY_VOID(folder->log_.open_file(dir + "/run.log"));
  return folder;
}

Expected<void> RunFolder::write_step(const config::Config& config, i64 step, i64 tokens,
                                     const StepResult& result, const StepTiming& timing) {
  std::vector<io::Scalar> scalars;
  add_losses(scalars, config, result);
  const auto batch = static_cast<double>(config::batch_tokens(config));
  scalars.emplace_back("train/masked labels (%)", 1 - result.targets / batch);
  scalars.emplace_back("train/global batch size", batch);
  scalars.emplace_back("optim/total grad norm", result.grad_norm);
  scalars.emplace_back("optim/LR (group 0)", result.learning_rate);
  scalars.emplace_back("optim/step skipped", result.applied ? 0 : 1);
  add_throughput(scalars, config, tokens, timing);
  std::vector<io::Histogram> counts;
  for (i64 block = 0; block < config.model.n_layers; ++block) {
    if (!config.model.is_dense_layer(block)) {
      const std::vector<i64>& layer = result.expert_counts[counts.size()];
      add_load(scalars, block, layer);
      counts.emplace_back(fmt::format("moe/block {}/assigned tokens", block), layer);
    }
  }
  const bool draw = config.log.interval > 0 && step % config.log.interval == 0;
  return write_metrics(step, scalars, counts, draw);
}

Expected<void> RunFolder::write_evaluation(const EvalReport& report, std::span<const DomainScore> domains,
                                           double seconds) {
  std::vector<io::Scalar> scalars;
  add_scores(scalars, "valid", report);
  for (const DomainScore& domain : domains) {
    add_scores(scalars, domain.name, domain);
  }
  scalars.emplace_back("throughput/in-loop eval time (s)", seconds);
  return write_metrics(report.step, scalars, {}, false);
}

Expected<void> RunFolder::write_save_time(i64 step, double seconds) {
  const std::vector<io::Scalar> scalars = {{"train/checkpoint_save_duration_s", seconds}};
  return write_metrics(step, scalars, {}, false);
}

Expected<void> RunFolder::write_metrics(i64 step, std::span<const io::Scalar> scalars,
                                        std::span<const io::Histogram> histograms, bool draw_histograms) {
  io::JsonObject line;
  for (const auto& [name, value] : scalars) {
    line.add(name, value);
    last_[name] = value;
  }
  for (const auto& [name, counts] : histograms) {
    line.add_raw(name, io::json_list(counts));
  }
  WYCH_TRY_VOID(metrics_.write(step, line));
  return tensorboard_.write(step, scalars, draw_histograms ? histograms : std::span<const io::Histogram>());
}

Expected<void> RunFolder::write_last_metrics(i64 step) const {
  io::JsonObject values;
  values.add("step", step);
  for (const auto& [name, value] : last_) {
    values.add(name, value);
  }
  return write_file_atomic(dir_ + "/metrics.json", values.text() + "\n", ErrorKind::kData);
}

Expected<void> RunFolder::write_event(i64 step, std::string_view kind, const io::JsonObject& details) {
  return events_.write(step, kind, details);
}

}  // namespace wych::train
