#include "train/run_data.h"

#include <fmt/format.h>

#include "base/hash.h"
#include "data/sources.h"

namespace wych::train {
namespace {

data::BatchOptions batch_options(const config::Config& config, i32 eos_id) {
  return {.sequence_length = config.model.sequence_length,
          .sequences_per_batch = config.data.batch_sequences,
          .vocab_size = config.model.vocab_size,
          .eos_id = eos_id,
          .document_mask = config.data.document_mask,
          .targets = config.data.targets == config::TargetRule::kNext ? data::Targets::kNext
                                                                      : data::Targets::kWithin,
          .packing = config.data.packing,
          .targets_cross_documents = config.data.targets_cross_documents};
}

// Chooses the mixture's instances; a line for people per source.
Expected<std::vector<std::string>> mix(const config::Config& config,
                                       const std::vector<data::SourceFiles>& sources,
                                       const std::vector<i64>& num_files, data::Instances& instances) {
  std::vector<data::MixtureSource> parts;
  std::size_t file = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const config::DataSourceConfig& source = config.data.source.at(sources[i].name);
    data::MixtureSource part{.name = sources[i].name,
                             .weight = source.weight,
                             .max_repetition = source.max_repetition,
                             .max_fraction = source.max_fraction,
                             .instances = {}};
    for (i64 k = 0; k < num_files[i]; ++k, ++file) {
      part.instances.push_back(instances.instances_of(file));
    }
    parts.push_back(std::move(part));
  }
  // Whole batches, at least as many tokens as asked for.
  const i64 batches = ceil_div(config.data.mixture_tokens, config::batch_tokens(config));
  const i64 total = batches * config.data.batch_sequences;
  WYCH_TRY(data::Mixture mixture, data::mix_sources(parts, total));
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const data::MixtureShare& share = mixture.shares[i];
    const std::string& label = config.data.source.at(parts[i].name).label;
    lines.push_back(fmt::format(
        "source {}{}: {} of {} sequences ({:.2f} %), from {} of its own {}, each read {:.3f} times",
        parts[i].name, label.empty() ? "" : " (" + label + ")", share.chosen, total,
        100 * static_cast<double>(share.chosen) / static_cast<double>(total), share.usable, share.available,
        share.usable == 0 ? 0.0 : static_cast<double>(share.chosen) / static_cast<double>(share.usable)));
  }
  instances.choose(std::move(mixture.ranges));
  return lines;
}

// What changes the order beside the files. Keys at their defaults add nothing, so that the fingerprints of
// older checkpoints stay.
u64 order_fingerprint(const config::Config& config, const data::OpenedData& opened, const RunData& data) {
  std::string text = fmt::format("{:016x} seed {} sequence {}", opened.fingerprint, config.data.seed,
                                 config.model.sequence_length);
  if (config.data.targets != config::TargetRule::kOlmo) {
    text += " targets t+1";
  }
  if (config.data.packing) {
    text += fmt::format(" packing, documents end with {}", opened.eos_id);
  }
  if (config.data.shuffle_chunk > 1) {
    text += fmt::format(" chunk {}", config.data.shuffle_chunk);
  }
  if (!data.shares.empty()) {
    for (const data::InstanceRange& range : data.sampler.instances().ranges()) {
      text += fmt::format("\n{} of file {}", range.count, range.file);
    }
  }
  return hash_bytes(text);
}

// All files of one side of the sources, and how many each source has.
std::vector<data::InstanceFile> take_files(std::vector<data::SourceFiles>& sources,
                                           std::vector<data::InstanceFile> data::SourceFiles::*side,
                                           std::vector<i64>& num_files) {
  std::vector<data::InstanceFile> files;
  for (data::SourceFiles& source : sources) {
    num_files.push_back(std::ssize(source.*side));
    std::move((source.*side).begin(), (source.*side).end(), std::back_inserter(files));
  }
  return files;
}

}  // namespace

Expected<RunData> open_run_data(const config::Config& config, i64 evaluation_sequences) {
  WYCH_TRY(data::OpenedData opened, data::open_data(config));
  const i64 train_tokens = opened.train_tokens();
  data::BatchOptions options = batch_options(config, opened.eos_id);
  std::vector<i64> num_train;
  WYCH_TRY(
      data::Instances instances,
      data::Instances::create(take_files(opened.sources, &data::SourceFiles::train, num_train), options));
  std::vector<std::string> shares;
  if (!config.data.source.empty()) {
    WYCH_TRY(shares, mix(config, opened.sources, num_train, instances));
  }
  WYCH_TRY(data::Sampler sampler,
           data::Sampler::create(std::move(instances), {.seed = static_cast<u64>(config.data.seed),
                                                        .chunk = config.data.shuffle_chunk}));
  RunData data{
      .description = fmt::format("{}: {:.2f} M training tokens, vocabulary {}", opened.description,
                                 1e-6 * static_cast<double>(train_tokens),
                                 opened.vocab_size > 0 ? opened.vocab_size : config.model.vocab_size),
      .shares = std::move(shares),
      .sampler = std::move(sampler),
      .valid = {},
      .tokenizer = {}};
  std::vector<i64> num_valid;
  std::vector<data::InstanceFile> valid = take_files(opened.sources, &data::SourceFiles::valid, num_valid);
  if (!valid.empty()) {
    options.sequences_per_batch = evaluation_sequences;
    WYCH_TRY(data::Instances held_out, data::Instances::create(std::move(valid), options));
    data.valid.emplace(std::move(held_out));
  }
  if (!opened.tokenizer.empty()) {
    WYCH_TRY(data.tokenizer, data::Tokenizer::load(opened.tokenizer));
  } else if (config.log.sample_interval > 0) {
    return Error{.kind = ErrorKind::kUsage,
                 .where = "log.sample_interval",
                 .what = "asks for samples, but there is no tokenizer to write them with",
                 .hint = "name one with --data.tokenizer, or set --log.sample_interval=0",
                 .more = {}};
  }
  data.fingerprint = order_fingerprint(config, opened, data);
  return data;
}

}  // namespace wych::train
