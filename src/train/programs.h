// The programs of a run, planned and not yet in any memory: what `wych plan` prints and what Engine executes
// is the same object.
#pragma once

#include <optional>
#include <string>

#include "base/cuda_target.h"
#include "base/expected.h"
#include "config/config.h"
#include "plan/program.h"

namespace wych::train {

// Which programs a command needs.
struct ProgramRequest {
  bool training = false;  // initialise, train, update
  // Without: a step ends with the gradients, and there are no moments and no weights but those it computes
  // with. For measurements.
  bool update = true;
  i64 evaluation_sequences = 0;  // sequences of config.model.sequence_length per evaluation; 0: none
  i64 evaluation_length = 0;     // tokens of a sequence there; 0: config.model.sequence_length
  i64 prefill_tokens = 0;        // tokens of one prefill; 0: no generation
  i64 cache_length = 0;          // positions of the generation cache
  // The device's table; absent: planned_target(config.run.device) of compute_device.h.
  std::optional<CudaTarget> cuda = std::nullopt;
};

struct Programs {
  plan::Layout layout;
  i64 num_microbatches = 1;
  std::optional<plan::Program> initialise;
  std::optional<plan::Program> refresh;  // where weights have compute copies (model::build_refresh)
  std::optional<plan::Program> train;
  std::optional<plan::Program> update;
  std::optional<plan::Program> evaluate;
  std::optional<plan::Program> prefill;
  std::optional<plan::Program> decode;
};

// Rows of an expert segment unless the configuration says otherwise. On the CPU: below 16 rows, a GEMM's rows
// change bits with the number of rows. On CUDA: a tile of the grouped product.
inline constexpr i64 kCpuAlignment = 16;
inline constexpr i64 kCudaAlignment = 128;

// From configuration to addresses: model -> passes -> pipeline -> plan. `config` must be validated.
// Errors: what this build does not have (bf16, several ranks), naming the key; a shape that does not
// fit, naming the node.
Expected<Programs> build_programs(const config::Config& config, const ProgramRequest& request);

// The dtype of config.precision.compute.
DType compute_dtype(const config::Config& config);

// The graph of one microbatch after autodiff and recompute: what unroll repeats. For dumps and tests.
Expected<ir::Graph> build_microbatch_graph(const config::Config& config);

}  // namespace wych::train
