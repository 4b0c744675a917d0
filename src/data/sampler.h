// What a step reads. An instance is `sequence_length` tokens cut from one file; the tail of each file is
// dropped and counted. Training order: all instances in order of files, shuffled like numpy's
// Generator(PCG64(seed + epoch)).shuffle, epochs counted from 1, the last incomplete batch of an epoch left
// out, as OLMo-core does. What a batch holds is a function of (files, options, position) alone.
#pragma once

#include <span>
#include <vector>

#include "base/expected.h"
#include "base/types.h"
#include "data/token_file.h"

namespace wych::data {

inline constexpr i32 kIgnoredTarget = -100;

struct BatchOptions {
  i64 sequence_length = 0;      // >= 2
  i64 sequences_per_batch = 0;  // over all shards
  i64 vocab_size = 0;           // ids at or above are an Error when read
  i32 eos_id = 0;
  bool document_mask = true;  // tokens attend within their document only
  // Sequence j of a batch goes to shard j mod num_shards, at place j div num_shards; num_shards divides
  // sequences_per_batch. A shard is a data-parallel rank.
  i64 shard = 0;
  i64 num_shards = 1;
};

// The rows of one shard, one after the other: each vector is [sequences * sequence_length].
struct Batch {
  std::vector<i32> tokens;
  std::vector<i32> targets;         // the next token of the instance; kIgnoredTarget at its last position
  std::vector<i32> document_start;  // index in the sequence where the token's document starts; 0 if unmasked
};

// Files cut into instances; the common part of Sampler and EvalReader.
class Instances {
 public:
  // Error (kData) if there is not one whole instance. Options are CHECKed.
  static Expected<Instances> create(std::vector<TokenFile> files, const BatchOptions& options);

  [[nodiscard]] i64 count() const { return first_instance_.back(); }
  // Tokens in the tails of the files, which no instance holds.
  [[nodiscard]] i64 tokens_dropped() const { return tokens_dropped_; }
  [[nodiscard]] const BatchOptions& options() const { return options_; }
  [[nodiscard]] i64 rows() const { return options_.sequences_per_batch / options_.num_shards; }

  // Gives `batch` this shard's size; allocates only if it has another one.
  void shape(Batch& batch) const;
  // Writes instance `index` to row `row`.
  Expected<void> fill_row(i64 index, i64 row, Batch& batch) const;
  // A row without targets: end-of-text tokens.
  void fill_padding_row(i64 row, Batch& batch) const;

 private:
  void finish_row(i64 row, Batch& batch) const;

  std::vector<TokenFile> files_;
  std::vector<i64> first_instance_;  // [files + 1]
  BatchOptions options_;
  i64 tokens_dropped_ = 0;
};

// How much of the data is consumed; goes into checkpoints. In instances, so that it outlives a change of the
// batch size.
struct DataPosition {
  i64 epoch = 1;
  i64 instance = 0;  // instances of this epoch consumed
  bool operator==(const DataPosition&) const = default;
};

class Sampler {
 public:
  // Error (kData) if an epoch does not fill one batch or has 2^32 instances or more.
  static Expected<Sampler> create(std::vector<TokenFile> files, const BatchOptions& options, u64 seed);

  [[nodiscard]] const Instances& instances() const { return instances_; }
  [[nodiscard]] i64 batches_per_epoch() const {
    return instances_.count() / instances_.options().sequences_per_batch;
  }

  // Where step `step` (from 0) of a run that started at the beginning reads.
  [[nodiscard]] DataPosition position_of_step(i64 step) const;
  // The position after the batch at `position`.
  [[nodiscard]] DataPosition after(const DataPosition& position) const;
  // Fills this shard's rows of the batch at `position`; a position with less than a batch left in its epoch
  // means the start of the next one. After the first call it allocates nothing. An epoch's order is made on
  // its first use (well under 0.1 us an instance) and kept.
  Expected<void> fill(const DataPosition& position, Batch& batch);

 private:
  Sampler(Instances instances, u64 seed) : instances_(std::move(instances)), seed_(seed) {}
  [[nodiscard]] DataPosition start_of_batch(const DataPosition& position) const;
  void make_order(i64 epoch);

  Instances instances_;
  u64 seed_;
  i64 order_epoch_ = 0;     // the epoch of order_; 0: none yet
  std::vector<u32> order_;  // [instances]
};

// Held-out text in order, each instance once: batch b holds instances [b * B, (b + 1) * B). The last batch is
// filled up with rows without targets.
class EvalReader {
 public:
  static Expected<EvalReader> create(std::vector<TokenFile> files, const BatchOptions& options);

  [[nodiscard]] const Instances& instances() const { return instances_; }
  [[nodiscard]] i64 num_batches() const {
    return ceil_div(instances_.count(), instances_.options().sequences_per_batch);
  }
  // Over all shards: sequence_length - 1 an instance.
  [[nodiscard]] i64 num_targets() const {
    return instances_.count() * (instances_.options().sequence_length - 1);
  }
  // Fills this shard's rows of batch `index` in [0, num_batches()).
  Expected<void> fill(i64 index, Batch& batch) const;

 private:
  explicit EvalReader(Instances instances) : instances_(std::move(instances)) {}
  Instances instances_;
};

}  // namespace wych::data
