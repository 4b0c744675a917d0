#include "train/programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "model/parameters.h"
#include "model/transformer.h"
#include "model/update.h"
#include "passes/autodiff.h"
#include "passes/expand.h"
#include "passes/fuse.h"
#include "passes/recompute.h"
#include "passes/unroll.h"
#include "pipeline/schedule.h"
#include "plan/lower.h"
#include "train/compute_device.h"

namespace wych::train {
namespace {

model::BuildOptions build_options(const config::Config& config) {
  return {.compute = compute_dtype(config),
          .alignment = config.memory.alignment > 0                  ? config.memory.alignment
                       : config.run.device == config::Device::kCuda ? kCudaAlignment
                                                                    : kCpuAlignment,
          .documents = config.data.document_mask,
          .deterministic = config.precision.deterministic};
}

model::BatchShape batch_shape(const config::Config& config) {
  const i64 batch = config.data.batch_sequences;
  const i64 microbatch = config.data.microbatch_sequences;
  return {.sequence = config.model.sequence_length,
          .microbatch_sequences = microbatch > 0 ? microbatch : batch,
          .batch_sequences = batch};
}

passes::RecomputePolicy recompute_policy(config::Recompute recompute) {
  switch (recompute) {
    case config::Recompute::kNone:
      return passes::RecomputePolicy::kNone;
    case config::Recompute::kSelective:
      return passes::RecomputePolicy::kSelective;
    case config::Recompute::kBlock:
      return passes::RecomputePolicy::kBlock;
  }
  return passes::RecomputePolicy::kNone;
}

// Layers that the configuration lists (all if it lists none) get its policy.
std::vector<passes::RecomputePolicy> recompute_policies(const config::Config& config,
                                                        const ir::Graph& graph) {
  std::vector<passes::RecomputePolicy> policies(graph.regions.size(), passes::RecomputePolicy::kNone);
  const std::vector<i64>& layers = config.memory.recompute_layers;
  for (i64 layer = 0; layer < config.model.n_layers; ++layer) {
    if (layers.empty() || std::find(layers.begin(), layers.end(), layer) != layers.end()) {
      const auto region = std::find(graph.regions.begin(), graph.regions.end(), model::block_name(layer));
      WYCH_CHECK(region != graph.regions.end(), "no region for layer {}", layer);
      policies[static_cast<std::size_t>(region - graph.regions.begin())] =
          recompute_policy(config.memory.recompute);
    }
  }
  return policies;
}

// What a configuration may ask for and this build does not have is refused by name, never ignored.
Expected<void> check_supported(const config::Config& config) {
  const auto missing = [](std::string_view key, std::string_view what, std::string_view hint) {
    return Error{.kind = ErrorKind::kUsage,
                 .where = std::string(key),
                 .what = std::string(what),
                 .hint = std::string(hint),
                 .more = {}};
  };
  if (config.precision.compute == config::Compute::kBF16 && config.run.device != config::Device::kCuda) {
    return missing("precision.compute", "\"bf16\" is not available on the CPU",
                   "set precision.compute = \"f32\", or run.device = \"cuda\"");
  }
  constexpr i64 kMaxCudaHeadDim = 256;  // of ops/attention.cu and kv_cache.cu
  if (config.run.device == config::Device::kCuda && config.model.attention.head_dim > kMaxCudaHeadDim) {
    return missing("model.attention.head_dim",
                   fmt::format("is {}; attention on CUDA takes up to {}", config.model.attention.head_dim,
                               kMaxCudaHeadDim),
                   "more heads of fewer columns, or run.device = \"cpu\"");
  }
  if (config.parallel.dp > 1 || config.parallel.ep > 1 || config.parallel.pp > 1) {
    return missing("parallel",
                   fmt::format("dp {} x ep {} x pp {}: this build runs one rank", config.parallel.dp,
                               config.parallel.ep, config.parallel.pp),
                   "leave dp, ep and pp at 1");
  }
  return {};
}

passes::KernelTarget kernel_target(const config::Config& config) {
  return config.run.device == config::Device::kCuda ? passes::KernelTarget::kCuda
                                                    : passes::KernelTarget::kCpu;
}

Expected<ir::Graph> build_step_graph(const config::Config& config, i64 num_microbatches) {
  WYCH_TRY(const ir::Graph microbatch, build_microbatch_graph(config));
  const pipeline::Schedule schedule = pipeline::one_stage(static_cast<i32>(num_microbatches));
  WYCH_TRY_VOID(pipeline::validate(schedule, 1, static_cast<i32>(num_microbatches)));
  std::vector<passes::MicrobatchAction> actions;
  for (const pipeline::Action& action : schedule[0]) {
    actions.push_back({action.kind == pipeline::Kind::kBackward, action.microbatch});
  }
  ir::Graph step = passes::unroll(microbatch, static_cast<i32>(num_microbatches), actions);
  model::bind_update_inputs(step, config.model);
  return step;
}

// Plans `graph` as program `name` of the set.
Expected<void> lower_into(std::optional<plan::Program>& program, std::string name, Expected<ir::Graph> graph,
                          plan::Layout& layout, const std::optional<CudaTarget>& cuda) {
  WYCH_TRY(ir::Graph built, std::move(graph));
  const auto kernels = cuda ? passes::KernelTarget::kCuda : passes::KernelTarget::kCpu;
  WYCH_TRY(program, plan::lower(std::move(name), passes::fuse(passes::expand(built, kernels)), layout, cuda));
  if (cuda) {
    layout.add_overhead(kCudaGraphBytes * static_cast<i64>(program->instructions.size()));
  }
  return {};
}

}  // namespace

DType compute_dtype(const config::Config& config) {
  switch (config.precision.compute) {
    case config::Compute::kF64:
      return DType::kF64;
    case config::Compute::kBF16:
      return DType::kBF16;
    default:
      return DType::kF32;
  }
}

Expected<ir::Graph> build_microbatch_graph(const config::Config& config) {
  WYCH_TRY(const ir::Graph forward,
           model::build_training(config.model, batch_shape(config), build_options(config)));
  WYCH_TRY(const ir::Graph differentiated, passes::autodiff(passes::expand(forward, kernel_target(config))));
  return passes::recompute(differentiated, recompute_policies(config, differentiated));
}

Expected<Programs> build_programs(const config::Config& config, const ProgramRequest& request) {
  WYCH_TRY_VOID(check_supported(config));
  Programs programs;
  const std::optional<CudaTarget> cuda = request.cuda ? request.cuda : planned_target(config.run.device);
  const model::BuildOptions options = build_options(config);
  if (cuda) {
    programs.layout.add_overhead(kCudaContextBytes);
  }
  if (request.training) {
    const model::BatchShape batch = batch_shape(config);
    programs.num_microbatches = batch.num_microbatches();
    WYCH_TRY_VOID(lower_into(programs.initialise, "initialise",
                             model::build_initialisation(
                                 config.model, options,
                                 request.update ? model::Initial::kMasters : model::Initial::kComputeCopies),
                             programs.layout, cuda));
    WYCH_TRY_VOID(lower_into(programs.train, "train", build_step_graph(config, programs.num_microbatches),
                             programs.layout, cuda));
    if (request.update) {
      WYCH_TRY_VOID(lower_into(programs.update, "update",
                               model::build_update(config.model, config.optimizer,
                                                   batch.sequence * batch.batch_sequences, options),
                               programs.layout, cuda));
    }
  }
  if (config.precision.compute == config::Compute::kBF16 && request.update) {
    WYCH_TRY_VOID(lower_into(programs.refresh, "refresh", model::build_refresh(config.model, options),
                             programs.layout, cuda));
  }
  if (request.evaluation_sequences > 0) {
    const i64 length =
        request.evaluation_length > 0 ? request.evaluation_length : config.model.sequence_length;
    WYCH_TRY_VOID(
        lower_into(programs.evaluate, "evaluate",
                   model::build_evaluation(config.model, request.evaluation_sequences, length, options),
                   programs.layout, cuda));
  }
  if (request.prefill_tokens > 0) {
    WYCH_TRY_VOID(lower_into(
        programs.prefill, "prefill",
        model::build_generation(config.model, request.prefill_tokens, request.cache_length, options),
        programs.layout, cuda));
    WYCH_TRY_VOID(lower_into(programs.decode, "decode",
                             model::build_generation(config.model, 1, request.cache_length, options),
                             programs.layout, cuda));
  }
  return programs;
}

}  // namespace wych::train
