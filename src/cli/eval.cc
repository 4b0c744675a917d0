// wych eval: the loss of a model on a token file.
#include <fmt/format.h>

#include <cmath>

#include "base/thread_pool.h"
#include "cli/commands.h"
#include "data/token_format.h"
#include "io/json.h"
#include "train/evaluate.h"

namespace wych::cli {

Expected<int> run(const EvalOptions& options) {
  ThreadPool pool;
  WYCH_TRY(const train::FileEvaluation result,
           train::evaluate_file(options.model, options.data, options.sequence,
                                data::token_type_from_name(options.dtype), pool));
  if (options.json) {
    fmt::print("{}\n", io::JsonObject().add("CE loss", result.ce).add("tokens", result.targets).text());
  } else {
    fmt::print("CE loss {:.6f}, perplexity {:.4f}, {} tokens; {} more in the tail left out\n", result.ce,
               std::exp(result.ce), result.targets, result.dropped);
  }
  return 0;
}

}  // namespace wych::cli
