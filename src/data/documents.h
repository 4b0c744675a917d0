// Where the documents of a token file lie. In order of preference: the format's own index (Megatron), a
// sidecar beside an .npy file (the same name with .csv.gz: rows start,end in tokens, more columns ignored),
// or else the end-of-text ids, each of which ends a document; what follows the last one is a document too.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/expected.h"
#include "base/types.h"
#include "data/token_file.h"

namespace wych::data {

// Tokens [begin, end) of a file, at least one.
struct TokenSpan {
  i64 begin = 0;
  i64 end = 0;
  [[nodiscard]] i64 size() const { return end - begin; }
  bool operator==(const TokenSpan&) const = default;
};

// The documents in order; empty ones are left out. Reads the whole file if it must look for end-of-text ids,
// which checks them against the vocabulary. Errors (kData) name the file, or the sidecar and its line.
Expected<std::vector<TokenSpan>> find_documents(const TokenFile& file, i32 eos_id, i64 vocab_size);

// The sidecar of `path`, whether it exists or not: "a.csv.gz" of "a.npy"; empty for other names.
std::string sidecar_path(const std::string& path);

// One byte a token: 0 if the token is not to be learned. Mapped.
class LabelMask {
 public:
  // A file whose size is not the number of tokens of `tokens` is an Error (kData).
  static Expected<LabelMask> open(const std::string& path, const TokenFile& tokens);
  [[nodiscard]] bool allows(i64 token) const {
    return file_.bytes()[static_cast<std::size_t>(token)] != std::byte{0};
  }
  [[nodiscard]] u64 sample_hash() const { return data::sample_hash(file_.bytes()); }

 private:
  MappedFile file_;
};

}  // namespace wych::data
