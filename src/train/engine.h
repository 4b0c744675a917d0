// Engine: the programs of a model in memory, with the few calls a run needs: initialise, step, evaluate,
// generate. It knows neither files nor time; loop.h does.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "base/thread_pool.h"
#include "config/config.h"
#include "data/sampler.h"
#include "exec/executor.h"
#include "train/programs.h"

namespace wych::train {

// What a step reports. Losses are of the whole batch; norms before clipping.
struct StepResult {
  double ce = 0;        // mean cross-entropy per target, nats
  double z = 0;         // mean squared log-partition; 0 without a z-loss
  double balance = 0;   // mean over MoE layers, 1 when balanced; 0 without
  double router_z = 0;  // mean over MoE layers; 0 without
  double targets = 0;   // valid targets of the batch
  double grad_norm = 0;
  double learning_rate = 0;
  bool applied = false;
  bool skipped = false;                         // finite, but an outlier
  bool non_finite = false;                      // loss or gradient norm
  i64 adam_step = 0;                            // applied updates so far
  std::vector<std::vector<i64>> expert_counts;  // per MoE layer, routes to each expert
};

struct Evaluation {
  double ce_sum = 0;  // nats
  double targets = 0;
};

// Where the router sent the tokens of a batch. Per MoE layer, token after token: its top_k experts from the
// largest weight down, and those weights.
struct Routes {
  std::vector<std::vector<i32>> experts;    // [layers][T k]
  std::vector<std::vector<float>> weights;  // [layers][T k]
};

class Engine {
 public:
  // Plans and allocates on config.run.device. `pool` must outlive the engine. Errors: shapes, memory, no such
  // device.
  static Expected<std::unique_ptr<Engine>> create(const config::Config& config, const ProgramRequest& request,
                                                  ThreadPool& pool);

  [[nodiscard]] const Programs& programs() const { return programs_; }

  // Initial weights from the seed; optimizer state zero.
  void initialise(i64 seed);

  // One training step on a batch of config.data.batch_sequences rows. Fills the record; whether the update
  // was applied is the device's decision (none was if the request had no update). With a profiler, time per
  // op is added there.
  StepResult step(const data::Batch& batch, double learning_rate, exec::Profiler* profiler = nullptr);

  // The loss of a batch of evaluation_sequences rows.
  Evaluation evaluate(const data::Batch& batch);
  // The routes of the last evaluated batch; no layers in a dense model.
  Routes evaluated_routes();

  // Feeds 1 ... prefill_tokens tokens at positions `position` ... of the cache; returns the logits of the
  // last, vocab_size entries, valid until the next call.
  std::vector<float> feed(std::span<const i32> tokens, i64 position);

  // Every persistent tensor that a checkpoint holds, by path: weights ("blocks.0.attention.wo") and state
  // ("blocks.0.attention.wo.m", "optimizer.state"); gradients, caches and step values are left out.
  struct Tensor {
    std::string path;
    ir::TensorType type;
    bool is_weight = false;
  };
  [[nodiscard]] std::vector<Tensor> checkpoint_tensors() const;

  // The type of a persistent value ("grad.blocks.0.attention.wo"), its bytes out of and into the device;
  // CHECK-fail if there is none of that path, or another number of bytes.
  [[nodiscard]] const ir::TensorType& type(std::string_view path) const;
  [[nodiscard]] std::vector<std::byte> read(std::string_view path) const;
  void write(std::string_view path, std::span<const std::byte> bytes);
  // read(), each element as a double.
  [[nodiscard]] std::vector<double> read_doubles(std::string_view path) const;
  // On the CPU only (CHECK): the value itself, to look at or to change in place.
  ir::View persistent(std::string_view path);

  // How often the host has waited for the device so far: once a step, never inside one.
  [[nodiscard]] i64 num_waits() const { return executor_->num_waits(); }

  // "CPU, 2 threads", "NVIDIA H200".
  [[nodiscard]] const std::string& device_name() const { return device_name_; }

  // The summed bytes of all arenas.
  [[nodiscard]] i64 memory_bytes() const { return programs_.layout.total_bytes(); }
  // What is in use on a CUDA device as it reports it, by anyone; 0 on the CPU.
  [[nodiscard]] i64 device_bytes_in_use() const { return executor_->device_bytes_in_use(); }

 private:
  explicit Engine(const config::Config& config) : config_(config) {}

  // Starts a program; compute copies are made anew first if weights were written since.
  void start(int program, exec::Profiler* profiler = nullptr);
  void run(int program);
  void check_documents(const data::Batch& batch) const;
  void write_input(const plan::Program& program, std::string_view name, const void* data, i64 bytes);
  double read_scalar(const plan::Program& program, std::string_view name);
  ir::View output(const plan::Program& program, std::string_view name);
  [[nodiscard]] const plan::Slot& slot(std::string_view path) const;
  void read_losses(StepResult& result);
  void read_counts(StepResult& result);
  void read_exact_balance(StepResult& result);
  void read_decision(StepResult& result);

  config::Config config_;
  Programs programs_;
  std::string device_name_;
  bool copies_are_stale_ = false;
  std::unique_ptr<exec::Executor> executor_;
  // Numbers of the executor's programs; -1: not asked for.
  int initialise_ = -1;
  int refresh_ = -1;
  int train_ = -1;
  int update_ = -1;
  int evaluate_ = -1;
  int prefill_ = -1;
  int decode_ = -1;
};

}  // namespace wych::train
