// Nothing here depends on what was read before: the order array is a cache of one epoch, rebuilt whenever a
// position asks for another.
#include "data/sampler.h"

#include <fmt/format.h>

#include <limits>
#include <numeric>

#include "base/check.h"
#include "data/numpy_random.h"

namespace wych::data {

Expected<Sampler> Sampler::create(Instances instances, const Shuffle& shuffle) {
  WYCH_CHECK(shuffle.chunk >= 1, "chunks of {}", shuffle.chunk);
  const i64 count = instances.count() / shuffle.chunk * shuffle.chunk;
  const BatchOptions& options = instances.options();
  if (count < options.sequences_per_batch || count > static_cast<i64>(std::numeric_limits<u32>::max())) {
    return Error{ErrorKind::kData,
                 "training data",
                 fmt::format("{} sequences of {} tokens; expected at least a batch of {} and fewer than 2^32",
                             count, options.sequence_length, options.sequences_per_batch),
                 "give more data or change the batch or the sequence length",
                 {}};
  }
  Sampler sampler(std::move(instances), shuffle);
  sampler.order_.resize(static_cast<std::size_t>(count));
  sampler.chunks_.resize(shuffle.chunk > 1 ? static_cast<std::size_t>(count / shuffle.chunk) : 0);
  return sampler;
}

DataPosition Sampler::position_of_step(i64 step) const {
  WYCH_CHECK(step >= 0, "step {}", step);
  return {step / batches_per_epoch() + 1,
          step % batches_per_epoch() * instances_.options().sequences_per_batch};
}

DataPosition Sampler::start_of_batch(const DataPosition& position) const {
  WYCH_CHECK(position.epoch >= 1 && position.instance >= 0, "epoch {}, instance {}", position.epoch,
             position.instance);
  const bool fits = position.instance + instances_.options().sequences_per_batch <= epoch_instances();
  return fits ? position : DataPosition{position.epoch + 1, 0};
}

DataPosition Sampler::after(const DataPosition& position) const {
  const DataPosition start = start_of_batch(position);
  return start_of_batch({start.epoch, start.instance + instances_.options().sequences_per_batch});
}

Expected<void> Sampler::fill(const DataPosition& position, Batch& batch) {
  const DataPosition start = start_of_batch(position);
  if (order_epoch_ != start.epoch) {
    make_order(start.epoch);
  }
  instances_.shape(batch);
  const BatchOptions& options = instances_.options();
  for (i64 row = 0; row < instances_.rows(); ++row) {
    const i64 place = start.instance + row * options.num_shards + options.shard;
    WYCH_TRY_VOID(instances_.fill_row(order_[static_cast<std::size_t>(place)], row, batch));
  }
  return {};
}

void Sampler::make_order(i64 epoch) {
  NumpyGenerator generator(shuffle_.seed + static_cast<u64>(epoch));
  order_epoch_ = epoch;
  if (chunks_.empty()) {
    std::iota(order_.begin(), order_.end(), 0U);
    generator.shuffle(order_);
    return;
  }
  std::iota(chunks_.begin(), chunks_.end(), 0U);
  generator.shuffle(chunks_);
  const auto chunk = static_cast<u32>(shuffle_.chunk);
  for (std::size_t i = 0; i < order_.size(); ++i) {
    order_[i] = chunks_[i / chunk] * chunk + static_cast<u32>(i % chunk);
  }
}

Expected<EvalReader> EvalReader::create(std::vector<TokenFile> files, const BatchOptions& options) {
  WYCH_TRY(Instances instances, Instances::create(whole_files(std::move(files)), options));
  return EvalReader(std::move(instances));
}

Expected<void> EvalReader::fill(i64 index, Batch& batch) const {
  WYCH_CHECK(index >= 0 && index < num_batches(), "batch {} of {}", index, num_batches());
  instances_.shape(batch);
  const BatchOptions& options = instances_.options();
  for (i64 row = 0; row < instances_.rows(); ++row) {
    const i64 place = index * options.sequences_per_batch + row * options.num_shards + options.shard;
    if (place < instances_.count()) {
      WYCH_TRY_VOID(instances_.fill_row(place, row, batch));
    } else {
      instances_.fill_padding_row(row, batch);
    }
  }
  return {};
}

}  // namespace wych::data
