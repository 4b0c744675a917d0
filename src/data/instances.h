// Token files as instances: rows of `sequence_length` tokens with their targets and document starts. Either
// cut one after the other from each file (from each row of a two-dimensional one), the tail dropped and
// counted, as OLMo-core's fixed sequence length does; or packed from whole documents (packing.h), a file at a
// time, the rest of a row filled with end-of-text tokens without targets.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/expected.h"
#include "base/types.h"
#include "data/documents.h"
#include "data/mixture.h"
#include "data/packing.h"
#include "data/token_file.h"

namespace wych::data {

inline constexpr i32 kIgnoredTarget = -100;

// Where a target comes from.
enum class Targets : u8 {
  kWithin,  // the next token of the instance: sequence_length - 1 targets (OLMo-core)
  kNext,    // the next token of the file: sequence_length targets (nanoGPT, llm.c)
};

struct BatchOptions {
  i64 sequence_length = 0;      // >= 2
  i64 sequences_per_batch = 0;  // over all shards
  i64 vocab_size = 0;           // ids at or above are an Error when read
  i32 eos_id = 0;
  bool document_mask = true;  // tokens attend within their document only
  Targets targets = Targets::kWithin;
  bool packing = false;                 // with Targets::kWithin only
  bool targets_cross_documents = true;  // a document's last token predicts the first of the next one
  // Sequence j of a batch goes to shard j mod num_shards, at place j div num_shards; num_shards divides
  // sequences_per_batch. A shard is a data-parallel rank.
  i64 shard = 0;
  i64 num_shards = 1;
};

// The rows of one shard, one after the other: each vector is [sequences * sequence_length].
struct Batch {
  std::vector<i32> tokens;
  std::vector<i32> targets;         // the token to predict, or kIgnoredTarget
  std::vector<i32> document_start;  // index in the sequence where the token's document starts; 0 if unmasked
};

struct InstanceFile {
  TokenFile tokens;
  std::optional<LabelMask> label_mask = {};
  std::string domain = "text";
  i64 text_bytes = 0;  // behind the tokens, before encoding; 0: unknown
};
// Files without masks.
std::vector<InstanceFile> whole_files(std::vector<TokenFile> files);

// Copies share the files.
class Instances {
 public:
  // All instances of the files, in order. Error (kData) if there is not one. Options are CHECKed. Packing
  // looks for documents, which may read everything.
  static Expected<Instances> create(std::vector<InstanceFile> files, const BatchOptions& options);
  // From here on the instances are those of `ranges` one after the other (mixture.h), of which there is at
  // least one.
  void choose(std::vector<InstanceRange> ranges);

  [[nodiscard]] i64 count() const { return first_instance_.back(); }
  // Whole instances of a file, chosen or not.
  [[nodiscard]] i64 instances_of(std::size_t file) const;
  [[nodiscard]] std::span<const InstanceFile> files() const { return *files_; }
  // What is chosen of which file, in order.
  [[nodiscard]] std::span<const InstanceRange> ranges() const { return ranges_; }
  // Tokens in the tails of the files, which no instance holds.
  [[nodiscard]] i64 tokens_dropped() const { return tokens_dropped_; }
  // Places of packed instances that no token fills.
  [[nodiscard]] i64 padding() const { return padding_; }
  [[nodiscard]] const BatchOptions& options() const { return options_; }
  [[nodiscard]] i64 rows() const { return options_.sequences_per_batch / options_.num_shards; }

  // Gives `batch` this shard's size; allocates only if it has another one.
  void shape(Batch& batch) const;
  // Writes instance `index` to row `row`. Does not allocate unless it fails.
  Expected<void> fill_row(i64 index, i64 row, Batch& batch) const;
  // A row without targets: end-of-text tokens.
  void fill_padding_row(i64 row, Batch& batch) const;

 private:
  struct Row;  // one row of a batch, as spans
  [[nodiscard]] Row row_of(i64 row, Batch& batch) const;
  [[nodiscard]] i64 row_instances(i64 tokens) const;
  Expected<void> fill_cut(const InstanceFile& file, i64 instance, Row row) const;
  Expected<void> fill_packed(const InstanceFile& file, std::span<const TokenSpan> pieces, Row row) const;
  void end_document(std::size_t place, Row row) const;
  void mark_documents(const InstanceFile& file, i64 begin, Row row) const;

  std::shared_ptr<const std::vector<InstanceFile>> files_;
  std::shared_ptr<const std::vector<Packing>> packings_;  // [files] or none
  std::vector<InstanceRange> ranges_;
  std::vector<i64> first_instance_;  // [ranges + 1]
  BatchOptions options_;
  i64 tokens_dropped_ = 0;
  i64 padding_ = 0;
};

}  // namespace wych::data
