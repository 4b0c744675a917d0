// Order against numpy, the cut into instances, shards, positions and held-out batches.
#include "data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "data/test_folder.h"

namespace wych::data {
namespace {

constexpr i32 kEos = 99;

// Token files whose tokens count on through all files from 0.
std::vector<TokenFile> counting_files(const TestFolder& folder, const std::vector<i64>& sizes) {
  std::vector<TokenFile> files;
  i32 next = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::vector<i32> tokens(static_cast<std::size_t>(sizes[i]));
    std::iota(tokens.begin(), tokens.end(), next);
    next += static_cast<i32>(sizes[i]);
    const std::string path = folder.path("f" + std::to_string(i));
    (void)write_token_file(path, TokenType::kU16, tokens).value();
    files.push_back(TokenFile::open(path, TokenType::kU16).value());
  }
  return files;
}

BatchOptions options_of(i64 sequence_length, i64 sequences) {
  BatchOptions options;
  options.sequence_length = sequence_length;
  options.sequences_per_batch = sequences;
  options.vocab_size = 1000;
  options.eos_id = kEos;
  return options;
}

Expected<Sampler> make_sampler(std::vector<TokenFile> files, const BatchOptions& options, u64 seed,
                               i64 chunk = 1) {
  WYCH_TRY(Instances instances, Instances::create(whole_files(std::move(files)), options));
  return Sampler::create(std::move(instances), {.seed = seed, .chunk = chunk});
}

// The first token of each row: in a counting file it tells the instance.
std::vector<i32> first_tokens(const Batch& batch, i64 sequence_length) {
  std::vector<i32> result;
  for (std::size_t i = 0; i < batch.tokens.size(); i += static_cast<std::size_t>(sequence_length)) {
    result.push_back(batch.tokens[i]);
  }
  return result;
}

TEST(Instances, CutsEachFileByItselfAndCountsTheTails) {
  const TestFolder folder;
  const Instances instances =
      Instances::create(whole_files(counting_files(folder, {10, 3, 9})), options_of(4, 1)).value();
  EXPECT_EQ(instances.count(), 2 + 0 + 2);
  EXPECT_EQ(instances.tokens_dropped(), 2 + 3 + 1);
  Batch batch;
  instances.shape(batch);
  const i32 expected[] = {0, 4, 13, 17};
  for (i64 i = 0; i < 4; ++i) {
    instances.fill_row(i, 0, batch).value();
    const i32 first = expected[i];
    EXPECT_EQ(batch.tokens, (std::vector<i32>{first, first + 1, first + 2, first + 3}));
    EXPECT_EQ(batch.targets, (std::vector<i32>{first + 1, first + 2, first + 3, kIgnoredTarget}));
  }
}

TEST(Instances, RefusesFilesWithoutOneInstance) {
  const TestFolder folder;
  const auto result = Instances::create(whole_files(counting_files(folder, {3, 3})), options_of(4, 1));
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().text().find("2 file(s) with 6 tokens do not hold one sequence of 4"),
            std::string::npos);
}

// numpy: Generator(PCG64(34521 + 1)).shuffle(arange(10, dtype=uint32)) is 5 9 8 4 0 6 1 2 7 3.
TEST(Sampler, ReadsInNumpysOrder) {
  const TestFolder folder;
  Sampler sampler = make_sampler(counting_files(folder, {20, 20}), options_of(4, 3), 34521).value();
  EXPECT_EQ(sampler.batches_per_epoch(), 3);
  const std::vector<i32> order = {5, 9, 8, 4, 0, 6, 1, 2, 7};
  Batch batch;
  for (i64 step = 0; step < 3; ++step) {
    sampler.fill(sampler.position_of_step(step), batch).value();
    const auto rows = first_tokens(batch, 4);
    for (std::size_t row = 0; row < 3; ++row) {
      EXPECT_EQ(rows[row], 4 * order[static_cast<std::size_t>(step) * 3 + row]);
    }
  }
}

TEST(Sampler, IsAFunctionOfThePositionAlone) {
  const TestFolder folder;
  Sampler forward = make_sampler(counting_files(folder, {200}), options_of(4, 6), 1).value();
  Sampler jumping = make_sampler(counting_files(folder, {200}), options_of(4, 6), 1).value();
  Batch expected;
  Batch actual;
  DataPosition position;
  std::vector<std::vector<i32>> batches;
  for (i64 step = 0; step < 20; ++step) {
    EXPECT_EQ(position, forward.position_of_step(step));
    forward.fill(position, expected).value();
    batches.push_back(expected.tokens);
    position = forward.after(position);
  }
  for (const i64 step : {19, 0, 7, 8, 18, 3}) {
    jumping.fill(jumping.position_of_step(step), actual).value();
    EXPECT_EQ(actual.tokens, batches[static_cast<std::size_t>(step)]);
  }
}

TEST(Sampler, ReadsEachInstanceAtMostOnceAnEpochAndShufflesAnew) {
  const TestFolder folder;
  Sampler sampler = make_sampler(counting_files(folder, {100}), options_of(4, 4), 9).value();
  ASSERT_EQ(sampler.batches_per_epoch(), 6);  // 25 instances: one is left out
  Batch batch;
  std::vector<i32> epochs[2];
  for (i64 step = 0; step < 12; ++step) {
    sampler.fill(sampler.position_of_step(step), batch).value();
    for (const i32 first : first_tokens(batch, 4)) {
      epochs[step / 6].push_back(first);
    }
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (const auto& epoch : epochs) {
    EXPECT_EQ(std::set<i32>(epoch.begin(), epoch.end()).size(), 24U);
  }
}

TEST(Sampler, DealsSequencesToShardsInTurn) {
  const TestFolder folder;
  Sampler whole = make_sampler(counting_files(folder, {200}), options_of(4, 6), 5).value();
  Batch all;
  whole.fill(whole.position_of_step(2), all).value();
  const auto expected = first_tokens(all, 4);
  for (i64 shard = 0; shard < 3; ++shard) {
    BatchOptions options = options_of(4, 6);
    options.shard = shard;
    options.num_shards = 3;
    Sampler part = make_sampler(counting_files(folder, {200}), options, 5).value();
    Batch batch;
    part.fill(part.position_of_step(2), batch).value();
    const auto rows = first_tokens(batch, 4);
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[0], expected[static_cast<std::size_t>(shard)]);
    EXPECT_EQ(rows[1], expected[static_cast<std::size_t>(3 + shard)]);
  }
}

// A checkpoint after two batches of 6, resumed with batches of 4: the instances go on where they stopped.
TEST(Sampler, GoesOnWithAnotherBatchSize) {
  const TestFolder folder;
  Sampler six = make_sampler(counting_files(folder, {100}), options_of(4, 6), 3).value();
  Sampler four = make_sampler(counting_files(folder, {100}), options_of(4, 4), 3).value();
  std::vector<i32> seen;
  Batch batch;
  DataPosition position;
  const auto take = [&](Sampler& sampler) {
    sampler.fill(position, batch).value();
    for (const i32 first : first_tokens(batch, 4)) {
      seen.push_back(first);
    }
    position = sampler.after(position);
  };
  take(six);
  take(six);
  EXPECT_EQ(position, (DataPosition{1, 12}));
  take(four);
  take(four);
  take(four);
  EXPECT_EQ(std::set<i32>(seen.begin(), seen.end()).size(), 24U);
  EXPECT_EQ(position, (DataPosition{2, 0}));
  // One instance is left in the epoch: too few for a batch, so this is the start of the next.
  position = {1, 24};
  take(four);
  EXPECT_EQ(position, (DataPosition{2, 4}));
}

// numpy: arange(23 // 4) shuffled by Generator(PCG64(34521 + 1)) is 0 1 2 4 3; the last three instances are
// in no chunk.
TEST(Sampler, ShufflesChunksLikeNumpy) {
  const TestFolder folder;
  Sampler sampler = make_sampler(counting_files(folder, {92}), options_of(4, 5), 34521, 4).value();
  EXPECT_EQ(sampler.epoch_instances(), 20);
  ASSERT_EQ(sampler.batches_per_epoch(), 4);
  const std::vector<i32> order = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 12, 13, 14, 15};
  Batch batch;
  std::vector<i32> read;
  for (i64 step = 0; step < 4; ++step) {
    sampler.fill(sampler.position_of_step(step), batch).value();
    for (const i32 first : first_tokens(batch, 4)) {
      read.push_back(first / 4);
    }
  }
  EXPECT_EQ(read, order);
}

// A run stopped after any number of steps, and another sampler that knows the position only, go on to the end
// through three epochs exactly as the run that was not stopped.
TEST(Sampler, ResumesAtEveryStepAsIfNothingHadHappened) {
  const TestFolder folder;
  constexpr i64 kSteps = 15;
  std::vector<std::vector<i32>> whole;
  std::vector<DataPosition> positions;
  {
    Sampler sampler = make_sampler(counting_files(folder, {67, 30}), options_of(4, 4), 17).value();
    ASSERT_EQ(sampler.batches_per_epoch(), 5);
    Batch batch;
    DataPosition position;
    for (i64 step = 0; step < kSteps; ++step) {
      positions.push_back(position);
      sampler.fill(position, batch).value();
      whole.push_back(batch.tokens);
      position = sampler.after(position);
    }
  }
  for (i64 stopped = 0; stopped < kSteps; ++stopped) {
    Sampler resumed = make_sampler(counting_files(folder, {67, 30}), options_of(4, 4), 17).value();
    DataPosition position = positions[static_cast<std::size_t>(stopped)];
    EXPECT_EQ(position, resumed.position_of_step(stopped));
    Batch batch;
    for (i64 step = stopped; step < kSteps; ++step) {
      resumed.fill(position, batch).value();
      ASSERT_EQ(batch.tokens, whole[static_cast<std::size_t>(step)]) << "stopped at " << stopped;
      position = resumed.after(position);
    }
  }
}

// Wherever a run with batches of 4 stops and goes on with batches of 6 or 2: within the epoch the instances
// are those of the uninterrupted order, none twice, none left out but the last incomplete batch.
TEST(Sampler, ReadsOnInOrderAfterAnyChangeOfTheBatch) {
  const TestFolder folder;
  Sampler ones = make_sampler(counting_files(folder, {100}), options_of(4, 1), 3).value();
  std::vector<i32> order;
  Batch batch;
  for (i64 i = 0; i < 25; ++i) {
    ones.fill({1, i}, batch).value();
    order.push_back(batch.tokens[0]);
  }
  for (const i64 after : {6, 2}) {
    for (i64 stopped = 0; stopped <= 6; ++stopped) {
      Sampler before = make_sampler(counting_files(folder, {100}), options_of(4, 4), 3).value();
      Sampler changed = make_sampler(counting_files(folder, {100}), options_of(4, after), 3).value();
      std::vector<i32> read;
      DataPosition position;
      for (i64 step = 0; position.epoch == 1; ++step) {
        Sampler& sampler = step < stopped ? before : changed;
        if (position.instance + sampler.instances().options().sequences_per_batch > 25) {
          break;
        }
        sampler.fill(position, batch).value();
        const std::vector<i32> first = first_tokens(batch, 4);
        read.insert(read.end(), first.begin(), first.end());
        position = sampler.after(position);
      }
      EXPECT_EQ(read, std::vector<i32>(order.begin(), order.begin() + std::ssize(read)));
      EXPECT_GT(std::ssize(read), 25 - std::max<i64>(after, 4));
    }
  }
}

TEST(Sampler, KeepsTheBuffersOfABatch) {
  const TestFolder folder;
  Sampler sampler = make_sampler(counting_files(folder, {100}), options_of(4, 4), 9).value();
  Batch batch;
  sampler.fill(sampler.position_of_step(0), batch).value();
  const i32* tokens = batch.tokens.data();
  const i32* starts = batch.document_start.data();
  for (i64 step = 1; step < 20; ++step) {
    sampler.fill(sampler.position_of_step(step), batch).value();
  }
  EXPECT_EQ(batch.tokens.data(), tokens);
  EXPECT_EQ(batch.document_start.data(), starts);
}

TEST(Sampler, RefusesAnEpochBelowOneBatchAndForeignIds) {
  const TestFolder folder;
  EXPECT_FALSE(make_sampler(counting_files(folder, {12}), options_of(4, 4), 0).has_value());
  BatchOptions options = options_of(4, 1);
  options.vocab_size = 100;
  Sampler sampler = make_sampler(counting_files(folder, {104}), options, 0).value();
  Batch batch;
  int failures = 0;
  for (i64 step = 0; step < sampler.batches_per_epoch(); ++step) {
    failures += sampler.fill(sampler.position_of_step(step), batch).has_value() ? 0 : 1;
  }
  EXPECT_EQ(failures, 1);  // the last instance holds 100 to 103
}

TEST(EvalReader, ReadsInOrderAndPadsTheLastBatch) {
  const TestFolder folder;
  const EvalReader reader = EvalReader::create(counting_files(folder, {22}), options_of(4, 2)).value();
  EXPECT_EQ(reader.num_batches(), 3);
  EXPECT_EQ(reader.instances().tokens_dropped(), 2);
  Batch batch;
  i64 targets = 0;
  for (i64 index = 0; index < 3; ++index) {
    reader.fill(index, batch).value();
    EXPECT_EQ(batch.tokens[0], 8 * index);
    targets += std::count_if(batch.targets.begin(), batch.targets.end(), [](i32 t) { return t >= 0; });
  }
  EXPECT_EQ(targets, 5 * 3);
  EXPECT_EQ(std::vector<i32>(batch.tokens.begin() + 4, batch.tokens.end()), std::vector<i32>(4, kEos));
  EXPECT_EQ(std::vector<i32>(batch.targets.begin() + 4, batch.targets.end()),
            std::vector<i32>(4, kIgnoredTarget));
}

}  // namespace
}  // namespace wych::data
