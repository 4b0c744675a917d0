// wych tokenizer train, encode, inspect.
#include "data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "base/file.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "data/bpe_trainer.h"
#include "train/printable.h"

namespace wych::cli {
namespace {

class Clock {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string rate(i64 bytes, double seconds, int threads) {
  const double megabytes = static_cast<double>(bytes) / 1e6;
  return fmt::format("{:.1f} MB in {:.2f} s, {:.1f} MB/s, {} thread{}", megabytes, seconds,
                     megabytes / std::max(seconds, 1e-9), threads, threads == 1 ? "" : "s");
}

Expected<data::Tokenizer> load(const TokenizerSource& source) {
  data::TokenizerOptions options{
      .end_of_text = source.end_of_text, .pattern = source.pattern, .special_tokens = {}};
  for (const std::string& special : source.special_tokens) {
    const std::size_t equals = special.rfind('=');
    i32 id = -1;
    const char* end = special.data() + special.size();
    const bool has_id = equals != std::string::npos && equals > 0;
    const auto [rest, failure] = std::from_chars(has_id ? special.data() + equals + 1 : end, end, id);
    if (!has_id || failure != std::errc() || rest != end) {
      return Error{ErrorKind::kUsage,
                   "--special " + special,
                   "is not CONTENT=ID",
                   "for instance --special \"<|endoftext|>=50256\"",
                   {}};
    }
    options.special_tokens.emplace_back(special.substr(0, equals), id);
  }
  return data::Tokenizer::load(source.source, options);
}

// The documents of a text: itself or, without their ends, its lines.
template <class Text>
void add_documents(std::string_view text, bool lines, std::vector<Text>& documents) {
  if (!lines) {
    documents.emplace_back(text);
    return;
  }
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    documents.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

std::string flags(const data::AddedToken& token) {
  std::string text;
  const auto add = [&](bool is_set, std::string_view name) {
    text += is_set ? fmt::format(" {}", name) : "";
  };
  add(token.special, "special");
  add(token.normalized, "normalized");
  add(token.single_word, "single_word");
  add(token.lstrip, "lstrip");
  add(token.rstrip, "rstrip");
  return text;
}

std::string shown(std::string_view content) { return train::printable(content, train::LineBreaks::kEscape); }

}  // namespace

Expected<int> run(const TokenizerTrainOptions& options) {
  ThreadPool pool;
  data::PieceCounts pieces(*data::pattern_by_name(options.pattern));
  const Clock counting;
  i64 bytes = 0;
  for (const std::string& file : options.files) {
    WYCH_TRY(const std::string text, read_file(file, ErrorKind::kData));
    std::vector<std::string_view> documents;
    add_documents(text, options.lines, documents);
    pieces.add(documents, pool);
    bytes += std::ssize(text);
  }
  fmt::print(stderr, "counted {}: {} distinct pieces\n", rate(bytes, counting.seconds(), pool.num_threads()),
             pieces.counts().size());
  const Clock training;
  double reported = 0;
  const auto progress = [&](i64 tokens) {
    constexpr double kReportEvery = 2;  // seconds
    const double now = training.seconds();
    if (now - reported >= kReportEvery) {
      reported = now;
      fmt::print(stderr, "{} of {} tokens, {:.0f} tokens/s\n", tokens, options.vocab_size,
                 static_cast<double>(tokens) / now);
    }
  };
  const data::Tokenizer tokenizer = data::train_bpe(pieces, options.vocab_size, progress);
  WYCH_TRY_VOID(write_file_atomic(options.out, tokenizer.to_json(), ErrorKind::kData));
  fmt::print("{}: {} tokens in {:.1f} s, {}\n", options.out, tokenizer.vocab_size(), training.seconds(),
             tokenizer.vocab_size() < options.vocab_size ? "all that occur twice" : "as asked for");
  return 0;
}

Expected<int> run(const TokenizerEncodeOptions& options) {
  WYCH_TRY(const data::Tokenizer tokenizer, load(options.tokenizer));
  std::vector<std::string> documents;
  for (const std::string& file : options.files) {
    WYCH_TRY(const std::string text, read_file(file, ErrorKind::kData));
    add_documents(text, options.lines, documents);
  }
  i64 bytes = 0;
  for (const std::string& document : documents) {
    bytes += std::ssize(document);
  }
  ThreadPool pool(static_cast<int>(options.threads));
  const Clock encoding;
  const std::vector<std::vector<i32>> encoded = tokenizer.encode_all(
      documents, pool, options.special_tokens ? data::SpecialText::kToken : data::SpecialText::kText);
  const double seconds = encoding.seconds();
  i64 tokens = 0;
  for (const std::vector<i32>& ids : encoded) {
    tokens += std::ssize(ids);
    fmt::print("[{}]\n", fmt::join(ids, ","));
  }
  fmt::print(stderr, "encoded {}: {} tokens\n", rate(bytes, seconds, pool.num_threads()), tokens);
  return 0;
}

Expected<int> run(const TokenizerInspectOptions& options) {
  WYCH_TRY(const data::Tokenizer tokenizer, load(options.tokenizer));
  const data::TokenizerParts& parts = tokenizer.parts();
  std::string forms;
  for (const data::NormalForm form : parts.normalizer.forms()) {
    forms += fmt::format("{}{}", forms.empty() ? "" : ", ", data::normal_form_name(form));
  }
  fmt::print("{}: {} ids, {} merges\n", options.tokenizer.source, tokenizer.vocab_size(),
             parts.model.merges().size());
  fmt::print("  normalizer      {}\n", forms.empty() ? "none" : forms);
  fmt::print("  pre-tokenizer   {}{}\n", parts.pretokenizer.description(),
             parts.add_prefix_space ? ", a space before the text" : "");
  fmt::print("  end of text     {} \"{}\" ({})\n", tokenizer.eos_id(), shown(tokenizer.end_of_text()),
             parts.eos_origin);
  fmt::print("  before a text   [{}]\n", fmt::join(parts.prefix_ids, ","));
  fmt::print("  added tokens    {}\n", parts.added.size());
  for (const data::AddedToken& token : parts.added) {
    fmt::print("    {:>8} \"{}\"{}\n", token.id, shown(token.content), flags(token));
  }
  return 0;
}

}  // namespace wych::cli
