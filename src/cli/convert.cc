// wych convert: a model in another format.
#include <fmt/format.h>

#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "io/huggingface.h"
#include "train/convert.h"
#include "train/run_text.h"

namespace wych::cli {
namespace {

// A line that is written over while it lasts, on a terminal only.
class ProgressLine {
 public:
  ProgressLine() : shown_(standard_output().interactive) {}
  void show(i64 done, i64 total) {
    const i64 percent = total > 0 ? 100 * done / total : 100;
    if (shown_ && percent != percent_) {
      fmt::print("\rwritten     {:>3}%{}", percent, percent == 100 ? "\n" : "");
      std::fflush(stdout);
      percent_ = percent;
    }
  }

 private:
  bool shown_;
  i64 percent_ = -1;
};

}  // namespace

Expected<int> run(const ConvertOptions& options) {
  ThreadPool pool;
  ProgressLine progress;
  train::ConvertRequest request{.from = options.from, .to = options.to};
  request.format = options.format == "hf" ? train::ModelFormat::kHuggingFace : train::ModelFormat::kWych;
  request.dtype = options.dtype == "bf16" ? DType::kBF16 : DType::kF32;
  request.verify = options.verify;
  request.replace = options.replace;
  request.progress = [&progress](i64 done, i64 total) { progress.show(done, total); };
  WYCH_TRY(const train::Conversion result, train::convert(request, pool));
  const std::string format = request.format == train::ModelFormat::kWych
                                 ? "wych"
                                 : std::string(io::hf_architecture(*io::hf_model(result.model)));
  fmt::print("from        {}\nmodel       {}\nto          {} ({}, {}, {} bytes of weights)\n", result.source,
             train::model_text(result.model), options.to, format, options.dtype,
             train::grouped_digits(result.bytes));
  if (result.verification) {
    fmt::print("verified    logits of {} positions differ by at most {}, the largest being {:.4g}\n",
               result.verification->positions, result.verification->largest_difference,
               result.verification->largest_logit);
  }
  return 0;
}

}  // namespace wych::cli
