// The table of keys (schema.h): one entry per member of Config. To add a key, add the member to config.h and
// its line here; parsing, checks, printing and documentation follow. Rules between keys are in validate.cc.
#include <fmt/format.h>

#include <array>

#include "config/schema.h"

namespace wych::config {
namespace {

constexpr Range kAny{};
// Upper bounds keep every product of two sizes far inside i64.
constexpr Range kNotNegative{.low = 0, .high = 1e9};
constexpr Range kPositive{.low = 1, .high = 1e9};
constexpr Range kTokens{.low = 0, .high = 1e15};
constexpr Range kThreads{.low = 0, .high = 1024};
constexpr Range kWeight{.low = 0};
constexpr Range kLayers{.low = 1, .high = 1e4};
constexpr Range kRanks{.low = 0, .high = 1e6};
constexpr Range kSomeRanks{.low = 1, .high = 1e6};
constexpr Range kAboveZero{.low = 0, .open = true};
constexpr Range kShare{.low = 0, .high = 1};
constexpr Range kBeta{.low = 0, .high = 0.999999999};

// Names in the order of the enumerators.
constexpr std::array<std::string_view, 3> kDevices = {"auto", "cpu", "cuda"};
constexpr std::array<std::string_view, 3> kNorms = {"pre", "post", "peri"};
constexpr std::array<std::string_view, 3> kQkNorms = {"none", "full", "per_head"};
constexpr std::array<std::string_view, 1> kRouters = {"softmax"};
constexpr std::array<std::string_view, 5> kScopes = {"sequence", "global", "global_exact", "microbatch",
                                                     "hf_joint"};
constexpr std::array<std::string_view, 1> kOptimizers = {"adamw"};
constexpr std::array<std::string_view, 2> kNonFinite = {"skip", "halt"};
constexpr std::array<std::string_view, 4> kSchedules = {"constant", "wsd", "cosine", "linear"};
constexpr std::array<std::string_view, 1> kPipelines = {"1f1b"};
constexpr std::array<std::string_view, 3> kComputes = {"f32", "f64", "bf16"};
constexpr std::array<std::string_view, 3> kRecomputes = {"none", "selective", "block"};
constexpr std::array<std::string_view, 5> kIdTypes = {"auto", "u8", "u16", "u32", "u64"};
constexpr std::array<std::string_view, 2> kTargetRules = {"olmo", "t+1"};
constexpr std::array<std::string_view, 4> kStyles = {"auto", "live", "plain", "json"};

constexpr std::array<Section, 17> kSections = {{
    {"run", "The run: how long, where, on what."},
    {"model", "The shape of the transformer."},
    {"model.attention", "Causal self-attention with rotary positions."},
    {"model.attention.yarn",
     "YaRN: rotary frequencies for `factor` times the context, in the layers without a window."},
    {"model.moe", "The experts of the layers that are not dense."},
    {"model.moe.router", "How a token chooses its experts."},
    {"model.moe.router.balance_loss",
     "The loss that spreads tokens over experts: (E / k) sum f_e p_e, 1 when balanced."},
    {"data",
     "What is read, and how much of it per step. Give one of `dir`, `paths`, `mix` and sections "
     "`[data.source.NAME]`, and `batch_sequences` or `batch_tokens`. Paths may be patterns (`*`, `?`, "
     "`[ab]`, "
     "`{a,b}`) and name token files of every format that `wych data inspect` knows."},
    {"data.source.NAME",
     "A part of a mixture, under a name of your own (letters, digits, `_`, `-`). A share is `weight` over "
     "the "
     "sum of weights of `data.mixture_tokens`, rounded to whole sequences."},
    {"optimizer", "AdamW with decoupled weight decay."},
    {"optimizer.skip_step", "Leaves out the update of a step whose loss or gradient norm is an outlier."},
    {"schedule", "The learning rate over the steps: a linear warm-up, then `type`."},
    {"parallel", "The mesh: world = pp x dp x ep."},
    {"precision", "Scalar types."},
    {"memory", "What is kept for the backward pass."},
    {"checkpoint", "When the run is saved."},
    {"log", "What is printed and measured."},
}};

const std::array<std::vector<std::string_view>, 6> kExclusive = {{
    {"run.max_steps", "run.max_tokens"},
    {"model.attention.window", "model.attention.window_pattern"},
    {"data.batch_sequences", "data.batch_tokens"},
    {"data.dir", "data.paths", "data.mix"},
    {"schedule.warmup_steps", "schedule.warmup_tokens"},
    {"schedule.decay_steps", "schedule.decay_tokens", "schedule.decay_fraction"},
}};

// Appends fields under one section's prefix.
class Table {
 public:
  explicit Table(std::vector<Field>& fields) : fields_(fields) {}

  void section(std::string_view key) { prefix_ = std::string(key) + "."; }

  template <class T>
  void add(std::string_view name, T& member, Range range, std::string_view doc) {
    fields_.push_back({prefix_ + std::string(name), Slot(&member), range, doc});
  }
  template <class T>
  void add(std::string_view name, T& member, std::string_view doc) {
    add(name, member, kAny, doc);
  }
  template <class Enum>
  void choice(std::string_view name, Enum& member, std::span<const std::string_view> names,
              std::string_view doc) {
    Choice choice{names, [&member] { return static_cast<std::size_t>(member); },
                  [&member](std::size_t index) { member = static_cast<Enum>(index); }};
    fields_.push_back({prefix_ + std::string(name), Slot(std::move(choice)), kAny, doc});
  }

 private:
  std::vector<Field>& fields_;
  std::string prefix_;
};

void add_run(Table& table, RunConfig& run) {
  table.section("run");
  table.add("name", run.name, "Name of the run in logs and reports.");
  table.add("dir", run.dir, "Run folder; empty: `runs/` and the name.");
  table.add("seed", run.seed, kTokens, "Seed of the initial weights and of all random draws of training.");
  table.add("max_steps", run.max_steps, kNotNegative,
            "Steps the schedules are laid out for; 0: given by `max_tokens`.");
  table.add("max_tokens", run.max_tokens, kTokens,
            "The same in tokens, rounded up to whole steps; 0: unset.");
  table.add("hard_stop", run.hard_stop, kNotNegative,
            "Stops after this many steps and leaves the schedules as they are; 0: off.");
  table.choice("device", run.device, kDevices,
               "`auto`: a CUDA device if there is one and the build has CUDA, else the CPU.");
  table.add(
      "cudnn", run.cudnn,
      "CUDA: attention by cuDNN where it can (docs/device.md); without, by slower kernels of wych's own.");
  table.add(
      "eager", run.eager,
      "CUDA: runs uncaptured, one instruction at a time, and names the first whose result is not finite.");
  table.add("threads", run.threads, kThreads, "Threads of the CPU's kernels; 0: one per core.");
  table.add("resume", run.resume,
            "`auto`: go on from the run folder's latest checkpoint if there is one; `never`: start anew, "
            "in a folder without checkpoints; else the checkpoint or run folder to start from.");
}

void add_model(Table& table, ModelConfig& model) {
  table.section("model");
  table.add("vocab_size", model.vocab_size, kPositive, "Token ids are below this.");
  table.add("padded_vocab", model.padded_vocab, kNotNegative,
            "Rows of the embedding and the head; 0: `vocab_size` rounded up to a multiple of 128.");
  table.add("d_model", model.d_model, kPositive, "Width of the residual stream.");
  table.add("n_layers", model.n_layers, kLayers, "Number of blocks.");
  table.add("sequence_length", model.sequence_length, Range{.low = 2, .high = 1e9},
            "Tokens of a training sequence.");
  table.add("norm_eps", model.norm_eps, kAboveZero, "Added to the mean square inside every RMS norm.");
  table.choice("norm", model.norm, kNorms,
               "Norm before the sublayers, after them (before the residual sum), or both.");
  table.add("embed_scale", model.embed_scale, kAboveZero, "Factor on the embedded tokens.");
  table.add("embed_norm", model.embed_norm, "A norm after the embedding.");
  table.add("tie_embeddings", model.tie_embeddings, "The head uses the embedding's weights.");
  table.add("init_std", model.init_std, kAboveZero, "Standard deviation of the initial matrices.");
  table.add("z_loss_weight", model.z_loss_weight, kWeight,
            "Weight of the head's squared log-sum-exp; 0: off.");
  table.add("first_dense_layers", model.first_dense_layers, kNotNegative,
            "The first layers without experts.");
  table.add("dense_layers", model.dense_layers, kNotNegative,
            "Further layers without experts, by index from 0.");
  table.add("dense_hidden", model.dense_hidden, kNotNegative,
            "Hidden size of the dense layers' feed-forward.");
}

void add_attention(Table& table, AttentionConfig& attention) {
  table.section("model.attention");
  table.add("n_heads", attention.n_heads, kPositive, "Query heads.");
  table.add("n_kv_heads", attention.n_kv_heads, kNotNegative,
            "Key and value heads; 0: as many as query heads.");
  table.add("head_dim", attention.head_dim, kNotNegative,
            "Width of a head; must be given, it need not be d_model / n_heads.");
  table.choice("qk_norm", attention.qk_norm, kQkNorms,
               "Norm of queries and keys: over all heads or head by head.");
  table.add("rope_theta", attention.rope_theta, kAboveZero, "Base of the rotary frequencies.");
  table.add("window", attention.window, kNotNegative,
            "Positions a query sees, itself included; 0: all before it.");
  table.add("window_pattern", attention.window_pattern, kNotNegative,
            "Windows layer by layer, repeated over the depth; empty: `window` everywhere.");
  table.add("clip_qkv", attention.clip_qkv, kWeight, "Clamps queries, keys and values to this size; 0: off.");
  YarnConfig& yarn = attention.yarn;
  table.section("model.attention.yarn");
  table.add("factor", yarn.factor, Range{.low = 1, .high = 1e6}, "Stretch of the context; 1: off.");
  table.add("original_length", yarn.original_length, kNotNegative,
            "Positions of the context the model was first trained on.");
  table.add("beta_fast", yarn.beta_fast, kAboveZero,
            "Pairs that turn at least this often in the original context keep their frequency.");
  table.add("beta_slow", yarn.beta_slow, kAboveZero,
            "Pairs that turn at most this often are slowed by the whole factor.");
  table.add("attention_factor", yarn.attention_factor, kWeight,
            "Factor on the rotated queries and keys; 0: 0.1 ln(factor) + 1.");
}

void add_moe(Table& table, MoeConfig& moe) {
  table.section("model.moe");
  table.add("experts", moe.experts, kNotNegative, "Experts per layer; 0: a dense model.");
  table.add("top_k", moe.top_k, kNotNegative, "Experts a token visits.");
  table.add("expert_hidden", moe.expert_hidden, kNotNegative, "Hidden size of an expert.");
  table.add("shared_hidden", moe.shared_hidden, kNotNegative,
            "Hidden size of the expert every token visits; 0: none.");
  table.add("capacity_factor", moe.capacity_factor, Range{.low = 1},
            "Rows reserved for experts over the balanced number; an overflow is retried, not dropped. Has an "
            "effect only with ep > 1.");
  RouterConfig& router = moe.router;
  table.section("model.moe.router");
  table.choice("type", router.type, kRouters, "Softmax over all experts, then the top k.");
  table.add("normalize_weights", router.normalize_weights,
            "The chosen experts' weights are divided by their sum.");
  table.add("z_loss_weight", router.z_loss_weight, kWeight,
            "Weight of the router's squared log-sum-exp; 0: off.");
  table.section("model.moe.router.balance_loss");
  table.add("weight", router.balance_loss.weight, kWeight, "Weight of the loss; 0: off.");
  table.choice(
      "scope", router.balance_loss.scope, kScopes,
      "Tokens over which expert shares are taken: each sequence, the last step's batch, this batch (one "
      "microbatch only), the local microbatch (depends on the layout), or all layers at once.");
}

void add_source(Table& table, DataSourceConfig& source) {
  table.add("paths", source.paths, "Token files to train on.");
  table.add("label_masks", source.label_masks, "Their label masks, one per file.");
  table.add("valid_paths", source.valid_paths, "Held-out token files.");
  table.add("valid_label_masks", source.valid_label_masks, "Their label masks.");
  table.add("label", source.label, "Domain in reports; empty: the source's name.");
  table.add("weight", source.weight, Range{.low = 0, .high = 1e9},
            "Share of the mixture, relative to the others; 0: not trained on.");
  table.add("max_repetition", source.max_repetition, Range{.low = 1, .high = 1e6},
            "Times a sequence may be read, on average over the source.");
  table.add("max_fraction", source.max_fraction, Range{.low = 1e-9, .high = 1},
            "Share of the source's own sequences that may be used at all.");
}

void add_data(Table& table, DataConfig& data) {
  table.section("data");
  table.add("dir", data.dir, "Folder with `dataset.json`, as `wych data prepare` and `tokenize` write it.");
  table.add("paths", data.paths, "Token files to train on, each read to its end.");
  table.add("label_masks", data.label_masks,
            "A file per file of `paths`, one byte a token: 0 if the token is no target.");
  table.add("valid_paths", data.valid_paths, "Held-out token files, beside `paths` or `mix`.");
  table.add("valid_label_masks", data.valid_label_masks, "Label masks of `valid_paths`.");
  table.add("mix", data.mix, "A list of token files as OLMo's mixes are: a line `label,path` per file.");
  table.add("mix_root", data.mix_root, "Folder that the paths in `mix` start from.");
  table.add("mix_tokenizer", data.mix_tokenizer, "What `{TOKENIZER}` in `mix` stands for.");
  table.add("mixture_tokens", data.mixture_tokens, kTokens,
            "Size of the mixture of `[data.source.NAME]`, an epoch; 0: the run's. A run that will be made "
            "longer later should say it, since its data changes with it.");
  table.add("tokenizer", data.tokenizer,
            "tokenizer.json of the files; empty: the folder's, or none (then `eos_id` must be given, and no "
            "samples are made).");
  table.choice("dtype", data.dtype, kIdTypes,
               "Type of the ids in files without a header; `auto`: u16 up to 65536 ids, else u32.");
  table.add("eos_id", data.eos_id, Range{.low = -1, .high = 1e9},
            "Id that ends a document; -1: the folder's or the tokenizer's.");
  table.add("batch_sequences", data.batch_sequences, kNotNegative, "Sequences of a step, over all ranks.");
  table.add("batch_tokens", data.batch_tokens, kTokens, "The same in tokens.");
  table.add("microbatch_sequences", data.microbatch_sequences, kNotNegative,
            "Sequences a rank computes at once; 0: its whole share.");
  table.choice("targets", data.targets, kTargetRules,
               "`olmo`: the next token of the sequence, none at its end; `t+1`: the next token of the file.");
  table.add("packing", data.packing,
            "Sequences hold whole documents, best fit decreasing, and end in padding, instead of being cut "
            "one after the other. Needs `document_mask`.");
  table.add("document_mask", data.document_mask, "Tokens do not attend across documents.");
  table.add("targets_cross_documents", data.targets_cross_documents,
            "A document's last token predicts the first token of the next one.");
  table.add("shuffle_chunk", data.shuffle_chunk, kPositive,
            "Sequences that stay together and in order when an epoch is shuffled.");
  table.add("seed", data.seed, kTokens, "Seed of the order of the sequences.");
  for (auto& [name, source] : data.source) {
    table.section(fmt::format("{}{}", kSourcePrefix, name));
    add_source(table, source);
  }
}

void add_optimizer(Table& table, OptimizerConfig& optimizer) {
  table.section("optimizer");
  table.choice("type", optimizer.type, kOptimizers, "The optimizer.");
  table.add("lr", optimizer.lr, kAboveZero, "Peak learning rate.");
  table.add("beta1", optimizer.beta1, kBeta, "Decay of the mean of gradients.");
  table.add("beta2", optimizer.beta2, kBeta, "Decay of the mean of squared gradients.");
  table.add("eps", optimizer.eps, kAboveZero, "Added to the root of the second moment.");
  table.add("weight_decay", optimizer.weight_decay, kWeight, "Decoupled decay, times the learning rate.");
  table.add("decay_embeddings", optimizer.decay_embeddings, "Decay the embedding and the head.");
  table.add("decay_norms", optimizer.decay_norms, "Decay one-dimensional weights.");
  table.add("decay_router", optimizer.decay_router, "Decay the routers' matrices.");
  table.add("decay_matrices", optimizer.decay_matrices, "Decay all other matrices.");
  table.add("clip_norm", optimizer.clip_norm, kWeight, "Gradients are scaled to at most this norm; 0: off.");
  table.choice("non_finite", optimizer.non_finite, kNonFinite,
               "A step with a loss or gradient that is not finite is skipped, or ends the run.");
  table.add("max_consecutive_non_finite", optimizer.max_consecutive_non_finite, kPositive,
            "This many such steps in a row end the run all the same.");
  SkipStepConfig& skip = optimizer.skip_step;
  table.section("optimizer.skip_step");
  table.add("enabled", skip.enabled, "Skip outliers.");
  table.add("window", skip.window, Range{.low = 2, .high = 1e9},
            "Steps the mean and deviation are taken over.");
  table.add("sigma", skip.sigma, kAboveZero, "An outlier is this many deviations above the mean.");
  table.add("min_steps", skip.min_steps, Range{.low = 2, .high = 1e9},
            "Steps in the window before anything is skipped.");
}

void add_schedule(Table& table, ScheduleConfig& schedule) {
  table.section("schedule");
  table.choice(
      "type", schedule.type, kSchedules,
      "`constant`; `wsd`: constant, then a linear decay; `cosine` or `linear` from the warm-up to the end.");
  table.add("warmup_steps", schedule.warmup_steps, kNotNegative, "Length of the warm-up.");
  table.add("warmup_tokens", schedule.warmup_tokens, kTokens, "The same in tokens, rounded up.");
  table.add("decay_steps", schedule.decay_steps, kNotNegative, "Length of the decay of `wsd`.");
  table.add("decay_tokens", schedule.decay_tokens, kTokens, "The same in tokens, rounded up.");
  table.add("decay_fraction", schedule.decay_fraction, kShare, "The same as a share of all steps.");
  table.add("final_lr_ratio", schedule.final_lr_ratio, kShare, "Last learning rate over the peak.");
}

void add_parallel(Table& table, ParallelConfig& parallel) {
  table.section("parallel");
  table.add("dp", parallel.dp, kRanks, "Data-parallel size; 0: world / (ep pp).");
  table.add("ep", parallel.ep, kSomeRanks, "Expert-parallel size: experts and tokens are spread over it.");
  table.add("pp", parallel.pp, kSomeRanks, "Pipeline stages.");
  table.choice("schedule", parallel.schedule, kPipelines,
               "Order of the stages' forwards and backwards; used with pp > 1.");
}

void add_rest(Table& table, Config& config) {
  table.section("precision");
  table.choice("compute", config.precision.compute, kComputes, "Type of weights in use and activations.");
  table.add(
      "deterministic", config.precision.deterministic,
      "The same run gives the same bits. Without, attention's gradient in bfloat16 on CUDA may be faster.");
  table.section("memory");
  table.choice("recompute", config.memory.recompute, kRecomputes,
               "Activations computed again in the backward pass: none, the cheap ones, or whole blocks.");
  table.add("recompute_layers", config.memory.recompute_layers, kNotNegative,
            "Layers that recompute; empty: all.");
  table.add("poison", config.memory.poison, "Fills unused memory with NaN, to find reads of it. Slow.");
  table.add("alignment", config.memory.alignment, kNotNegative,
            "Rows an expert's segment is rounded up to; 0: 16 on the CPU, 128 on CUDA.");
  table.section("checkpoint");
  table.add("interval", config.checkpoint.interval, kNotNegative,
            "Steps between checkpoints; 0: none on the way.");
  table.add("keep", config.checkpoint.keep, kNotNegative, "Checkpoints kept; 0: all.");
  table.add("save_first", config.checkpoint.save_first, "Save the initial weights.");
  table.add("save_final", config.checkpoint.save_final, "Save at the end.");
  table.section("log");
  table.add("interval", config.log.interval, kPositive, "Steps between printed lines.");
  table.add("eval_interval", config.log.eval_interval, kNotNegative, "Steps between evaluations; 0: never.");
  table.add("eval_batches", config.log.eval_batches, kNotNegative,
            "Batches of an evaluation; 0: the whole set.");
  table.add("sample_interval", config.log.sample_interval, kNotNegative,
            "Steps between text samples; 0: never.");
  table.add("sample_tokens", config.log.sample_tokens, kPositive, "Tokens of a sample.");
  table.add("sample_prompt", config.log.sample_prompt, "What a sample begins with.");
  table.choice("style", config.log.style, kStyles, "`auto`: `live` on a terminal, else `plain`.");
}

}  // namespace

std::span<const Section> sections() { return kSections; }

std::span<const std::vector<std::string_view>> exclusive_keys() { return kExclusive; }

std::vector<Field> fields(Config& config) {
  std::vector<Field> all;
  Table table(all);
  add_run(table, config.run);
  add_model(table, config.model);
  add_attention(table, config.model.attention);
  add_moe(table, config.model.moe);
  add_data(table, config.data);
  add_optimizer(table, config.optimizer);
  add_schedule(table, config.schedule);
  add_parallel(table, config.parallel);
  add_rest(table, config);
  return all;
}

}  // namespace wych::config
