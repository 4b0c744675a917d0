#include "data/tokenizer.h"
#include "fuzz/fuzz_target.h"

// A tokenizer that reads encodes any bytes to ids of its vocabulary.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const wych::Expected<wych::data::Tokenizer> tokenizer =
      wych::data::Tokenizer::from_json(wych::fuzz::text(data, size), "input");
  if (tokenizer) {
    const std::string_view text = wych::fuzz::text(data, size).substr(0, 200);
    for (const wych::i32 id : tokenizer->encode(text)) {
      if (id < 0 || id >= tokenizer->vocab_size()) {
        std::abort();
      }
    }
  }
  return 0;
}
