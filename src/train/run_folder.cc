#include "train/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <sstream>

#include "config/schema.h"
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

void add_load(std::vector<io::Scalar>& scalars, std::size_t block, const std::vector<i64>& counts) {
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
  scalars.emplace_back(fmt::format("train/block {}/load imbalance", block), load_imbalance(counts));
  scalars.emplace_back(fmt::format("moe/block {}/load cv", block),
                       mean > 0 ? std::sqrt(variance) / mean : 0.0);
  scalars.emplace_back(fmt::format("moe/block {}/load entropy", block), entropy);
  scalars.emplace_back(fmt::format("moe/block {}/dead experts", block),
                       static_cast<double>(std::count(counts.begin(), counts.end(), 0)));
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

Expected<FolderLock> RunFolder::lock(const config::Config& config) {
  WYCH_TRY_VOID(create_folder(config.run.dir));
  return FolderLock::take(config.run.dir, ErrorKind::kData);
}

bool RunFolder::has_event(const config::Config& config, std::string_view kind) {
  const Expected<std::string> events = read_file(config.run.dir + "/events.jsonl", ErrorKind::kData);
  return events.has_value() && events->find(fmt::format("\"{}\"", kind)) != std::string::npos;
}

Expected<std::optional<std::string>> RunFolder::find_resume(const config::Config& config) {
  const std::string& resume = config.run.resume;
  if (resume != "auto" && resume != "never") {
    WYCH_TRY(std::string found, io::find_checkpoint(resume));
    WYCH_TRY(const std::optional<std::string> own, io::latest_checkpoint(config.run.dir));
    std::error_code error;
    const bool inside =
        std::filesystem::equivalent(std::filesystem::path(found) / ".." / "..", config.run.dir, error);
    if (own && !inside) {
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
                                                     i64 resumed_step) {
  const std::string& dir = config.run.dir;
  WYCH_TRY_VOID(write_file_atomic(dir + "/config.toml", config::to_toml(config), ErrorKind::kData));
  WYCH_TRY_VOID(write_file_atomic(dir + "/plan.json", plan_json(config, programs), ErrorKind::kData));
  WYCH_TRY_VOID(io::write_environment(dir, io::environment()));
  const std::string tokenizer = config.data.dir + "/tokenizer.json";
  if (std::filesystem::exists(tokenizer)) {
    WYCH_TRY(const std::string text, read_file(tokenizer, ErrorKind::kData));
    WYCH_TRY_VOID(write_file_atomic(dir + "/tokenizer.json", text, ErrorKind::kData));
  }
  WYCH_TRY(io::MetricsWriter metrics, io::MetricsWriter::open(dir, resumed_step));
  WYCH_TRY(io::EventsWriter events, io::EventsWriter::open(dir));
  WYCH_TRY(io::TensorBoardWriter tensorboard, io::TensorBoardWriter::create(dir, resumed_step));
  std::unique_ptr<RunFolder> folder(
      new RunFolder(std::move(metrics), std::move(events), std::move(tensorboard)));
  WYCH_TRY_VOID(folder->log_.open_file(dir + "/run.log"));
  return folder;
}

Expected<void> RunFolder::write_step(const config::Config& config, i64 step, i64 tokens,
                                     const StepResult& result, double seconds) {
  const config::RouterConfig& router = config.model.moe.router;
  const auto num_moe = static_cast<double>(result.expert_counts.size());
  const bool joint = router.balance_loss.scope == config::BalanceScope::kHfJoint;
  const double tokens_per_second = static_cast<double>(config::batch_tokens(config)) / seconds;
  std::vector<io::Scalar> scalars = {{"train/CE loss", result.ce}, {"train/PPL", std::exp(result.ce)}};
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
  scalars.emplace_back("optim/total grad norm", result.grad_norm);
  scalars.emplace_back("optim/LR (group 0)", result.learning_rate);
  scalars.emplace_back("optim/step skipped", result.applied ? 0 : 1);
  scalars.emplace_back("throughput/device/TPS", tokens_per_second);
  scalars.emplace_back("throughput/total tokens", static_cast<double>(tokens));
  std::vector<JsonMember> arrays;
  std::size_t layer = 0;
  for (i64 block = 0; block < config.model.n_layers; ++block) {
    if (!config.model.is_dense_layer(block)) {
      const std::vector<i64>& counts = result.expert_counts[layer++];
      add_load(scalars, static_cast<std::size_t>(block), counts);
      arrays.emplace_back(fmt::format("moe/block {}/assigned tokens", block), io::json_list(counts));
    }
  }
  return write_metrics(step, scalars, arrays);
}

Expected<void> RunFolder::write_evaluation(i64 step, double ce, double bits_per_byte) {
  std::vector<io::Scalar> scalars = {{"eval/lm/valid/CE loss", ce}, {"eval/lm/valid/PPL", std::exp(ce)}};
  if (bits_per_byte > 0) {
    scalars.emplace_back("eval/lm/valid/BPB", bits_per_byte);
  }
  return write_metrics(step, scalars, {});
}

Expected<void> RunFolder::write_metrics(i64 step, std::span<const io::Scalar> scalars,
                                        std::span<const JsonMember> arrays) {
  io::JsonObject line;
  for (const auto& [name, value] : scalars) {
    line.add(name, value);
  }
  for (const auto& [name, json] : arrays) {
    line.add_raw(name, json);
  }
  WYCH_TRY_VOID(metrics_.write(step, line));
  return tensorboard_.write(step, scalars);
}

Expected<void> RunFolder::write_event(i64 step, std::string_view kind, const io::JsonObject& details) {
  return events_.write(step, kind, details);
}

}  // namespace wych::train
