#include "train/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/hash.h"
#include "base/philox.h"
#include "ir/paths.h"

namespace wych::train {
namespace {

// Draws a token from logits: by Philox keyed by seed and position, so that text depends on the seed alone.
class TokenSampler {
 public:
  TokenSampler(double temperature, u64 seed)
      : temperature_(temperature), stream_(random_stream(seed, 0, hash_bytes("generate"))) {}

  // kNonFinite if a logit is not finite.
  Expected<i32> draw(const std::vector<float>& logits, i64 position) const {
    if (!std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); })) {
      return Error{.kind = ErrorKind::kNonFinite,
                   .where = fmt::format("logits at position {}", position),
                   .what = "are not all finite",
                   .hint = "the weights are not, or make numbers too large for their type",
                   .more = {}};
    }
    const auto best = std::max_element(logits.begin(), logits.end());
    if (temperature_ == 0) {
      return static_cast<i32>(best - logits.begin());
    }
    std::vector<double> cumulative;
    double sum = 0;
    for (const float logit : logits) {
      sum += std::exp((static_cast<double>(logit) - static_cast<double>(*best)) / temperature_);
      cumulative.push_back(sum);
    }
    const double at = static_cast<double>(random_uniform(stream_, static_cast<u64>(position))) * sum;
    const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), at);
    return static_cast<i32>(std::min<std::ptrdiff_t>(chosen - cumulative.begin(), std::ssize(logits) - 1));
  }

 private:
  double temperature_;
  RandomStream stream_;
};

// The length of the longest prefix that does not end inside a UTF-8 character.
std::size_t whole_characters(std::string_view bytes) {
  constexpr std::size_t kLongest = 4;
  for (std::size_t back = 1; back <= std::min(kLongest, bytes.size()); ++back) {
    const auto byte = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if ((byte & 0xc0U) == 0x80U) {
      continue;  // a continuation byte: look further back for the lead
    }
    const std::size_t length = byte >= 0xf0U ? 4 : byte >= 0xe0U ? 3 : byte >= 0xc0U ? 2 : 1;
    return length > back ? bytes.size() - back : bytes.size();
  }
  return bytes.size();
}

i64 cache_length(const Engine& engine) {
  const plan::Slot* cache = engine.programs().layout.find("cache.0");
  WYCH_CHECK(cache != nullptr && engine.programs().prefill.has_value(),
             "the engine has no generation programs");
  return cache->type.shape[2];
}

// Feeds the prompt in pieces of the prefill program's size; returns the logits after its last token. A piece
// must fit into the cache with its padding, so the tail of a long prompt goes token by token.
std::vector<float> prefill(Engine& engine, std::span<const i32> prompt, i64 capacity) {
  const i64 piece = engine.programs().prefill->input(ir::kTokensPath).type.elements();
  std::vector<float> logits;
  i64 position = 0;
  while (position < std::ssize(prompt)) {
    const i64 count = position + piece <= capacity ? std::min(piece, std::ssize(prompt) - position) : 1;
    logits = engine.feed(prompt.subspan(static_cast<std::size_t>(position), static_cast<std::size_t>(count)),
                         position);
    position += count;
  }
  return logits;
}

}  // namespace

Expected<std::string> generate(Engine& engine, const data::Tokenizer& tokenizer, std::string_view prompt,
                               const GenerateOptions& options, FunctionRef<void(std::string_view)> emit) {
  const i64 capacity = cache_length(engine);
  std::vector<i32> ids = tokenizer.encode(prompt);
  if (ids.empty()) {
    ids.push_back(tokenizer.eos_id());
  }
  if (std::ssize(ids) >= capacity) {
    return Error{.kind = ErrorKind::kUsage,
                 .where = "prompt",
                 .what = fmt::format("has {} tokens; the model's context holds {}", ids.size(), capacity),
                 .hint = "shorten the prompt",
                 .more = {}};
  }
  const TokenSampler sampler(options.temperature, options.seed);
  std::vector<float> logits = prefill(engine, ids, capacity);
  std::string text;
  std::size_t emitted = 0;
  i64 position = std::ssize(ids);
  for (i64 count = 0; count < options.max_new_tokens; ++count) {
    WYCH_TRY(const i32 token, sampler.draw(logits, position));
    if (token == tokenizer.eos_id()) {
      break;
    }
    text += tokenizer.decode(std::span(&token, 1));
    if (const std::size_t whole = whole_characters(text); whole > emitted) {
      emit(std::string_view(text).substr(emitted, whole - emitted));
      emitted = whole;
    }
    if (position == capacity) {
      break;
    }
    logits = engine.feed(std::span(&token, 1), position++);
  }
  if (emitted < text.size()) {
    emit(std::string_view(text).substr(emitted));
  }
  return text;
}

}  // namespace wych::train
