// wych generate: continues a prompt and prints the text as it comes.
#include "train/generate.h"

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "train/evaluate.h"
#include "train/printable.h"
#include "train/run_request.h"

namespace wych::cli {
namespace {

// The bytes as they are into files and pipes; on a terminal nothing that could control it.
void print_piece(std::string_view text, bool is_terminal) {
  if (is_terminal) {
    fmt::print("{}", train::printable(text, train::LineBreaks::kKeep));
  } else {
    fmt::print("{}", text);
  }
  std::fflush(stdout);
}

}  // namespace

Expected<int> run(const GenerateOptions& options) {
  ThreadPool pool;
  WYCH_TRY(const config::Config config, train::read_model_config(options.model));
  WYCH_TRY(const data::Tokenizer tokenizer,
           train::load_model_tokenizer(options.model, config.model.vocab_size));
  const i64 cache_length = train::generation_cache_length(
      config.model.sequence_length, std::ssize(tokenizer.encode(options.prompt)), options.max_new_tokens);
  WYCH_TRY(train::LoadedModel model,
           train::load_model(options.model, train::generation_request(cache_length), pool));
  const bool is_terminal = standard_output().interactive;
  print_piece(options.prompt, is_terminal);
  WYCH_TRY(const std::string text,
           train::generate(*model.engine, tokenizer, options.prompt,
                           {.max_new_tokens = options.max_new_tokens,
                            .temperature = options.temperature,
                            .seed = options.seed},
                           [&](std::string_view piece) { print_piece(piece, is_terminal); }));
  print_piece("\n", is_terminal);
  return 0;
}

}  // namespace wych::cli
