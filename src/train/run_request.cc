// Evaluation runs in microbatches, so that it never needs more memory than training.
#include "train/run_request.h"

#include <algorithm>

namespace wych::train {
namespace {

// Enough to fill the processor, little enough that a short prompt is not mostly padding.
constexpr i64 kPrefillTokens = 32;

}  // namespace

ProgramRequest generation_request(i64 cache_length) {
  return {.prefill_tokens = std::min(kPrefillTokens, cache_length), .cache_length = cache_length};
}

i64 generation_cache_length(i64 sequence_length, i64 prompt_tokens, i64 max_new_tokens) {
  const i64 prompt = std::min(std::max<i64>(prompt_tokens, 1), sequence_length);
  return prompt + std::min(std::max<i64>(max_new_tokens, 1), sequence_length - prompt);
}

ProgramRequest run_request(const config::Config& config) {
  ProgramRequest request;
  if (config.log.sample_interval > 0) {
    request = generation_request(config.model.sequence_length);
  }
  request.training = true;
  request.evaluation_sequences =
      config.data.microbatch_sequences > 0 ? config.data.microbatch_sequences : config.data.batch_sequences;
  return request;
}

std::vector<const plan::Program*> planned(const Programs& programs) {
  std::vector<const plan::Program*> present;
  for (const std::optional<plan::Program>* program :
       {&programs.initialise, &programs.train, &programs.update, &programs.evaluate, &programs.prefill,
        &programs.decode}) {
    if (program->has_value()) {
      present.push_back(&**program);
    }
  }
  return present;
}

}  // namespace wych::train
