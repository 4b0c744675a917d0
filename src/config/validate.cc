// The rules (validate.h), section by section.
#include "config/validate.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/model_size.h"

namespace wych::config {
namespace {

class Rules {
 public:
  // Notes a problem unless `holds`.
  void require(bool holds, std::vector<std::string_view> keys, std::string what, std::string hint = "") {
    if (!holds) {
      problems.push_back({std::move(keys), std::move(what), std::move(hint)});
    }
  }
  std::vector<Problem> problems;
};

void check_shape(const ModelConfig& model, Rules& rules) {
  const auto given = [&rules](i64 value, std::string_view key) {
    rules.require(value > 0, {key}, "must be given",
                  "set it, or start from a preset: extends = \"preset:NAME\"");
  };
  given(model.vocab_size, "model.vocab_size");
  given(model.d_model, "model.d_model");
  given(model.n_layers, "model.n_layers");
  given(model.sequence_length, "model.sequence_length");
  given(model.attention.n_heads, "model.attention.n_heads");
  given(model.attention.head_dim, "model.attention.head_dim");
  rules.require(model.padded_vocab >= model.vocab_size, {"model.padded_vocab", "model.vocab_size"},
                fmt::format("is {}, below the vocabulary of {}", model.padded_vocab, model.vocab_size));

  const AttentionConfig& attention = model.attention;
  rules.require(attention.head_dim % 2 == 0, {"model.attention.head_dim"},
                fmt::format("is {}; rotary positions need an even width", attention.head_dim));
  // Without query heads that alone is what is wrong.
  rules.require(
      attention.n_heads == 0 || (attention.n_kv_heads > 0 && attention.n_heads % attention.n_kv_heads == 0),
      {"model.attention.n_kv_heads", "model.attention.n_heads"},
      fmt::format("is {}, which does not divide the {} query heads", attention.n_kv_heads,
                  attention.n_heads));
  const i64 pattern = static_cast<i64>(attention.window_pattern.size());
  rules.require(pattern <= model.n_layers, {"model.attention.window_pattern", "model.n_layers"},
                fmt::format("has {} windows for {} layers", pattern, model.n_layers));
  const double parameters = approximate_parameters(model);
  rules.require(parameters < 1e16,
                {"model.d_model", "model.vocab_size", "model.moe.experts", "model.moe.expert_hidden"},
                fmt::format("makes a model of {:.1e} parameters", parameters));
}

void check_yarn(const ModelConfig& model, Rules& rules) {
  const AttentionConfig& attention = model.attention;
  const YarnConfig& yarn = attention.yarn;
  if (!yarn.enabled()) {
    rules.require(yarn == YarnConfig{},
                  {"model.attention.yarn.factor", "model.attention.yarn.original_length",
                   "model.attention.yarn.beta_fast", "model.attention.yarn.beta_slow",
                   "model.attention.yarn.attention_factor"},
                  "is 1, which leaves the other keys of the section without effect");
    return;
  }
  rules.require(yarn.original_length > 0,
                {"model.attention.yarn.original_length", "model.attention.yarn.factor"},
                "must be given with a factor above 1");
  rules.require(yarn.beta_fast > yarn.beta_slow,
                {"model.attention.yarn.beta_fast", "model.attention.yarn.beta_slow"},
                fmt::format("is {}, expected above beta_slow, {}", yarn.beta_fast, yarn.beta_slow));
  rules.require(attention.rope_theta > 1.0, {"model.attention.rope_theta", "model.attention.yarn.factor"},
                fmt::format("is {}; YaRN needs one above 1", attention.rope_theta));
  bool any = false;
  for (i64 layer = 0; layer < model.n_layers; ++layer) {
    any = any || model.has_yarn(layer);
  }
  rules.require(any || model.n_layers == 0,
                {"model.attention.yarn.factor", "model.attention.window", "model.attention.window_pattern"},
                "has no effect: every layer has a window");
}

void check_experts(const ModelConfig& model, Rules& rules) {
  rules.require(model.first_dense_layers <= model.n_layers, {"model.first_dense_layers", "model.n_layers"},
                fmt::format("is {} of {} layers", model.first_dense_layers, model.n_layers));
  bool in_range = model.first_dense_layers <= model.n_layers;
  for (const i64 layer : model.dense_layers) {
    in_range = in_range && layer < model.n_layers;
    rules.require(layer < model.n_layers, {"model.dense_layers", "model.n_layers"},
                  fmt::format("names layer {}; the last is {}", layer, model.n_layers - 1));
  }
  if (!in_range) {
    return;
  }
  i64 num_dense = 0;
  for (i64 layer = 0; layer < model.n_layers; ++layer) {
    num_dense += model.is_dense_layer(layer) ? 1 : 0;
  }
  rules.require(num_dense == 0 || model.dense_hidden > 0,
                {"model.dense_hidden", "model.first_dense_layers", "model.dense_layers", "model.moe.experts"},
                fmt::format("must be given: {} of {} layers are dense", num_dense, model.n_layers));
  const MoeConfig& moe = model.moe;
  if (moe.experts == 0) {
    return;
  }
  rules.require(num_dense < model.n_layers,
                {"model.moe.experts", "model.n_layers", "model.first_dense_layers", "model.dense_layers"},
                fmt::format("is {}, but every layer is dense", moe.experts),
                "set model.moe.experts = 0 for a dense model");
  rules.require(moe.top_k >= 1 && moe.top_k <= moe.experts, {"model.moe.top_k", "model.moe.experts"},
                fmt::format("is {}, expected 1 to the number of experts, {}", moe.top_k, moe.experts));
  rules.require(moe.expert_hidden > 0, {"model.moe.expert_hidden", "model.moe.experts"},
                fmt::format("must be given: there are {} experts", moe.experts));
}

// What is read, and how it becomes sequences.
void check_data(const DataConfig& data, Rules& rules) {
  const bool has_files = !data.paths.empty() || !data.mix.empty();
  const bool has_other = !data.dir.empty() || has_files;
  rules.require(has_other || !data.source.empty(), {"data.dir", "data.paths", "data.mix"},
                "must be given, or data.paths, data.mix or a [data.source.NAME]",
                "make a folder with `wych data prepare --out DIR`");
  rules.require(
      !has_other || data.source.empty(), {"data.dir", "data.paths", "data.mix"},
      fmt::format("is set beside [data.source.{}]", data.source.empty() ? "" : data.source.begin()->first),
      "give one of them: an empty string or list takes the other back");
  rules.require(has_files || data.valid_paths.empty(), {"data.valid_paths", "data.paths"},
                "belongs to data.paths or data.mix, and neither is given",
                "a folder has its own held-out files, a source valid_paths of its own");
  rules.require(!data.paths.empty() || data.label_masks.empty(), {"data.label_masks", "data.paths"},
                "belongs to data.paths, which is not given");
  rules.require(!data.valid_paths.empty() || data.valid_label_masks.empty(),
                {"data.valid_label_masks", "data.valid_paths"},
                "belongs to data.valid_paths, which is not given");
  rules.require(!data.mix.empty() || data.mix_root.empty(), {"data.mix_root", "data.mix"},
                "belongs to data.mix, which is not given");
  rules.require(!data.mix.empty() || data.mix_tokenizer.empty(), {"data.mix_tokenizer", "data.mix"},
                "belongs to data.mix, which is not given");
  rules.require(
      data.dir.empty() || (data.tokenizer.empty() && data.dtype == IdType::kAuto && data.eos_id < 0),
      {"data.dir", "data.tokenizer", "data.dtype", "data.eos_id"},
      "says itself what data.tokenizer, data.dtype and data.eos_id are", "leave those out");
  rules.require(!has_files || !data.tokenizer.empty() || data.eos_id >= 0,
                {"data.tokenizer", "data.eos_id", "data.paths", "data.mix"}, "must be given, or data.eos_id");
  rules.require(!data.packing || data.document_mask, {"data.packing", "data.document_mask"},
                "needs data.document_mask = true");
  rules.require(!data.packing || data.targets == TargetRule::kOlmo, {"data.packing", "data.targets"},
                "needs data.targets = \"olmo\": behind a packed document there is no next token");
}

// The sources of a mixture. Their keys' names are the user's, so problems are placed at data.mixture_tokens.
void check_sources(const DataConfig& data, Rules& rules) {
  double sum = 0;
  for (const auto& [name, source] : data.source) {
    const auto require = [&, &key = name](bool holds, std::string_view what) {
      rules.require(holds, {"data.mixture_tokens"}, fmt::format("[data.source.{}] {}", key, what));
    };
    sum += source.weight;
    require(source.weight == 0 || !source.paths.empty(), "has no paths; with weight = 0 it needs none");
    require(source.label_masks.empty() || !source.paths.empty(), "has label_masks but no paths");
    require(source.valid_label_masks.empty() || !source.valid_paths.empty(),
            "has valid_label_masks but no valid_paths");
  }
  rules.require(data.source.empty() || sum > 0, {"data.mixture_tokens"},
                "every [data.source.NAME] has weight = 0");
  rules.require(data.source.empty() || !data.tokenizer.empty() || data.eos_id >= 0,
                {"data.tokenizer", "data.eos_id"}, "must be given, or data.eos_id");
  rules.require(!data.source.empty() || data.mixture_tokens == 0, {"data.mixture_tokens"},
                "is the size of a mixture, and there is no [data.source.NAME]");
}

void check_length(const Config& config, Purpose purpose, Rules& rules) {
  const DataConfig& data = config.data;
  const i64 sequence = config.model.sequence_length;
  rules.require(sequence == 0 || data.batch_tokens % sequence == 0,
                {"data.batch_tokens", "model.sequence_length"},
                fmt::format("is {}, not a multiple of the sequence length, {}", data.batch_tokens, sequence));
  rules.require(data.batch_sequences > 0 || data.batch_tokens > 0,
                {"data.batch_sequences", "data.batch_tokens"}, "must be given, or data.batch_tokens");
  if (purpose == Purpose::kPlan) {
    return;
  }
  check_data(data, rules);
  check_sources(data, rules);
  rules.require(config.run.max_steps > 0 || config.run.max_tokens > 0, {"run.max_steps", "run.max_tokens"},
                "must be given, or run.max_tokens");
  rules.require(!config.run.resume.empty(), {"run.resume"}, "is empty, expected auto, never or a folder");
}

void check_optimizer(const Config& config, Purpose purpose, Rules& rules) {
  const SkipStepConfig& skip = config.optimizer.skip_step;
  rules.require(skip.min_steps <= skip.window,
                {"optimizer.skip_step.min_steps", "optimizer.skip_step.window"},
                fmt::format("is {}, more than the window's {}", skip.min_steps, skip.window));
  const ScheduleConfig& schedule = config.schedule;
  const bool decays = schedule.decay_steps > 0 || schedule.decay_tokens > 0 || schedule.decay_fraction > 0.0;
  const std::vector<std::string_view> decay_keys = {"schedule.decay_fraction", "schedule.type",
                                                    "schedule.decay_steps", "schedule.decay_tokens"};
  if (schedule.type == ScheduleType::kWsd) {
    rules.require(decays || purpose == Purpose::kPlan, decay_keys,
                  "must be given for \"wsd\", or schedule.decay_steps or decay_tokens",
                  "for no decay set schedule.type = \"constant\"");
  } else {
    rules.require(!decays, decay_keys, "only \"wsd\" has a decay of its own length",
                  "set schedule.decay_fraction, decay_steps and decay_tokens to 0");
  }
  const bool has_length = config.run.max_steps > 0 || (config.run.max_tokens > 0 && batch_tokens(config) > 0);
  const bool tokens_fit =
      batch_tokens(config) > 0 || (schedule.warmup_tokens == 0 && schedule.decay_tokens == 0);
  if (purpose == Purpose::kTrain && has_length && tokens_fit) {
    const i64 total = total_steps(config);
    rules.require(warmup_steps(config) + decay_steps(config) <= total,
                  {"schedule.warmup_steps", "schedule.warmup_tokens", "schedule.decay_fraction",
                   "schedule.decay_steps", "schedule.decay_tokens", "run.max_steps", "run.max_tokens"},
                  fmt::format("warm-up ({} steps) and decay ({}) are longer than the run ({})",
                              warmup_steps(config), decay_steps(config), total));
  }
}

// Whether each rank's share is known and consists of whole microbatches.
bool check_batch(const Config& config, i64 data_ranks, Rules& rules) {
  const i64 batch = config.data.batch_sequences;
  const i64 microbatch = config.data.microbatch_sequences;
  if (batch == 0) {
    return false;
  }
  const bool even = batch % data_ranks == 0;
  rules.require(
      even, {"data.batch_sequences", "data.batch_tokens", "parallel.dp", "parallel.ep"},
      fmt::format("is {} sequences, which do not divide over dp x ep = {} ranks", batch, data_ranks));
  const bool whole = microbatch == 0 || (batch / data_ranks) % microbatch == 0;
  rules.require(!even || whole,
                {"data.microbatch_sequences", "data.batch_sequences", "data.batch_tokens", "parallel.dp"},
                fmt::format("is {}, which does not divide a rank's {} of the batch's {} sequences",
                            microbatch, batch / data_ranks, batch));
  return even && whole;
}

// Sizes that kernels index with 32 bits, and the number of copies of the microbatch's graph. The batch
// consists of whole microbatches.
void check_microbatches(const Config& config, i64 data_ranks, Rules& rules) {
  constexpr i64 kMaxRows = (i64{1} << 31) - 1;
  constexpr i64 kMaxMicrobatches = 16384;
  const i64 share = config.data.batch_sequences / data_ranks;
  const i64 sequences = config.data.microbatch_sequences > 0 ? config.data.microbatch_sequences : share;
  const i64 sequence = std::max<i64>(config.model.sequence_length, 1);
  const bool tokens_fit = sequences <= kMaxRows / sequence;
  rules.require(
      tokens_fit, {"data.microbatch_sequences", "data.batch_sequences", "model.sequence_length"},
      fmt::format("makes a microbatch of {} sequences x {} tokens, more than 2^31 - 1", sequences, sequence),
      "set a smaller data.microbatch_sequences");
  // Rows of the experts' segments: the routes, and each segment rounded up.
  const MoeConfig& moe = config.model.moe;
  const double routes = static_cast<double>(sequences) * static_cast<double>(sequence * moe.top_k);
  const double padding =
      static_cast<double>(moe.experts) * static_cast<double>(std::max<i64>(config.memory.alignment, 128));
  rules.require(
      !tokens_fit || moe.experts == 0 || routes + padding <= static_cast<double>(kMaxRows),
      {"data.microbatch_sequences", "model.sequence_length", "model.moe.top_k", "model.moe.experts",
       "memory.alignment"},
      fmt::format(
          "makes a microbatch of {} sequences x {} tokens x top-{}, with the padding of {} experts more "
          "than 2^31 - 1 rows",
          sequences, sequence, moe.top_k, moe.experts),
      "set a smaller data.microbatch_sequences");
  const i64 microbatches = share / std::max<i64>(sequences, 1);
  rules.require(
      microbatches <= kMaxMicrobatches, {"data.microbatch_sequences", "data.batch_sequences"},
      fmt::format("is {}: a rank's {} of data.batch_sequences = {} make {} microbatches, more than {}",
                  sequences, share, config.data.batch_sequences, microbatches, kMaxMicrobatches),
      "set a larger data.microbatch_sequences or a smaller data.batch_sequences");
}

void check_mesh(const Config& config, i64 world, Rules& rules) {
  const ParallelConfig& parallel = config.parallel;
  const MoeConfig& moe = config.model.moe;
  rules.require(parallel.ep == 1 || moe.experts > 0, {"parallel.ep", "model.moe.experts"},
                fmt::format("is {}, but the model has no experts", parallel.ep));
  rules.require(moe.experts % parallel.ep == 0, {"parallel.ep", "model.moe.experts"},
                fmt::format("is {}, which does not divide the {} experts", parallel.ep, moe.experts));
  rules.require(parallel.pp <= config.model.n_layers, {"parallel.pp", "model.n_layers"},
                fmt::format("is {} stages for {} layers", parallel.pp, config.model.n_layers));
  const i64 dp = std::max<i64>(parallel.dp, 1);
  rules.require(
      world == 0 || dp * parallel.ep * parallel.pp == world, {"parallel.dp", "parallel.ep", "parallel.pp"},
      fmt::format("the mesh dp x ep x pp = {} x {} x {} does not make {} rank{}", dp, parallel.ep,
                  parallel.pp, world, world == 1 ? "" : "s"),
      fmt::format("start {} ranks with --ranks, or change the mesh", dp * parallel.ep * parallel.pp));
  const i64 data_ranks = dp * parallel.ep;
  const bool batch_fits = check_batch(config, data_ranks, rules);
  if (batch_fits) {
    check_microbatches(config, data_ranks, rules);
  }
  const RouterConfig& router = moe.router;
  const i64 microbatch = config.data.microbatch_sequences;
  if (moe.experts == 0 || router.balance_loss.weight == 0.0) {
    return;
  }
  const BalanceScope scope = router.balance_loss.scope;
  rules.require(scope != BalanceScope::kGlobalExact || !batch_fits || microbatch == 0 ||
                    config.data.batch_sequences == data_ranks * microbatch,
                {"model.moe.router.balance_loss.scope", "data.microbatch_sequences", "data.batch_sequences"},
                "\"global_exact\" needs the whole batch in one microbatch",
                "set data.microbatch_sequences = 0, or the scope \"global\" or \"sequence\"");
  rules.require(scope != BalanceScope::kHfJoint || !batch_fits || microbatch == 0 ||
                    config.data.batch_sequences == data_ranks * microbatch,
                {"model.moe.router.balance_loss.scope", "data.microbatch_sequences", "data.batch_sequences"},
                "\"hf_joint\" is a product of means over the whole batch and needs it in one microbatch",
                "set data.microbatch_sequences = 0, or the scope \"sequence\"");
  rules.require(scope != BalanceScope::kHfJoint || parallel.pp == 1,
                {"model.moe.router.balance_loss.scope", "parallel.pp"},
                "\"hf_joint\" joins all layers and so needs parallel.pp = 1");
}

void check_target(const Config& config, Rules& rules) {
  const Compute compute = config.precision.compute;
  const Device device = config.run.device;
  rules.require(compute != Compute::kBF16 || device != Device::kCpu, {"precision.compute", "run.device"},
                "\"bf16\" is not available on the CPU", "use \"f32\", or run.device = \"cuda\"");
  rules.require(compute != Compute::kF64 || device != Device::kCuda, {"precision.compute", "run.device"},
                "\"f64\" is for checks on the CPU", "set run.device = \"cpu\"");
  const MemoryConfig& memory = config.memory;
  rules.require(memory.alignment % 16 == 0, {"memory.alignment"},
                fmt::format("is {}, expected a multiple of 16", memory.alignment));
  rules.require(memory.recompute_layers.empty() || memory.recompute != Recompute::kNone,
                {"memory.recompute_layers", "memory.recompute"},
                "names layers, but memory.recompute is \"none\"");
  for (const i64 layer : memory.recompute_layers) {
    rules.require(layer < config.model.n_layers, {"memory.recompute_layers", "model.n_layers"},
                  fmt::format("names layer {}; the last is {}", layer, config.model.n_layers - 1));
  }
}

}  // namespace

void resolve(Config& config, i64 world, Origins& origins) {
  const auto derive = [&origins](std::string_view key) { origins[std::string(key)] = "derived"; };
  if (config.run.dir.empty()) {
    config.run.dir = "runs/" + config.run.name;
    derive("run.dir");
  }
  if (config.model.padded_vocab == 0) {
    config.model.padded_vocab = config.model.padded_vocab_size();
    derive("model.padded_vocab");
  }
  AttentionConfig& attention = config.model.attention;
  if (attention.n_kv_heads == 0) {
    attention.n_kv_heads = attention.n_heads;
    derive("model.attention.n_kv_heads");
  }
  DataConfig& data = config.data;
  const i64 sequence = config.model.sequence_length;
  if (data.batch_tokens > 0 && sequence > 0 && data.batch_tokens % sequence == 0) {
    data.batch_sequences = data.batch_tokens / sequence;
    data.batch_tokens = 0;
    derive("data.batch_sequences");
    derive("data.batch_tokens");
  }
  const bool has_length = config.run.max_steps > 0 || config.run.max_tokens > 0;
  if (!data.source.empty() && data.mixture_tokens == 0 && has_length && batch_tokens(config) > 0) {
    data.mixture_tokens = total_steps(config) * batch_tokens(config);
    derive("data.mixture_tokens");
  }
  ParallelConfig& parallel = config.parallel;
  if (parallel.dp == 0) {
    parallel.dp = std::max<i64>(world / (parallel.ep * parallel.pp), 1);
    derive("parallel.dp");
  }
}

std::vector<Problem> validate(const Config& config, i64 world, Purpose purpose) {
  Rules rules;
  check_shape(config.model, rules);
  check_yarn(config.model, rules);
  check_experts(config.model, rules);
  check_length(config, purpose, rules);
  check_optimizer(config, purpose, rules);
  check_mesh(config, world, rules);
  check_target(config, rules);
  return std::move(rules.problems);
}

}  // namespace wych::config
