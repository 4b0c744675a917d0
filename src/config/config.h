// The configuration of a run as plain structs with defaults, one struct per TOML section of the same name.
// Invariant: nothing here reads files or checks anything; schema.h lists every key once (name, range, doc),
// load.h fills and validates a Config, presets.h knows the named models. A field's meaning is documented in
// the schema; comments here say what code that reads the struct must know.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/types.h"

namespace wych::config {

enum class Device { kAuto, kCpu, kCuda };
enum class NormPlacement {
  kPre,   // x + f(norm(x))
  kPost,  // x + norm(f(x)), as in OLMo 2
  kPeri,  // x + norm(f(norm(x)))
};
enum class QkNorm {
  kNone,
  kFull,     // one norm over all heads: weights [n_heads * head_dim] and [n_kv_heads * head_dim]
  kPerHead,  // a norm of each head, weights [head_dim] shared by the heads
};
enum class RouterType { kSoftmax };
// Over which tokens the shares f and the probabilities p of the balance loss are taken.
enum class BalanceScope {
  kSequence,     // f and p per sequence, mean over sequences: exact in every layout
  kGlobal,       // f of the last applied step's whole batch
  kGlobalExact,  // f of this very batch; one microbatch only
  kMicrobatch,   // the local batch; depends on the layout
  kHfJoint,      // all layers' tokens concatenated, as the transformers library does
};
enum class OptimizerType { kAdamW };
enum class NonFinitePolicy { kSkip, kHalt };
enum class ScheduleType { kConstant, kWsd, kCosine, kLinear };
enum class PipelineSchedule { kOneForwardOneBackward };
enum class Compute { kF32, kF64, kBF16 };
enum class Recompute { kNone, kSelective, kBlock };
enum class IdType { kAuto, kU8, kU16, kU32, kU64 };
enum class TargetRule {
  kOlmo,  // the next token of the instance; none at its last position
  kNext,  // the next token of the file, "t+1"
};
enum class LogStyle { kAuto, kLive, kPlain, kJson };

struct RunConfig {
  std::string name = "wych";
  std::string dir;  // empty only before load(), which sets "runs/NAME"
  i64 seed = 0;
  i64 max_steps = 0;   // 0: unset
  i64 max_tokens = 0;  // 0: unset
  i64 hard_stop = 0;   // steps; 0: off
  Device device = Device::kAuto;
  bool cudnn = true;            // attention by cuDNN where it can; CUDA only
  bool eager = false;           // one instruction at a time, results checked for NaN; CUDA only
  i64 threads = 0;              // 0: one per core
  std::string resume = "auto";  // "auto", "never" or a folder
  bool operator==(const RunConfig&) const = default;
};

struct YarnConfig {
  double factor = 1.0;  // 1: off
  i64 original_length = 0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double attention_factor = 0.0;  // 0: 0.1 ln(factor) + 1

  [[nodiscard]] bool enabled() const { return factor != 1.0; }
  // attention_factor, or what stands in for 0.
  [[nodiscard]] double scale() const;
  bool operator==(const YarnConfig&) const = default;
};

struct AttentionConfig {
  i64 n_heads = 0;
  i64 n_kv_heads = 0;  // 0 only before load(), which sets n_heads
  i64 head_dim = 0;
  QkNorm qk_norm = QkNorm::kNone;
  double rope_theta = 10000.0;
  i64 window = 0;  // positions a query sees, itself included; 0: all before it
  std::vector<i64> window_pattern;
  double clip_qkv = 0.0;  // 0: off
  YarnConfig yarn = {};   // of the layers without a window

  // Widths of the query rows and of the key (or value) rows of wqkv.
  [[nodiscard]] i64 query_width() const { return n_heads * head_dim; }
  [[nodiscard]] i64 kv_width() const { return n_kv_heads * head_dim; }
  bool operator==(const AttentionConfig&) const = default;
};

struct BalanceLossConfig {
  double weight = 0.01;  // 0: off
  BalanceScope scope = BalanceScope::kSequence;
  bool operator==(const BalanceLossConfig&) const = default;
};

struct RouterConfig {
  RouterType type = RouterType::kSoftmax;
  bool normalize_weights = false;
  double z_loss_weight = 0.0;
  BalanceLossConfig balance_loss;
  bool operator==(const RouterConfig&) const = default;
};

struct MoeConfig {
  i64 experts = 0;  // 0: every layer is dense
  i64 top_k = 0;
  i64 expert_hidden = 0;
  i64 shared_hidden = 0;  // 0: no shared expert
  double capacity_factor = 1.25;
  RouterConfig router;
  bool operator==(const MoeConfig&) const = default;
};

struct ModelConfig {
  i64 vocab_size = 0;
  i64 padded_vocab = 0;  // 0 only before load(), which sets round_up(vocab_size, 128)
  i64 d_model = 0;
  i64 n_layers = 0;
  i64 sequence_length = 0;
  double norm_eps = 1e-6;
  NormPlacement norm = NormPlacement::kPre;
  double embed_scale = 1.0;  // factor on the embedding's rows
  bool embed_norm = false;
  bool tie_embeddings = false;
  double init_std = 0.02;
  double z_loss_weight = 0.0;
  i64 first_dense_layers = 0;
  std::vector<i64> dense_layers;  // further dense layers by index
  i64 dense_hidden = 0;
  AttentionConfig attention;
  MoeConfig moe;

  // Rows of embed.weight and head.weight.
  [[nodiscard]] i64 padded_vocab_size() const {
    return padded_vocab > 0 ? padded_vocab : round_up(vocab_size, 128);
  }
  // Whether layer (0-based) has a dense feed-forward block instead of experts.
  [[nodiscard]] bool is_dense_layer(i64 layer) const;
  // The attention window of a layer, 0: none.
  [[nodiscard]] i64 window_of(i64 layer) const;
  // Whether the rotary frequencies of a layer are stretched by attention.yarn.
  [[nodiscard]] bool has_yarn(i64 layer) const { return attention.yarn.enabled() && window_of(layer) == 0; }
  bool operator==(const ModelConfig&) const = default;
};

// One part of a mixture. Paths may be glob patterns.
struct DataSourceConfig {
  std::vector<std::string> paths;
  std::vector<std::string> label_masks;  // one per file of paths, or none
  std::vector<std::string> valid_paths;
  std::vector<std::string> valid_label_masks;
  std::string label;  // empty: the source's name
  double weight = 1.0;
  double max_repetition = 1.0;
  double max_fraction = 1.0;
  bool operator==(const DataSourceConfig&) const = default;
};

// The data is a folder, or lists of files, or an OLMo mix file, or a mixture of named sources: one of them.
struct DataConfig {
  std::string dir;
  std::vector<std::string> paths;
  std::vector<std::string> label_masks;
  std::vector<std::string> valid_paths;
  std::vector<std::string> valid_label_masks;
  std::string mix;
  std::string mix_root;
  std::string mix_tokenizer;
  std::map<std::string, DataSourceConfig> source;  // by name
  i64 mixture_tokens = 0;  // 0 only before load() of a run with sources, which sets the run's length
  std::string tokenizer;   // empty: the folder's, or none
  IdType dtype = IdType::kAuto;
  i64 eos_id = -1;  // -1: the folder's or the tokenizer's
  TargetRule targets = TargetRule::kOlmo;
  bool packing = false;
  bool targets_cross_documents = true;
  i64 shuffle_chunk = 1;
  i64 batch_sequences = 0;       // global batch; set from batch_tokens by load()
  i64 batch_tokens = 0;          // 0: unset
  i64 microbatch_sequences = 0;  // per data rank; 0: the rank's whole share
  bool document_mask = false;
  i64 seed = 0;
  bool operator==(const DataConfig&) const = default;
};

struct SkipStepConfig {
  bool enabled = false;
  i64 window = 128;
  double sigma = 6.0;
  i64 min_steps = 64;
  bool operator==(const SkipStepConfig&) const = default;
};

struct OptimizerConfig {
  OptimizerType type = OptimizerType::kAdamW;
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  // Which parameter groups decay: embed.weight and head.weight; all one-dimensional weights; routers; all
  // other matrices.
  bool decay_embeddings = false;
  bool decay_norms = false;
  bool decay_router = true;
  bool decay_matrices = true;
  double clip_norm = 1.0;  // 0: off
  NonFinitePolicy non_finite = NonFinitePolicy::kSkip;
  i64 max_consecutive_non_finite = 10;
  SkipStepConfig skip_step;
  bool operator==(const OptimizerConfig&) const = default;
};

struct ScheduleConfig {
  ScheduleType type = ScheduleType::kCosine;
  i64 warmup_steps = 0;
  i64 warmup_tokens = 0;        // 0: unset
  i64 decay_steps = 0;          // 0: unset
  i64 decay_tokens = 0;         // 0: unset
  double decay_fraction = 0.0;  // of all steps; 0: unset
  double final_lr_ratio = 0.1;
  bool operator==(const ScheduleConfig&) const = default;
};

struct ParallelConfig {
  i64 dp = 0;  // 0: world / (ep * pp)
  i64 ep = 1;
  i64 pp = 1;
  PipelineSchedule schedule = PipelineSchedule::kOneForwardOneBackward;
  bool operator==(const ParallelConfig&) const = default;
};

struct PrecisionConfig {
  Compute compute = Compute::kF32;
  bool deterministic = true;
  bool operator==(const PrecisionConfig&) const = default;
};

struct MemoryConfig {
  Recompute recompute = Recompute::kNone;
  std::vector<i64> recompute_layers;  // empty: all
  bool poison = false;
  i64 alignment = 0;  // rows per expert segment; 0: the target's default
  bool operator==(const MemoryConfig&) const = default;
};

struct CheckpointConfig {
  i64 interval = 0;  // steps; 0: only the last
  i64 keep = 3;      // 0: all
  bool save_first = false;
  bool save_final = true;
  bool operator==(const CheckpointConfig&) const = default;
};

struct LogConfig {
  i64 interval = 1;
  i64 eval_interval = 0;    // 0: never
  i64 eval_batches = 8;     // 0: the whole validation set
  i64 sample_interval = 0;  // 0: never
  i64 sample_tokens = 64;
  std::string sample_prompt;
  LogStyle style = LogStyle::kAuto;
  bool operator==(const LogConfig&) const = default;
};

struct Config {
  RunConfig run;
  ModelConfig model;
  DataConfig data;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  ParallelConfig parallel;
  PrecisionConfig precision;
  MemoryConfig memory;
  CheckpointConfig checkpoint;
  LogConfig log;
  bool operator==(const Config&) const = default;
};

// Quantities derived from a loaded Config. Tokens are rounded up to whole steps.
[[nodiscard]] i64 batch_tokens(const Config& config);  // tokens of one global batch
[[nodiscard]] i64 total_steps(const Config& config);   // steps the schedules are laid out for, > 0
[[nodiscard]] i64 warmup_steps(const Config& config);
[[nodiscard]] i64 decay_steps(const Config& config);  // length of the final decay, 0: none

}  // namespace wych::config
