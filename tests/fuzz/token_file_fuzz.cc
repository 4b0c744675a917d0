#include <algorithm>
#include <vector>

#include "data/token_file.h"
#include "fuzz/fuzz_target.h"

// The bytes as a token file and as the index of a Megatron pair. What opens can be read to its last token.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const wych::fuzz::InputFile file(data, size, ".npy");
  if (const auto tokens = wych::data::TokenFile::open(file.path(), wych::data::TokenType::kU16); tokens) {
    std::vector<std::uint64_t> last(static_cast<std::size_t>(std::min<wych::i64>(tokens->num_tokens(), 64)));
    tokens->read_unchecked(tokens->num_tokens() - std::ssize(last), last);
  }
  const wych::fuzz::InputFile index_file(data, size, ".idx");
  if (const auto index = wych::data::MegatronIndex::open(index_file.path()); index) {
    for (wych::i64 i = 0; i < index->num_documents(); ++i) {
      if (index->document_start(i) > index->document_start(i + 1)) {
        std::abort();
      }
    }
  }
  return 0;
}
