// One pass over the ids; the questions about the type are asked of the first million of them.
#include "data/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "data/dataset.h"
#include "data/documents.h"

namespace wych::data {
namespace {

constexpr i64 kShownTokens = 60;
constexpr i64 kSampleTokens = 1'000'000;
constexpr i64 kPiece = i64{1} << 18U;

// Text with its lines indented and without what would steer a terminal.
std::string readable(std::string_view text) {
  std::string line;
  for (const char byte : text) {
    const bool control = static_cast<unsigned char>(byte) < 0x20 || byte == '\x7f';
    line += byte == '\n' ? "\n    " : std::string(1, control && byte != '\t' ? '?' : byte);
  }
  return line;
}

std::string beginning(const Tokenizer& tokenizer, std::vector<i32> tokens, i32 eos_id) {
  tokens.resize(std::min<std::size_t>(tokens.size(), kShownTokens));
  const auto end = std::find(tokens.begin(), tokens.end(), eos_id);
  return readable(tokenizer.decode(std::span(tokens.begin(), end)));
}

// Checks every id; returns the first ones.
Expected<std::vector<i32>> read_all(const TokenFile& file, i64 vocab_size) {
  std::vector<i32> first;
  std::vector<i32> tokens;
  for (i64 begin = 0; begin < file.num_tokens(); begin += kPiece) {
    tokens.resize(static_cast<std::size_t>(std::min(kPiece, file.num_tokens() - begin)));
    WYCH_TRY_VOID(file.read(begin, vocab_size, tokens));
    if (begin == 0) {
      first.assign(tokens.begin(), tokens.begin() + std::min(kShownTokens, file.num_tokens()));
    }
  }
  return first;
}

std::vector<u64> sample_of(const TokenFile& file) {
  std::vector<u64> sample(static_cast<std::size_t>(std::min(kSampleTokens, file.num_tokens())));
  file.read_unchecked(0, sample);
  return sample;
}

std::optional<TokenType> wider(TokenType type) {
  return is_signed(type) || type == TokenType::kU64
             ? std::nullopt
             : std::optional(static_cast<TokenType>(static_cast<unsigned>(type) + 1));
}

std::optional<TokenType> narrower(TokenType type) {
  return is_signed(type) || type <= TokenType::kU16
             ? std::nullopt
             : std::optional(static_cast<TokenType>(static_cast<unsigned>(type) - 1));
}

// Ids of twice the width come out as pairs: a low half that varies, a high half near zero.
bool are_halves(const std::vector<u64>& sample) {
  constexpr u64 kMaxHighHalf = 3;  // vocabularies up to 2^18
  constexpr std::size_t kMinPairs = 32;
  const std::size_t pairs = sample.size() / 2;
  std::size_t low_small = 0;
  std::size_t high_small = 0;
  for (std::size_t i = 0; i < pairs; ++i) {
    low_small += sample[2 * i] <= kMaxHighHalf ? 1 : 0;
    high_small += sample[2 * i + 1] <= kMaxHighHalf ? 1 : 0;
  }
  return pairs >= kMinPairs && 1000 * high_small >= 999 * pairs && 10 * low_small < 9 * pairs;
}

// Ids of half the width come out as numbers whose two halves are ids and whose whole mostly is none.
bool are_pairs(const std::vector<u64>& sample, TokenType type, i64 vocab_size) {
  constexpr u64 kNoVocabulary = u64{1} << 22U;  // larger than any
  const auto bits = static_cast<unsigned>(4 * token_bytes(type));
  const u64 limit = vocab_size > 0 ? static_cast<u64>(vocab_size) : kNoVocabulary;
  const u64 mask = (u64{1} << bits) - 1;
  std::size_t beyond = 0;
  for (const u64 id : sample) {
    beyond += id >= limit ? 1 : 0;
    if ((id & mask) >= limit || (id >> bits) >= limit) {
      return false;
    }
  }
  return 2 * beyond > sample.size();
}

// What one pass over the file finds.
struct Counts {
  u64 largest = 0;
  i64 foreign = 0;         // ids at or above the vocabulary
  i64 first_foreign = -1;  // the first of them
  i64 ends = 0;            // end-of-text ids
  i64 first_end = -1;
  i64 last_nonzero = -1;
  bool ends_with_eos = false;
};

Counts count(const TokenFile& file, u64 vocab_size, u64 eos_id) {
  Counts counts;
  std::vector<u64> ids;
  for (i64 begin = 0; begin < file.num_tokens(); begin += kPiece) {
    ids.resize(static_cast<std::size_t>(std::min(kPiece, file.num_tokens() - begin)));
    file.read_unchecked(begin, ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const i64 at = begin + static_cast<i64>(i);
      counts.largest = std::max(counts.largest, ids[i]);
      counts.last_nonzero = ids[i] != 0 ? at : counts.last_nonzero;
      if (ids[i] >= vocab_size) {
        counts.first_foreign = counts.foreign++ == 0 ? at : counts.first_foreign;
      }
      if (ids[i] == eos_id) {
        counts.first_end = counts.ends++ == 0 ? at : counts.first_end;
      }
    }
    counts.ends_with_eos = ids.back() == eos_id;
  }
  return counts;
}

std::string number(TokenType type, u64 id) {
  return is_signed(type) ? fmt::format("{}", static_cast<i64>(id)) : fmt::format("{}", id);
}

// The type of a raw file that nothing tells: the narrowest that does not look like halves of a wider one.
Expected<TokenFile> open_guessing(const std::string& path, const InspectOptions& options, i64 vocab_size,
                                  bool& guessed) {
  Expected<TokenFile> file = TokenFile::open(path, options.raw_type, vocab_size);
  std::error_code failure;
  if (file || options.raw_type || vocab_size > 0 || std::filesystem::file_size(path, failure) == 0) {
    return file;
  }
  for (const TokenType type : {TokenType::kU16, TokenType::kU32, TokenType::kU64}) {
    Expected<TokenFile> as_type = TokenFile::open(path, type);
    if (!as_type) {
      return as_type;
    }
    guessed = true;
    if (!are_halves(sample_of(*as_type)) || type == TokenType::kU64) {
      return as_type;
    }
  }
  return file;
}

class FileInspection {
 public:
  FileInspection(const TokenFile& file, i64 vocab_size, i64 eos_id)
      : file_(file),
        vocab_size_(vocab_size),
        eos_id_(eos_id),
        counts_(count(file, vocab_size > 0 ? static_cast<u64>(vocab_size) : ~u64{0},
                      eos_id >= 0 ? static_cast<u64>(eos_id) : ~u64{0})) {}

  [[nodiscard]] std::string describe(bool guessed) const {
    std::string text = fmt::format("{}\n  format     {}\n  ids        {}{}\n  tokens     {}", file_.path(),
                                   token_format_name(file_.format()), token_type_name(file_.type()),
                                   guessed ? " (guessed; say it with --dtype)" : "", file_.num_tokens());
    if (file_.columns() > 0) {
      text += fmt::format(" in {} rows of {}", file_.num_tokens() / file_.columns(), file_.columns());
    }
    text += fmt::format("\n  largest    {}{}", number(file_.type(), counts_.largest),
                        vocab_size_ > 0 ? fmt::format(" of a vocabulary of {}", vocab_size_) : "");
    if (file_.index() != nullptr) {
      text += fmt::format("\n  documents  {} (its index)", file_.index()->num_documents());
    } else if (eos_id_ >= 0) {
      text += fmt::format("\n  documents  {} (end-of-text id {})",
                          counts_.ends + (counts_.ends_with_eos ? 0 : 1), eos_id_);
    }
    return text + "\n";
  }

  [[nodiscard]] std::vector<std::string> faults() const {
    std::vector<std::string> faults;
    if (const std::string type = wrong_type(); !type.empty()) {
      return {type};  // what follows would all be said of the wrong numbers
    }
    if (counts_.largest > static_cast<u64>(std::numeric_limits<i32>::max())) {
      faults.push_back(fmt::format(
          "holds {}: no id is negative or above 2147483647, whatever the vocabulary; is it of another "
          "--dtype, or damaged?",
          number(file_.type(), counts_.largest)));
    }
    if (counts_.foreign > 0) {
      std::vector<u64> id(1);
      file_.read_unchecked(counts_.first_foreign, id);
      faults.push_back(fmt::format(
          "{} of {} ids are outside the vocabulary of {}, the first, {}, at token {}: written with another "
          "tokenizer, or of another type; name the right one with --tokenizer or --dtype",
          counts_.foreign, file_.num_tokens(), vocab_size_, number(file_.type(), id[0]),
          counts_.first_foreign));
    }
    if (eos_id_ >= 0 && file_.index() == nullptr &&
        (counts_.first_end < 0 || counts_.first_end >= kSampleTokens)) {
      faults.push_back(
          fmt::format("the end-of-text id {} is not among the first {} tokens: written with another "
                      "tokenizer, or documents "
                      "are not separated; name the id that ends them with --eos (in a run: data.eos_id)",
                      eos_id_, std::min(kSampleTokens, file_.num_tokens())));
    }
    constexpr i64 kManyZeros = 4096;
    if (const i64 zeros = file_.num_tokens() - 1 - counts_.last_nonzero; zeros >= kManyZeros) {
      faults.push_back(
          fmt::format("the last {} ids are 0: the file was not written to its end; write it again", zeros));
    }
    return faults;
  }

 private:
  [[nodiscard]] std::string wrong_type() const {
    if (file_.format() != TokenFormat::kRaw) {
      return "";
    }
    const std::vector<u64> sample = sample_of(file_);
    const char* const form =
        "looks like {} ids read as {}: {}; say --dtype {} (in a run: data.dtype = \"{}\")";
    const std::string_view type = token_type_name(file_.type());
    if (const auto other = wider(file_.type()); other && are_halves(sample)) {
      const std::string_view name = token_type_name(*other);
      return fmt::format(fmt::runtime(form), name, type, "every other one is about 0", name, name);
    }
    if (const auto other = narrower(file_.type()); other && are_pairs(sample, file_.type(), vocab_size_)) {
      const std::string_view name = token_type_name(*other);
      return fmt::format(fmt::runtime(form), name, type,
                         "most are far outside any vocabulary, their halves are not", name, name);
    }
    return "";
  }

  const TokenFile& file_;
  i64 vocab_size_;
  i64 eos_id_;
  Counts counts_;
};

}  // namespace

Expected<std::string> inspect_dataset(const std::string& folder) {
  WYCH_TRY(const Dataset dataset, load_dataset(folder));
  WYCH_TRY(const Tokenizer tokenizer, Tokenizer::load(fmt::format("{}/{}", folder, dataset.tokenizer)));
  std::string text =
      fmt::format("{}: {}\n{} ids of a vocabulary of {}, end-of-text {}\n\n", folder, dataset.recipe,
                  token_type_name(dataset.type), dataset.vocab_size, dataset.eos_id);
  text += fmt::format("{:<12} {:<6} {:>9} {:>12} {:>12} {:>11}\n", "domain", "split", "documents", "tokens",
                      "bytes", "bytes/token");
  std::string beginnings;
  for (const DatasetFile& entry : dataset.files) {
    WYCH_TRY(const TokenFile file, open_file(dataset, entry, /*verify=*/true));
    text += fmt::format("{:<12} {:<6} {:>9} {:>12} {:>12} {:>11.3f}\n", entry.domain, split_name(entry.split),
                        entry.documents, entry.tokens, entry.text_bytes,
                        static_cast<double>(entry.text_bytes) / static_cast<double>(entry.tokens));
    WYCH_TRY(std::vector<i32> first, read_all(file, dataset.vocab_size));
    beginnings += fmt::format("\n{} ({}):\n    {}\n", entry.domain, split_name(entry.split),
                              beginning(tokenizer, std::move(first), dataset.eos_id));
  }
  for (const DatasetDomain& domain : dataset.domains) {
    text += fmt::format("\n{}: {}", domain.name, domain.licence);
  }
  return text + "\n" + beginnings;
}

Expected<Inspection> inspect_token_file(const std::string& path, const InspectOptions& options) {
  const Tokenizer* tokenizer = options.tokenizer;
  i64 vocab_size = options.vocab_size > 0 ? options.vocab_size
                   : tokenizer != nullptr ? tokenizer->vocab_size()
                                          : 0;
  const i64 eos_id = options.eos_id >= 0 ? options.eos_id : tokenizer != nullptr ? tokenizer->eos_id() : -1;
  bool guessed = false;
  WYCH_TRY(const TokenFile file, open_guessing(path, options, vocab_size, guessed));
  vocab_size = vocab_size > 0 ? vocab_size : file.vocab_size();
  const FileInspection found(file, vocab_size, eos_id);
  Inspection result{found.describe(guessed), found.faults()};
  const std::string sidecar = sidecar_path(path);
  std::error_code failure;
  if (!sidecar.empty() && std::filesystem::exists(sidecar, failure)) {
    const auto documents = find_documents(file, 0, vocab_size);
    result.text += documents ? fmt::format("  sidecar    {} documents\n", documents->size()) : "";
    if (!documents) {
      result.faults.push_back(documents.error().text());
    }
  }
  if (tokenizer != nullptr && result.faults.empty()) {
    std::vector<i32> first(static_cast<std::size_t>(std::min(kShownTokens, file.num_tokens())));
    WYCH_TRY_VOID(file.read(0, vocab_size, first));
    result.text += fmt::format("  beginning\n    {}\n",
                               beginning(*tokenizer, std::move(first), static_cast<i32>(eos_id)));
  }
  return result;
}

}  // namespace wych::data
