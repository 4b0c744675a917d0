// Readers of the run folder's files (run_record.h): one for metrics, one for events, the others small enough
// for a function. What a file lacks stays empty.
#include "train/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>

#include "base/file.h"
#include "config/load.h"
#include "io/json.h"
#include "plan/report.h"

namespace wych::train {
namespace {

constexpr std::size_t kLoadSteps = 20;  // over which expert loads are summed

double number_or_nan(const io::Json* json) {
  double value = 0;
  return json != nullptr && json->number(value) ? value : std::numeric_limits<double>::quiet_NaN();
}

i64 count_or_zero(const io::Json* json) {
  const double value = number_or_nan(json);
  return value >= 0 && value < 9e18 ? static_cast<i64>(value) : 0;
}

std::string text_or_empty(const io::Json* json) {
  const std::string* text = json == nullptr ? nullptr : json->get<std::string>();
  return text == nullptr ? "" : *text;
}

// Calls use(line, its step) for every line of a JSONL file that has an integer "step"; counts the others.
template <class Use>
Expected<void> for_each_line(const std::string& path, i64& unreadable, Use use) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return file_error(ErrorKind::kData, path, "read", errno);
  }
  for (std::string text; std::getline(in, text);) {
    if (text.empty()) {
      continue;
    }
    const Expected<io::Json> line = io::parse_json(text, path, ErrorKind::kData);
    const io::Json* step = line ? line->find("step") : nullptr;
    if (step == nullptr || step->get<i64>() == nullptr) {
      ++unreadable;
      continue;
    }
    use(*line, *step->get<i64>());
  }
  return {};
}

// The number of the block if `key` is prefix + number + suffix.
std::optional<i64> block_of(std::string_view key, std::string_view prefix, std::string_view suffix) {
  if (key.size() <= prefix.size() + suffix.size() || !key.starts_with(prefix) || !key.ends_with(suffix)) {
    return std::nullopt;
  }
  const char* end = key.data() + key.size() - suffix.size();
  i64 block = 0;
  const auto [stop, error] = std::from_chars(key.data() + prefix.size(), end, block);
  return error == std::errc() && stop == end ? std::optional(block) : std::nullopt;
}

class MetricsReader {
 public:
  explicit MetricsReader(RunRecord& record) : record_(record) {}

  void read(const io::Json& line, i64 step) {
    record_.last_step = std::max(record_.last_step, step);
    if (const io::Json* tokens = line.find("throughput/total tokens")) {
      read_time(count_or_zero(tokens), number_or_nan(line.find("throughput/device/TPS")));
    }
    const Point at{static_cast<double>(step), 0, static_cast<double>(record_.tokens)};
    const io::Json* loss = line.find("train/CE loss");
    const io::Json* norm = line.find("optim/total grad norm");
    add(record_.loss, at, loss);
    add(record_.validation, at, line.find("eval/lm/valid/CE loss"));
    add(record_.learning_rate, at, line.find("optim/LR (group 0)"));
    add(record_.tokens_per_second, at, line.find("throughput/device/TPS"));
    add(record_.grad_norm, at, norm);
    const bool is_finite = (loss == nullptr || std::isfinite(number_or_nan(loss))) &&
                           (norm == nullptr || std::isfinite(number_or_nan(norm)));
    if (!is_finite) {
      record_.non_finite.push_back(at);
    } else if (number_or_nan(line.find("optim/step skipped")) > 0) {
      add(record_.skipped, at, norm);
    }
    read_blocks(line, at);
  }

  void finish() {
    record_.load_history = history_.spans();
    record_.load_steps = static_cast<i64>(recent_.size());
    std::map<i64, std::vector<double>> sums;
    for (const ExpertCounts& step : recent_) {
      for (const auto& [block, counts] : step) {
        std::vector<double>& sum = sums.try_emplace(block, counts.size(), 0.0).first->second;
        for (std::size_t expert = 0; expert < std::min(sum.size(), counts.size()); ++expert) {
          sum[expert] += static_cast<double>(counts[expert]);
        }
      }
    }
    for (auto& [block, sum] : sums) {
      const double mean = std::accumulate(sum.begin(), sum.end(), 0.0) / static_cast<double>(sum.size());
      if (mean > 0) {
        std::for_each(sum.begin(), sum.end(), [&](double& load) { load /= mean; });
        record_.loads.push_back({block, std::move(sum)});
      }
    }
  }

 private:
  static void add(std::vector<Point>& series, const Point& at, const io::Json* value) {
    if (value != nullptr) {
      series.push_back({at.step, number_or_nan(value), at.tokens});
    }
  }

  void read_time(i64 tokens, double tokens_per_second) {
    if (tokens_per_second > 0 && tokens > record_.tokens) {
      record_.step_seconds += static_cast<double>(tokens - record_.tokens) / tokens_per_second;
    }
    record_.tokens = std::max(record_.tokens, tokens);
  }

  void read_blocks(const io::Json& line, const Point& at) {
    ExpertCounts counts;
    double largest = 0;
    double sum = 0;
    i64 num_blocks = 0;
    for (const auto& [key, value] : *line.get<io::Json::Object>()) {
      if (block_of(key, "train/block ", "/load imbalance")) {
        const double imbalance = number_or_nan(&value);
        largest = std::max(largest, imbalance);
        sum += imbalance;
        ++num_blocks;
      }
      const std::optional<i64> block = block_of(key, "moe/block ", "/assigned tokens");
      const io::Json::Array* array = block ? value.get<io::Json::Array>() : nullptr;
      if (array != nullptr && !array->empty()) {
        for (const io::Json& count : *array) {
          counts[*block].push_back(count_or_zero(&count));
        }
      }
    }
    if (num_blocks > 0) {
      record_.imbalance.push_back({at.step, largest, at.tokens});
      record_.mean_imbalance.push_back({at.step, sum / static_cast<double>(num_blocks), at.tokens});
    }
    if (!counts.empty()) {
      history_.add(static_cast<i64>(at.step), counts);
      recent_.push_back(std::move(counts));
      if (recent_.size() > kLoadSteps) {
        recent_.pop_front();
      }
    }
  }

  RunRecord& record_;
  LoadHistory history_;
  std::deque<ExpertCounts> recent_;  // of the last steps
};

Scores read_scores(const io::Json& json) {
  Scores scores;
  scores.ce = number_or_nan(json.find("ce"));
  scores.bits_per_byte = number_or_nan(json.find("bits_per_byte"));
  scores.unigram_ce = number_or_nan(json.find("unigram_ce"));
  scores.unigram_bits_per_byte = number_or_nan(json.find("unigram_bits_per_byte"));
  scores.bigram_ce = number_or_nan(json.find("bigram_ce"));
  scores.bigram_bits_per_byte = number_or_nan(json.find("bigram_bits_per_byte"));
  return scores;
}

class EventsReader {
 public:
  explicit EventsReader(RunRecord& record) : record_(record) {}

  void read(const io::Json& line, i64 step) {
    const std::string kind = text_or_empty(line.find("event"));
    const double time = number_or_nan(line.find("time"));
    const bool begins = kind == "start" || kind == "resume";
    if (begins) {
      begin_session(step);
    } else if (time > last_time_) {
      record_.seconds += time - last_time_;
    }
    last_time_ = time;
    if (kind == "sample") {
      samples_[step] = {step, text_or_empty(line.find("prompt")), text_or_empty(line.find("text"))};
    } else if (kind == "final_evaluation") {
      read_final_evaluation(line, step);
    } else {
      record_.finished = record_.finished || kind == "end";
      record_.events.push_back({time, step, kind, detail(line)});
    }
  }

  void finish() {
    for (auto& [step, sample] : samples_) {
      record_.samples.push_back(std::move(sample));
    }
  }

 private:
  // A killed session leaves events of steps that the next one takes again: what they found is forgotten.
  void begin_session(i64 step) {
    record_.finished = false;
    ++record_.num_sessions;
    samples_.erase(samples_.upper_bound(step), samples_.end());
    if (record_.final_evaluation && record_.final_evaluation->step > step) {
      record_.final_evaluation.reset();
      record_.domains.clear();
    }
  }

  void read_final_evaluation(const io::Json& line, i64 step) {
    EvalReport report{read_scores(line)};
    report.step = step;
    report.final = true;
    record_.final_evaluation = report;
    record_.domains.clear();
    const io::Json* domains = line.find("domains");
    const io::Json::Array* array = domains == nullptr ? nullptr : domains->get<io::Json::Array>();
    for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
      const io::Json& domain = (*array)[i];
      record_.domains.push_back(
          {read_scores(domain), text_or_empty(domain.find("name")), count_or_zero(domain.find("targets"))});
    }
  }

  // The members that are not the same in every event, in words.
  static std::string detail(const io::Json& line) {
    std::string text;
    for (const auto& [key, value] : *line.get<io::Json::Object>()) {
      double number = 0;
      if (key == "time" || key == "step" || key == "event") {
        continue;
      }
      text += text.empty() ? "" : ", ";
      const std::string name = key == "dir" || key == "checkpoint" ? "" : key + " ";
      text += name + (value.number(number) ? fmt::format("{:.4g}", number)
                      : value.is_null()    ? "not finite"
                                           : text_or_empty(&value));
    }
    return text;
  }

  RunRecord& record_;
  std::map<i64, Sample> samples_;
  double last_time_ = std::numeric_limits<double>::infinity();
};

// The object in a JSON file; an empty one if there is none.
io::Json::Object object_in(const std::string& path) {
  const Expected<std::string> text = read_file(path, ErrorKind::kData);
  if (!text) {
    return {};
  }
  const Expected<io::Json> json = io::parse_json(*text, path, ErrorKind::kData);
  const io::Json::Object* object = json ? json->get<io::Json::Object>() : nullptr;
  return object == nullptr ? io::Json::Object() : *object;
}

void read_plan(RunRecord& record, const std::string& path) {
  const io::Json plan{object_in(path)};
  const io::Json* bytes = plan.find("bytes");
  const io::Json::Object* categories = bytes == nullptr ? nullptr : bytes->get<io::Json::Object>();
  if (categories != nullptr) {
    for (const auto& [name, value] : *categories) {
      record.memory.push_back({name, count_or_zero(&value)});
    }
    record.memory.push_back({"total", count_or_zero(plan.find("total_bytes"))});
  }
  const io::Json* programs = plan.find("programs");
  if (programs != nullptr && programs->get<io::Json::Object>() != nullptr) {
    for (const auto& [name, program] : *programs->get<io::Json::Object>()) {
      record.scratch.push_back({name, count_or_zero(program.find("scratch_bytes")),
                                count_or_zero(program.find("scratch_lower_bound"))});
    }
  }
}

void read_environment(RunRecord& record, const std::string& path) {
  const io::Json environment{object_in(path)};
  record.started = text_or_empty(environment.find("started"));
  record.host = text_or_empty(environment.find("processor"));
  if (const i64 cores = count_or_zero(environment.find("cores")); cores > 0) {
    record.host += fmt::format(", {} cores", cores);
  }
  if (const i64 bytes = count_or_zero(environment.find("memory_bytes")); bytes > 0) {
    record.host += ", " + plan::bytes_text(bytes);
  }
  if (const i64 threads = count_or_zero(environment.find("threads")); threads > 0) {
    record.device = fmt::format("CPU, {} thread{}", threads, threads == 1 ? "" : "s");
  }
  if (const std::string version = text_or_empty(environment.find("version")); !version.empty()) {
    const std::string commit = text_or_empty(environment.find("commit"));
    record.build = fmt::format("wych {}{}", version, commit.empty() ? "" : fmt::format(" ({})", commit));
  }
}

void read_config(RunRecord& record, const std::string& path) {
  if (Expected<std::string> text = read_file(path, ErrorKind::kData)) {
    record.config_text = *std::move(text);
  }
  if (Expected<config::Loaded> loaded = config::load(path, {})) {
    record.config = loaded->config;
  }
}

}  // namespace

Expected<RunRecord> read_run_record(const std::string& run_dir) {
  RunRecord record;
  MetricsReader metrics(record);
  WYCH_TRY_VOID(for_each_line(run_dir + "/metrics.jsonl", record.unreadable_lines,
                              [&](const io::Json& line, i64 step) { metrics.read(line, step); }));
  metrics.finish();
  EventsReader events(record);
  // A run without events has nothing to tell there, which is no error.
  (void)for_each_line(run_dir + "/events.jsonl", record.unreadable_lines,
                      [&](const io::Json& line, i64 step) { events.read(line, step); });
  events.finish();
  if (Expected<RoutingRecord> routing = read_routing(run_dir)) {
    record.routing = *std::move(routing);
  }
  read_config(record, run_dir + "/config.toml");
  read_plan(record, run_dir + "/plan.json");
  read_environment(record, run_dir + "/env.json");
  return record;
}

}  // namespace wych::train
