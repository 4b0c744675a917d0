// Reading and parsing of the next batch run beside the encoding of this one; writing is in order.
#include "data/text_tokenize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <future>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/staged_folder.h"
#include "data/sources.h"
#include "data/token_file.h"
#include "data/tokenizer.h"

namespace wych::data {
namespace {

constexpr i64 kSectionBytes = i64{32} << 10U;

// Whether unit `index` is held out: one unit of every 1 / fraction, at a place that only the hash knows.
class HoldOut {
 public:
  explicit HoldOut(double fraction) : fraction_(fraction) {}

  bool next() {
    const i64 unit = unit_++;
    if (fraction_ <= 0) {
      return false;
    }
    if (unit == end_) {
      begin_ = end_;
      end_ = std::max(begin_ + 1, static_cast<i64>(std::ceil(static_cast<double>(++stratum_) / fraction_)));
      chosen_ = begin_ + static_cast<i64>(hash_bytes(fmt::format("held out {}", stratum_)) %
                                          static_cast<u64>(end_ - begin_));
    }
    return unit == chosen_;
  }

 private:
  double fraction_;
  i64 unit_ = 0;
  i64 stratum_ = 0;
  i64 begin_ = 0;
  i64 end_ = 0;
  i64 chosen_ = -1;
};

// The token files of one split.
class SplitWriter {
 public:
  SplitWriter(const TokenizeOptions& options, Split split, TokenType type, i32 eos_id, Dataset& dataset)
      : options_(options), split_(split), type_(type), eos_id_(eos_id), dataset_(dataset) {}

  [[nodiscard]] bool in_document() const { return in_document_; }

  Expected<void> append(std::span<const i32> tokens, i64 text_bytes) {
    if (!writer_) {
      file_ = {.file = fmt::format("{}-{:05}.npy", split_name(split_), num_files_++),
               .domain = options_.domain,
               .split = split_};
      WYCH_TRY(writer_, TokenWriter::create(fmt::format("{}/{}", dataset_.folder, file_.file), type_));
    }
    in_document_ = true;
    file_.text_bytes += text_bytes;
    return writer_->append(tokens);
  }

  Expected<void> end_document() {
    in_document_ = false;
    ++file_.documents;
    WYCH_TRY_VOID(writer_->append(std::array{eos_id_}));
    return writer_->num_tokens() >= options_.shard_tokens ? finish() : Expected<void>();
  }

  Expected<void> finish() {
    if (!writer_) {
      return {};
    }
    file_.tokens = writer_->num_tokens();
    WYCH_TRY(file_.xxh3, writer_->finish());
    dataset_.files.push_back(std::move(file_));
    writer_.reset();
    return {};
  }

 private:
  const TokenizeOptions& options_;
  Split split_;
  TokenType type_;
  i32 eos_id_;
  Dataset& dataset_;
  std::optional<TokenWriter> writer_;
  DatasetFile file_;
  i64 num_files_ = 0;
  bool in_document_ = false;
};

Expected<void> check_folder(const std::string& folder) {
  std::error_code failure;
  if (std::filesystem::exists(folder, failure) &&
      !(std::filesystem::is_directory(folder, failure) && std::filesystem::is_empty(folder, failure))) {
    return Error{ErrorKind::kUsage, folder, "exists already", "choose another folder, or remove it", {}};
  }
  return {};
}

// The description of the folder so far, its ids' type and end-of-text id settled.
Expected<Dataset> describe(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  Dataset dataset;
  dataset.vocab_size = tokenizer.vocab_size();
  dataset.type = options.type.value_or(token_type_for(dataset.vocab_size));
  dataset.tokenizer = kTokenizerFileName;
  dataset.domains = {{options.domain, "as its source"}};
  constexpr std::size_t kNamedFiles = 4;
  const std::size_t named = std::min(kNamedFiles, options.files.size());
  dataset.recipe = fmt::format(
      "tokenized: {}{}; held out {:g}",
      fmt::join(options.files.begin(), options.files.begin() + static_cast<std::ptrdiff_t>(named), " "),
      named < options.files.size() ? " and more" : "", options.valid_fraction);
  const i64 eos_id = options.eos_id >= 0 ? options.eos_id : tokenizer.eos_id();
  if (eos_id < 0 || eos_id >= dataset.vocab_size) {
    return Error{ErrorKind::kUsage,
                 "end-of-text id",
                 eos_id < 0 ? fmt::format("{} names none", options.tokenizer)
                            : fmt::format("is {}; the tokenizer has {} tokens", eos_id, dataset.vocab_size),
                 "say which id ends a document with --eos",
                 {}};
  }
  dataset.eos_id = static_cast<i32>(eos_id);
  if (is_signed(dataset.type) || dataset.vocab_size - 1 > largest_id(dataset.type)) {
    return Error{ErrorKind::kUsage,
                 "type of the ids",
                 fmt::format("{} does not hold {} tokens", token_type_name(dataset.type), dataset.vocab_size),
                 "leave --dtype out, or give u16, u32 or u64",
                 {}};
  }
  return dataset;
}

class Tokenization {
 public:
  Tokenization(const TokenizeOptions& options, const Tokenizer& tokenizer, Dataset dataset, ThreadPool& pool)
      : tokenizer_(tokenizer),
        pool_(pool),
        hold_out_(options.valid_fraction),
        report_{std::move(dataset)},
        writers_{SplitWriter(options, Split::kTrain, report_.dataset.type, report_.dataset.eos_id,
                             report_.dataset),
                 SplitWriter(options, Split::kValid, report_.dataset.type, report_.dataset.eos_id,
                             report_.dataset)} {}

  Expected<TokenizeReport> run(TextReader& reader, i64 batch_bytes,
                               FunctionRef<void(const TokenizeProgress&)> progress) {
    TokenizeProgress done{.total_bytes = reader.total_bytes()};
    WYCH_TRY(TextBatch batch, reader.next(batch_bytes));
    while (true) {
      std::future<Expected<TextBatch>> ahead;
      if (!batch.at_end) {
        ahead = std::async(std::launch::async, [&] { return reader.next(batch_bytes); });
      }
      const Expected<void> written = write(batch, done);
      done.bytes_read = batch.bytes_read;
      progress(done);
      if (!ahead.valid()) {
        WYCH_TRY_VOID(written);
        break;
      }
      Expected<TextBatch> next = ahead.get();
      WYCH_TRY_VOID(written);
      WYCH_TRY(batch, std::move(next));
    }
    for (SplitWriter& writer : writers_) {
      WYCH_TRY_VOID(writer.finish());
    }
    return std::move(report_);
  }

 private:
  SplitWriter& writer(Split split) { return writers_[static_cast<std::size_t>(split)]; }

  Expected<void> write(TextBatch& batch, TokenizeProgress& done) {
    report_.invalid += batch.invalid;
    report_.empty += batch.empty;
    std::vector<std::string> texts;
    texts.reserve(batch.pieces.size());
    for (TextPiece& piece : batch.pieces) {
      texts.push_back(std::move(piece.text));
    }
    const std::vector<std::vector<i32>> encoded = tokenizer_.encode_all(texts, pool_);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto bytes = static_cast<i64>(texts[i].size());
      WYCH_TRY_VOID(write_piece(batch.pieces[i], encoded[i], bytes));
      report_.text_bytes += bytes;
      done.tokens += std::ssize(encoded[i]);
    }
    done.text_bytes = report_.text_bytes;
    return {};
  }

  Expected<void> write_piece(const TextPiece& piece, std::span<const i32> tokens, i64 bytes) {
    if (piece.begins_unit) {
      const Split split = hold_out_.next() ? Split::kValid : Split::kTrain;
      // A section of the other kind than the one before it: the document ends here.
      if (split != split_ && writer(split_).in_document()) {
        WYCH_TRY_VOID(end_document());
      }
      split_ = split;
    }
    // What the tokenizer puts before every text belongs before documents only.
    const std::size_t prefix = writer(split_).in_document() ? tokenizer_.parts().prefix_ids.size() : 0;
    WYCH_TRY_VOID(writer(split_).append(tokens.subspan(prefix), bytes));
    return piece.ends_document ? end_document() : Expected<void>();
  }

  Expected<void> end_document() {
    ++report_.documents;
    return writer(split_).end_document();
  }

  const Tokenizer& tokenizer_;
  ThreadPool& pool_;
  HoldOut hold_out_;
  TokenizeReport report_;
  std::array<SplitWriter, 2> writers_;
  Split split_ = Split::kTrain;
};

}  // namespace

Expected<TokenizeReport> tokenize_text(const TokenizeOptions& options, ThreadPool& pool,
                                       FunctionRef<void(const TokenizeProgress&)> progress) {
  const std::string folder = plain_folder_name(options.folder);
  WYCH_TRY_VOID(check_folder(folder));
  WYCH_TRY(const Tokenizer tokenizer, Tokenizer::load(options.tokenizer));
  WYCH_TRY(Dataset dataset, describe(options, tokenizer));
  std::vector<std::string> paths;
  for (const std::string& pattern : options.files) {
    WYCH_TRY(const std::vector<std::string> found, expand_path(pattern, "text files"));
    paths.insert(paths.end(), found.begin(), found.end());
  }
  TextOptions text = options.text;
  text.cut_at_lines = !tokenizer.parts().add_prefix_space;
  text.section_bytes = options.valid_fraction > 0 ? kSectionBytes : 0;
  WYCH_TRY(TextReader reader, TextReader::open(std::move(paths), text));
  std::error_code failure;
  std::filesystem::create_directories(std::filesystem::absolute(folder).parent_path(), failure);
  WYCH_TRY(StagedFolder staged, StagedFolder::create(folder, ErrorKind::kData));
  dataset.folder = staged.path();
  WYCH_TRY(
      TokenizeReport report,
      Tokenization(options, tokenizer, std::move(dataset), pool).run(reader, options.batch_bytes, progress));
  if (report.dataset.num_tokens(Split::kTrain) == 0) {
    return Error{ErrorKind::kData,
                 options.files.empty() ? "text files" : options.files.front(),
                 fmt::format("{} file(s) hold no text to train on", options.files.size()),
                 "give more text",
                 {}};
  }
  WYCH_TRY_VOID(save_tokenizer(tokenizer, staged.path()));
  WYCH_TRY_VOID(save_dataset(report.dataset));
  WYCH_TRY_VOID(staged.publish());
  report.dataset.folder = folder;
  return report;
}

}  // namespace wych::data
