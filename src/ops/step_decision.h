// StepDecision: what `update` does with this step, decided once, in float64, on the device: the global norm
// and its clipping, whether the step is an outlier to skip or not finite, and Adam's step. Every op that
// changes state afterwards (adamw.h, select_state.h) reads the record and selects: nothing is multiplied by
// zero, so a NaN cannot leak into the moments.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// The record, f64[Decision::kSize]. Flags are 0 or 1.
struct Decision {
  enum Field : i32 {
    kApplied,          // the update happens: neither skipped nor non-finite
    kSkipped,          // finite, but loss or norm is an outlier
    kNonFinite,        // loss or norm is NaN or infinite
    kGradNorm,         // before clipping
    kClipCoefficient,  // factor for the gradients, in (0, 1]; 0 if non-finite
    kLearningRate,
    kBiasCorrection1,  // 1 - beta1^t with t = Adam's step if this step is applied
    kBiasCorrection2,  // 1 - beta2^t
    kLoss,
    kAdamStep,  // number of applied steps, this one included
    kSize,
  };
};

// What carries over, f64[StepState::size(window)], all zeros at the start. Rings of `window` losses and
// `window` norms follow the header; only applied steps enter them.
struct StepState {
  enum Field : i32 {
    kAdamStep,
    kConsecutiveNonFinite,  // up to now; 0 after any finite step
    kTotalSkipped,
    kWindowCount,   // entries in the rings
    kWindowCursor,  // where the next entry goes
    kHeaderSize,
  };
  static constexpr i64 size(i64 window) { return kHeaderSize + 2 * window; }
};

struct StepDecisionOptions {
  double clip_norm = 0;  // largest global norm; 0: no clipping
  double beta1 = 0.9;
  double beta2 = 0.95;
  i64 skip_window = 0;     // applied steps that make the statistics; 0: never skips
  double skip_sigma = 6;   // standard deviations above the mean
  i64 skip_min_steps = 2;  // entries needed before anything is skipped; 2 .. skip_window
};

// norms f64[n] (sums of squares), loss f64[1] (cross-entropy of the step), learning_rate f64[1],
// state f64[StepState::size(skip_window)] -> state' (in place), decision f64[Decision::kSize].
//   norm = sqrt(sum norms), summed in order.
//   coefficient = min(1, clip_norm / (norm + 1e-6)).
//   skipped if loss or norm > mean + sigma std of its ring, std with n - 1 in the denominator.
// A step that is not applied leaves Adam's step and the rings as they are.
class StepDecision final : public ir::Op {
 public:
  explicit StepDecision(const StepDecisionOptions& options) : options_(options) {}
  [[nodiscard]] std::string_view name() const override { return "step_decision"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kNever; }
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  StepDecisionOptions options_;
};

struct StepDecisionValues {
  ir::ValueId state = ir::kNoValue;
  ir::ValueId decision = ir::kNoValue;
};
StepDecisionValues step_decision(ir::Builder& builder, ir::ValueId norms, ir::ValueId loss,
                                 ir::ValueId learning_rate, ir::ValueId state,
                                 const StepDecisionOptions& options);

void register_step_decision(ir::Registry& registry);

}  // namespace wych::ops
