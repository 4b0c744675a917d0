// wych data: folders of token files and the files themselves, made, looked at and converted.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "data/inspect.h"
#include "data/text_prepare.h"
#include "data/text_tokenize.h"
#include "data/token_convert.h"

namespace wych::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::optional<data::TokenType> type_of(const std::string& name) {
  return name.empty() ? std::nullopt : data::token_type_from_name(name);
}

// "1.2 of 4.8 GB (25 %), 31.0 MB/s of text, 7.6 M tokens/s, 0:01:56 left", rewritten in place on a terminal,
// else a line every ten seconds.
class ProgressLine {
 public:
  explicit ProgressLine(bool in_place) : in_place_(in_place) {}

  void show(const data::TokenizeProgress& done) {
    const Clock::time_point now = Clock::now();
    const double interval = in_place_ ? 0.2 : 10;
    if (shown_at_ && std::chrono::duration<double>(now - *shown_at_).count() < interval) {
      return;
    }
    shown_at_ = now;
    const double seconds = std::max(1e-9, std::chrono::duration<double>(now - start_).count());
    const auto share =
        static_cast<double>(done.bytes_read) / static_cast<double>(std::max<i64>(done.total_bytes, 1));
    const std::string line = fmt::format(
        "{:.2f} of {:.2f} GB ({:.0f} %), {:.1f} MB/s of text, {:.2f} M tokens/s, {:%H:%M:%S} left",
        1e-9 * static_cast<double>(done.bytes_read), 1e-9 * static_cast<double>(done.total_bytes),
        100 * share, 1e-6 * static_cast<double>(done.text_bytes) / seconds,
        1e-6 * static_cast<double>(done.tokens) / seconds,
        std::chrono::seconds(share > 0 ? static_cast<i64>(seconds / share - seconds) : 0));
    fmt::print(stderr, "{}{}{}", in_place_ ? "\r" : "", line, in_place_ ? "\x1b[K" : "\n");
    std::fflush(stderr);
  }

  // Seconds since the start; leaves the line.
  double end() {
    if (in_place_ && shown_at_) {
      fmt::print(stderr, "\r\x1b[K");
    }
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }

 private:
  bool in_place_;
  Clock::time_point start_ = Clock::now();
  std::optional<Clock::time_point> shown_at_;
};

}  // namespace

Expected<int> run(const DataPrepareOptions& options) {
  data::PrepareOptions prepare;
  prepare.folder = options.out;
  prepare.vocab_size = options.vocab_size;
  prepare.replace = options.replace;
  if (!options.domains.empty()) {
    prepare.domains = options.domains;
  }
  ThreadPool pool;
  WYCH_TRY(const data::PrepareReport report,
           data::prepare_laptop_data(prepare, pool, [](std::string_view line) {
             fmt::print("{}\n", line);
             std::fflush(stdout);
           }));
  const data::Dataset& dataset = report.dataset;
  fmt::print("{}: {} training and {} held-out tokens, vocabulary {}{}\n", dataset.folder,
             dataset.num_tokens(data::Split::kTrain), dataset.num_tokens(data::Split::kValid),
             dataset.vocab_size, report.reused ? " (already there)" : "");
  return 0;
}

Expected<int> run(const DataInspectOptions& options) {
  std::error_code failure;
  if (std::filesystem::is_directory(options.path, failure)) {
    WYCH_TRY(const std::string text, data::inspect_dataset(options.path));
    fmt::print("{}", text);
    return 0;
  }
  data::InspectOptions inspect{.raw_type = type_of(options.dtype),
                               .vocab_size = options.vocab_size,
                               .eos_id = options.eos_id,
                               .tokenizer = nullptr};
  std::optional<data::Tokenizer> tokenizer;
  if (!options.tokenizer.empty()) {
    WYCH_TRY(tokenizer, data::Tokenizer::load(options.tokenizer));
    inspect.tokenizer = &*tokenizer;
  }
  WYCH_TRY(const data::Inspection found, data::inspect_token_file(options.path, inspect));
  fmt::print("{}", found.text);
  for (const std::string& fault : found.faults) {
    fmt::print("fault: {}\n", fault);
  }
  return found.faults.empty() ? 0 : static_cast<int>(ErrorKind::kData);
}

Expected<int> run(const DataTokenizeOptions& options) {
  const data::TokenizeOptions tokenize{
      .files = options.files,
      .tokenizer = options.tokenizer,
      .folder = options.out,
      .text = {.format = options.format == "jsonl"  ? data::TextFormat::kJsonLines
                         : options.format == "text" ? data::TextFormat::kPlain
                                                    : data::TextFormat::kByName,
               .text_key = options.text_key,
               .keep_invalid = options.keep_invalid},
      .domain = options.domain,
      .type = type_of(options.dtype),
      .eos_id = options.eos_id,
      .valid_fraction = options.valid_fraction};
  ThreadPool pool(static_cast<int>(options.threads));
  ProgressLine line(standard_output().interactive);
  WYCH_TRY(
      const data::TokenizeReport report,
      data::tokenize_text(tokenize, pool, [&line](const data::TokenizeProgress& done) { line.show(done); }));
  const double seconds = line.end();
  const data::Dataset& dataset = report.dataset;
  const i64 train = dataset.num_tokens(data::Split::kTrain);
  const i64 valid = dataset.num_tokens(data::Split::kValid);
  fmt::print("{}: {} training and {} held-out tokens of {} documents, {} ids of a vocabulary of {}\n",
             dataset.folder, train, valid, report.documents, data::token_type_name(dataset.type),
             dataset.vocab_size);
  fmt::print("{:.1f} MB of text in {:.1f} s: {:.1f} MB/s, {:.2f} M tokens/s\n",
             1e-6 * static_cast<double>(report.text_bytes), seconds,
             1e-6 * static_cast<double>(report.text_bytes) / seconds,
             1e-6 * static_cast<double>(train + valid) / seconds);
  if (report.empty > 0) {
    fmt::print("left out: {} documents without text\n", report.empty);
  }
  if (report.invalid > 0) {
    fmt::print("not UTF-8: {} places kept as they are, or lines of JSON left out\n", report.invalid);
  }
  if (options.valid_fraction > 0 && valid == 0) {
    fmt::print("nothing was held out: there are fewer than {:.0f} documents\n", 1 / options.valid_fraction);
  }
  return 0;
}

Expected<int> run(const DataConvertOptions& options) {
  WYCH_TRY(const data::TokenFile from,
           data::TokenFile::open(options.from, type_of(options.dtype), options.vocab_size));
  data::ConvertOptions convert{.format = data::TokenFormat::kRaw,
                               .type = type_of(options.to_dtype).value_or(from.type()),
                               .vocab_size = options.vocab_size,
                               .eos_id = static_cast<i32>(options.eos_id)};
  for (const data::TokenFormat format :
       {data::TokenFormat::kNumpy, data::TokenFormat::kMegatron, data::TokenFormat::kLlmC}) {
    convert.format = data::token_format_name(format) == options.format ? format : convert.format;
  }
  WYCH_TRY_VOID(data::convert_token_file(from, options.to, convert));
  fmt::print("{}: {} tokens, {} {}\n", options.to, from.num_tokens(), options.format,
             data::token_type_name(convert.type));
  return 0;
}

}  // namespace wych::cli
