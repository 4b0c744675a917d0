#include "data/tokenizer.h"
#include "fuzz/fuzz_target.h"

// A rank file that reads encodes any bytes, and decodes them again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const wych::data::TokenizerOptions options{
      .end_of_text = {}, .pattern = "o200k", .special_tokens = {{"<|endoftext|>", 1000}}};
  const wych::Expected<wych::data::Tokenizer> tokenizer =
      wych::data::Tokenizer::from_ranks(wych::fuzz::text(data, size), "input", options);
  if (tokenizer) {
    const std::string_view text = wych::fuzz::text(data, size).substr(0, 500);
    if (tokenizer->decode(tokenizer->encode(text)) != text) {
      std::abort();
    }
  }
  return 0;
}
