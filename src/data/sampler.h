// What a step reads, and in which order. Training order: all instances (instances.h) in the order of files,
// shuffled like numpy's Generator(PCG64(seed + epoch)).shuffle, epochs counted from 1, the last incomplete
// batch of an epoch left out, as OLMo-core does. What a batch holds is a function of (files, options,
// position) alone.
#pragma once

#include <vector>

#include "base/expected.h"
#include "base/types.h"
#include "data/instances.h"

namespace wych::data {

// How much of the data is consumed; goes into checkpoints. In instances, so that it outlives a change of the
// batch size.
struct DataPosition {
  i64 epoch = 1;
  i64 instance = 0;  // instances of this epoch consumed
  bool operator==(const DataPosition&) const = default;
};

// How an epoch is shuffled.
struct Shuffle {
  u64 seed = 0;
  i64 chunk = 1;  // instances that stay together, in order; those after the last whole chunk are left out
};

class Sampler {
 public:
  // Error (kData) if an epoch does not fill one batch or has 2^32 instances or more.
  static Expected<Sampler> create(Instances instances, const Shuffle& shuffle);

  [[nodiscard]] const Instances& instances() const { return instances_; }
  // Instances an epoch reads at most: whole chunks.
  [[nodiscard]] i64 epoch_instances() const { return static_cast<i64>(order_.size()); }
  [[nodiscard]] i64 batches_per_epoch() const {
    return epoch_instances() / instances_.options().sequences_per_batch;
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
  Sampler(Instances instances, const Shuffle& shuffle)
      : instances_(std::move(instances)), shuffle_(shuffle) {}
  [[nodiscard]] DataPosition start_of_batch(const DataPosition& position) const;
  void make_order(i64 epoch);

  Instances instances_;
  Shuffle shuffle_;
  i64 order_epoch_ = 0;      // the epoch of order_; 0: none yet
  std::vector<u32> order_;   // [epoch_instances]
  std::vector<u32> chunks_;  // [epoch_instances / chunk]; empty if chunk is 1
};

// Held-out text in order, each instance once: batch b holds instances [b * B, (b + 1) * B). The last batch is
// filled up with rows without targets.
class EvalReader {
 public:
  explicit EvalReader(Instances instances) : instances_(std::move(instances)) {}
  // All instances of raw token files.
  static Expected<EvalReader> create(std::vector<TokenFile> files, const BatchOptions& options);

  [[nodiscard]] const Instances& instances() const { return instances_; }
  [[nodiscard]] i64 num_batches() const {
    return ceil_div(instances_.count(), instances_.options().sequences_per_batch);
  }
  // Fills this shard's rows of batch `index` in [0, num_batches()).
  Expected<void> fill(i64 index, Batch& batch) const;

 private:
  Instances instances_;
};

}  // namespace wych::data
