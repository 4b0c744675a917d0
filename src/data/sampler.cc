// Nothing here depends on what was read before: the order array is a cache of one epoch, rebuilt whenever a
// position asks for another.
#include "data/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "data/numpy_random.h"

namespace wych::data {

Expected<Instances> Instances::create(std::vector<TokenFile> files, const BatchOptions& options) {
  WYCH_CHECK(options.sequence_length >= 2, "sequence length {}", options.sequence_length);
  WYCH_CHECK(options.num_shards >= 1 && options.shard >= 0 && options.shard < options.num_shards,
             "shard {} of {}", options.shard, options.num_shards);
  WYCH_CHECK(options.sequences_per_batch >= 1 && options.sequences_per_batch % options.num_shards == 0,
             "{} sequences for {} shards", options.sequences_per_batch, options.num_shards);
  WYCH_CHECK(options.eos_id >= 0 && options.eos_id < options.vocab_size, "end-of-text id {} of {}",
             options.eos_id, options.vocab_size);
  Instances result;
  result.options_ = options;
  result.first_instance_.push_back(0);
  for (const TokenFile& file : files) {
    const i64 whole = file.num_tokens() / options.sequence_length;
    result.first_instance_.push_back(result.first_instance_.back() + whole);
    result.tokens_dropped_ += file.num_tokens() % options.sequence_length;
  }
  if (result.count() == 0) {
    return Error{ErrorKind::kData,
                 files.empty() ? "token files" : files.front().path(),
                 fmt::format("{} file(s) with {} tokens do not hold one sequence of {}", files.size(),
                             result.tokens_dropped_, options.sequence_length),
                 "give more data or a shorter sequence",
                 {}};
  }
  result.files_ = std::move(files);
  return result;
}

void Instances::shape(Batch& batch) const {
  const auto size = static_cast<std::size_t>(rows() * options_.sequence_length);
  batch.tokens.resize(size);
  batch.targets.resize(size);
  batch.document_start.resize(size);
}

Expected<void> Instances::fill_row(i64 index, i64 row, Batch& batch) const {
  WYCH_CHECK(index >= 0 && index < count() && row >= 0 && row < rows(), "instance {}, row {}", index, row);
  const auto next = std::upper_bound(first_instance_.begin(), first_instance_.end(), index);
  const auto file = static_cast<std::size_t>(next - first_instance_.begin()) - 1;
  const i64 begin = (index - first_instance_[file]) * options_.sequence_length;
  const auto length = static_cast<std::size_t>(options_.sequence_length);
  const std::span<i32> tokens(batch.tokens.data() + static_cast<std::size_t>(row) * length, length);
  WYCH_TRY_VOID(files_[file].read(begin, options_.vocab_size, tokens));
  i32* targets = batch.targets.data() + static_cast<std::size_t>(row) * length;
  std::copy(tokens.begin() + 1, tokens.end(), targets);
  targets[length - 1] = kIgnoredTarget;
  finish_row(row, batch);
  return {};
}

void Instances::fill_padding_row(i64 row, Batch& batch) const {
  const i64 begin = row * options_.sequence_length;
  std::fill_n(batch.tokens.begin() + begin, options_.sequence_length, options_.eos_id);
  std::fill_n(batch.targets.begin() + begin, options_.sequence_length, kIgnoredTarget);
  finish_row(row, batch);
}

// document_start from the tokens: a document ends with its end-of-text.
void Instances::finish_row(i64 row, Batch& batch) const {
  const auto begin = static_cast<std::size_t>(row * options_.sequence_length);
  i32 start = 0;
  for (i32 t = 0; t < static_cast<i32>(options_.sequence_length); ++t) {
    const std::size_t at = begin + static_cast<std::size_t>(t);
    batch.document_start[at] = start;
    if (options_.document_mask && batch.tokens[at] == options_.eos_id) {
      start = t + 1;
    }
  }
}

Expected<Sampler> Sampler::create(std::vector<TokenFile> files, const BatchOptions& options, u64 seed) {
  WYCH_TRY(Instances instances, Instances::create(std::move(files), options));
  if (instances.count() < options.sequences_per_batch ||
      instances.count() > static_cast<i64>(std::numeric_limits<u32>::max())) {
    return Error{ErrorKind::kData,
                 "training data",
                 fmt::format("{} sequences of {} tokens; expected at least a batch of {} and fewer than 2^32",
                             instances.count(), options.sequence_length, options.sequences_per_batch),
                 "give more data or change the batch or the sequence length",
                 {}};
  }
  Sampler sampler(std::move(instances), seed);
  sampler.order_.resize(static_cast<std::size_t>(sampler.instances_.count()));
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
  const bool fits = position.instance + instances_.options().sequences_per_batch <= instances_.count();
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
  std::iota(order_.begin(), order_.end(), 0U);
  NumpyGenerator(seed_ + static_cast<u64>(epoch)).shuffle(order_);
  order_epoch_ = epoch;
}

Expected<EvalReader> EvalReader::create(std::vector<TokenFile> files, const BatchOptions& options) {
  WYCH_TRY(Instances instances, Instances::create(std::move(files), options));
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
