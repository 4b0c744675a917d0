// One thread: a few hundred numbers, and the order of sums is the CPU's.
#include "kernels/cuda_launch.cuh"
#include "ops/step_decision.h"

namespace wych::ops {
namespace {

struct Params {
  i64 num_norms;
  const double* norms;
  const double* loss;
  const double* learning_rate;
  double* state;
  double* decision;
  StepDecisionOptions options;
};

__device__ bool is_outlier(double value, const double* ring, i64 count, double sigma) {
  double mean = 0;
  for (i64 i = 0; i < count; ++i) {
    mean += ring[i];
  }
  mean /= static_cast<double>(count);
  double variance = 0;
  for (i64 i = 0; i < count; ++i) {
    variance += (ring[i] - mean) * (ring[i] - mean);
  }
  variance /= static_cast<double>(count - 1);
  return value > mean + sigma * sqrt(variance);
}

__global__ void step_decision_kernel(const Params params) {
  const StepDecisionOptions& options = params.options;
  double* state = params.state;
  double* decision = params.decision;
  const i64 window = options.skip_window;
  double* losses_ring = state + StepState::kHeaderSize;
  double* norms_ring = losses_ring + window;
  double squares = 0;
  for (i64 i = 0; i < params.num_norms; ++i) {
    squares += params.norms[i];
  }
  const double norm = sqrt(squares);
  const double loss = *params.loss;
  const bool finite = isfinite(norm) && isfinite(loss);
  const auto count = static_cast<i64>(state[StepState::kWindowCount]);
  const bool skipped = finite && window > 0 && count >= options.skip_min_steps &&
                       (is_outlier(loss, losses_ring, count, options.skip_sigma) ||
                        is_outlier(norm, norms_ring, count, options.skip_sigma));
  const bool applied = finite && !skipped;
  const double next_step = state[StepState::kAdamStep] + 1;

  state[StepState::kConsecutiveNonFinite] = finite ? 0 : state[StepState::kConsecutiveNonFinite] + 1;
  state[StepState::kTotalSkipped] += skipped ? 1 : 0;
  state[StepState::kAdamStep] += applied ? 1 : 0;
  if (applied && window > 0) {
    const auto cursor = static_cast<i64>(state[StepState::kWindowCursor]);
    losses_ring[cursor] = loss;
    norms_ring[cursor] = norm;
    state[StepState::kWindowCount] = static_cast<double>(count + 1 < window ? count + 1 : window);
    state[StepState::kWindowCursor] = static_cast<double>((cursor + 1) % window);
  }

  decision[Decision::kApplied] = applied ? 1 : 0;
  decision[Decision::kSkipped] = skipped ? 1 : 0;
  decision[Decision::kNonFinite] = finite ? 0 : 1;
  decision[Decision::kGradNorm] = norm;
  const double clip = options.clip_norm > 0 ? fmin(1.0, options.clip_norm / (norm + 1e-6)) : 1.0;
  decision[Decision::kClipCoefficient] = finite ? clip : 0;
  decision[Decision::kLearningRate] = *params.learning_rate;
  decision[Decision::kBiasCorrection1] = 1 - pow(options.beta1, next_step);
  decision[Decision::kBiasCorrection2] = 1 - pow(options.beta2, next_step);
  decision[Decision::kLoss] = loss;
  decision[Decision::kAdamStep] = state[StepState::kAdamStep];
}

}  // namespace

void StepDecision::launch_cuda(const ir::CudaContext& context) const {
  const Params params{context.input(0).elements(),
                      context.input(0).as<double>(),
                      context.input(1).as<double>(),
                      context.input(2).as<double>(),
                      context.output(0).as<double>(),
                      context.output(1).as<double>(),
                      options_};
  step_decision_kernel<<<1, 1, 0, context.stream>>>(params);
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
