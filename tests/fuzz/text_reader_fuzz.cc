#include <algorithm>

#include "data/text_reader.h"
#include "fuzz/fuzz_target.h"

// The bytes as JSON lines and as plain text, packed or not. What is read in pieces is not empty, and ends.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const char* ending : {".jsonl", ".txt"}) {
    for (const bool keep_invalid : {false, true}) {
      const wych::fuzz::InputFile file(data, size, ending);
      auto reader =
          wych::data::TextReader::open({file.path()}, {.keep_invalid = keep_invalid, .section_bytes = 16});
      bool at_end = !reader.has_value();
      while (!at_end) {
        const auto batch = reader->next(1000);
        at_end = !batch || batch->at_end;
        if (batch && std::any_of(batch->pieces.begin(), batch->pieces.end(),
                                 [](const wych::data::TextPiece& piece) { return piece.text.empty(); })) {
          std::abort();
        }
      }
    }
  }
  return 0;
}
