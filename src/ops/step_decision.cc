// A few hundred numbers: one thread, float64, no chunks. step_decision_test.cc runs several steps in a row,
// with AdamW behind them.
#include "ops/step_decision.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/builder.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

// Above the mean of the first `count` entries by more than sigma standard deviations.
bool is_outlier(double value, const double* ring, i64 count, double sigma) {
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
  return value > mean + sigma * std::sqrt(variance);
}

// The rule of the header once more, by the textbook formula.
double plain_limit(const std::vector<double>& entries, double sigma) {
  double sum = 0;
  double squares = 0;
  const auto n = static_cast<double>(entries.size());
  for (const double entry : entries) {
    sum += entry;
    squares += entry * entry;
  }
  return sum / n + sigma * std::sqrt((squares - sum * sum / n) / (n - 1));
}

struct DecisionExample {
  const char* label;
  StepDecisionOptions options;
  std::vector<double> norms;
  double loss;
  i64 entries;  // in the rings, with the cursor where they end
  i64 cursor;
};

std::vector<double> example_state(const DecisionExample& example) {
  const i64 window = example.options.skip_window;
  std::vector<double> state(static_cast<std::size_t>(StepState::size(window)));
  state[StepState::kAdamStep] = 17;
  state[StepState::kConsecutiveNonFinite] = 2;
  state[StepState::kTotalSkipped] = 5;
  state[StepState::kWindowCount] = static_cast<double>(example.entries);
  state[StepState::kWindowCursor] = static_cast<double>(example.cursor);
  for (i64 i = 0; i < window; ++i) {
    const bool present = i < example.entries;
    const double wave = static_cast<double>(i * 7 % 5) - 2;
    const double nothing = std::numeric_limits<double>::quiet_NaN();  // not to be read
    state[static_cast<std::size_t>(StepState::kHeaderSize + i)] = present ? 3 + 0.1 * wave : nothing;
    state[static_cast<std::size_t>(StepState::kHeaderSize + window + i)] = present ? 1 + 0.2 * wave : nothing;
  }
  return state;
}

ir::Values decision_oracle(const DecisionExample& example, const ir::Values& inputs) {
  const StepDecisionOptions& options = example.options;
  std::vector<double> state = inputs[3];
  double squares = 0;
  for (const double square : inputs[0]) {
    squares += square;
  }
  const double norm = std::sqrt(squares);
  const double loss = inputs[1][0];
  const bool finite = std::isfinite(norm) && std::isfinite(loss);
  const auto first = state.begin() + StepState::kHeaderSize;
  const std::vector<double> losses(first, first + example.entries);
  const std::vector<double> norms(first + options.skip_window, first + options.skip_window + example.entries);
  const bool enough = options.skip_window > 0 && example.entries >= options.skip_min_steps;
  const bool skipped =
      finite && enough &&
      (loss > plain_limit(losses, options.skip_sigma) || norm > plain_limit(norms, options.skip_sigma));
  const bool applied = finite && !skipped;
  const double coefficient = !finite                  ? 0
                             : options.clip_norm == 0 ? 1
                                                      : std::min(1.0, options.clip_norm / (norm + 1e-6));
  const double step = applied ? 18 : 17;
  std::vector<double> decision(Decision::kSize);
  decision[Decision::kApplied] = applied ? 1 : 0;
  decision[Decision::kSkipped] = skipped ? 1 : 0;
  decision[Decision::kNonFinite] = finite ? 0 : 1;
  decision[Decision::kGradNorm] = norm;
  decision[Decision::kClipCoefficient] = coefficient;
  decision[Decision::kLearningRate] = inputs[2][0];
  decision[Decision::kBiasCorrection1] = 1 - std::pow(options.beta1, 18);
  decision[Decision::kBiasCorrection2] = 1 - std::pow(options.beta2, 18);
  decision[Decision::kLoss] = loss;
  decision[Decision::kAdamStep] = step;
  state[StepState::kAdamStep] = step;
  state[StepState::kConsecutiveNonFinite] = finite ? 0 : 3;
  state[StepState::kTotalSkipped] = skipped ? 6 : 5;
  if (applied && options.skip_window > 0) {
    state[static_cast<std::size_t>(StepState::kHeaderSize + example.cursor)] = loss;
    state[static_cast<std::size_t>(StepState::kHeaderSize + options.skip_window + example.cursor)] = norm;
    state[StepState::kWindowCount] = static_cast<double>(std::min(example.entries + 1, options.skip_window));
    state[StepState::kWindowCursor] = static_cast<double>((example.cursor + 1) % options.skip_window);
  }
  return {state, decision};
}

std::vector<ir::OpCase> step_decision_cases(DType /*dtype*/) {
  const StepDecisionOptions plain;
  const StepDecisionOptions clipped = {.clip_norm = 1};
  const StepDecisionOptions skipping = {
      .clip_norm = 1, .skip_window = 7, .skip_sigma = 3, .skip_min_steps = 4};
  const double infinity = std::numeric_limits<double>::infinity();
  const DecisionExample examples[] = {
      {"no clipping, no skipping", plain, {3, 1, 5}, 2.5, 0, 0},
      {"clipped", clipped, {16, 9}, 2.5, 0, 0},
      {"norm below the limit", clipped, {0.25}, 2.5, 0, 0},
      {"all gradients zero", clipped, {0, 0}, 2.5, 0, 0},
      {"infinite norm", clipped, {1, infinity}, 2.5, 0, 0},
      {"infinite loss", skipping, {1}, infinity, 5, 5},
      {"outlier before enough entries", skipping, {1}, 50, 3, 3},
      {"outlier in the loss", skipping, {1}, 50, 4, 4},
      {"outlier in the norm", skipping, {400}, 3, 7, 2},
      {"within the window's spread", skipping, {1.1}, 3.1, 7, 6},
      {"far below the mean", skipping, {0.0001}, 0.01, 7, 0},
  };
  std::vector<ir::OpCase> cases;
  for (const DecisionExample& shape : examples) {
    const auto n = static_cast<i64>(shape.norms.size());
    ir::OpCase example;
    example.label = shape.label;
    example.op = std::make_shared<StepDecision>(shape.options);
    example.inputs = {{{DType::kF64, {n}}, shape.norms},
                      {{DType::kF64, {1}}, {shape.loss}},
                      {{DType::kF64, {1}}, {1e-3}},
                      {{DType::kF64, {StepState::size(shape.options.skip_window)}}, example_state(shape)}};
    example.oracle = [shape](const ir::Values& inputs) { return decision_oracle(shape, inputs); };
    example.defined = [](int output, i64 element, const ir::Values& inputs) {
      return output != 0 || !std::isnan(inputs[3][static_cast<std::size_t>(element)]);
    };
    example.reduction_length = 8;
    cases.push_back(std::move(example));
  }
  return cases;
}

}  // namespace

void StepDecision::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("clip_norm", options_.clip_norm);
  visitor.visit("beta1", options_.beta1);
  visitor.visit("beta2", options_.beta2);
  visitor.visit("skip_window", options_.skip_window);
  visitor.visit("skip_sigma", options_.skip_sigma);
  visitor.visit("skip_min_steps", options_.skip_min_steps);
}

Expected<std::vector<ir::TensorType>> StepDecision::infer(std::span<const ir::TensorType> inputs) const {
  const i64 window = options_.skip_window;
  if (window < 0 || (window > 0 && (options_.skip_min_steps < 2 || options_.skip_min_steps > window))) {
    return ir::shape_error(fmt::format("needs 2 <= skip_min_steps <= skip_window, not {} and {}",
                                       options_.skip_min_steps, window),
                           inputs);
  }
  const ir::TensorType state = {DType::kF64, {StepState::size(window)}};
  if (inputs.size() != 4 || inputs[0].dtype != DType::kF64 || inputs[0].shape.rank() != 1 ||
      !is_scalar(inputs[1]) || !is_scalar(inputs[2]) || inputs[3] != state) {
    return ir::shape_error(
        fmt::format("needs norms f64[n], loss f64[1], learning_rate f64[1] and state {}", state.text()),
        inputs);
  }
  return std::vector<ir::TensorType>{state, {DType::kF64, {Decision::kSize}}};
}

std::vector<ir::Alias> StepDecision::aliases() const { return {{3, 0, ir::AliasKind::kInPlace}}; }

void StepDecision::run_cpu(const ir::ExecContext& context) const {
  const double* norms = context.input(0).as<double>();
  const double loss = *context.input(1).as<double>();
  double* state = context.output(0).as<double>();
  double* decision = context.output(1).as<double>();
  const i64 window = options_.skip_window;
  double* losses_ring = state + StepState::kHeaderSize;
  double* norms_ring = losses_ring + window;

  double squares = 0;
  for (i64 i = 0; i < context.input(0).elements(); ++i) {
    squares += norms[i];
  }
  const double norm = std::sqrt(squares);
  const bool finite = std::isfinite(norm) && std::isfinite(loss);
  const auto count = static_cast<i64>(state[StepState::kWindowCount]);
  const bool skipped = finite && window > 0 && count >= options_.skip_min_steps &&
                       (is_outlier(loss, losses_ring, count, options_.skip_sigma) ||
                        is_outlier(norm, norms_ring, count, options_.skip_sigma));
  const bool applied = finite && !skipped;
  const double next_step = state[StepState::kAdamStep] + 1;

  state[StepState::kConsecutiveNonFinite] = finite ? 0 : state[StepState::kConsecutiveNonFinite] + 1;
  state[StepState::kTotalSkipped] += skipped ? 1 : 0;
  state[StepState::kAdamStep] += applied ? 1 : 0;
  if (applied && window > 0) {
    const auto cursor = static_cast<i64>(state[StepState::kWindowCursor]);
    losses_ring[cursor] = loss;
    norms_ring[cursor] = norm;
    state[StepState::kWindowCount] = static_cast<double>(std::min(count + 1, window));
    state[StepState::kWindowCursor] = static_cast<double>((cursor + 1) % window);
  }

  decision[Decision::kApplied] = applied ? 1 : 0;
  decision[Decision::kSkipped] = skipped ? 1 : 0;
  decision[Decision::kNonFinite] = finite ? 0 : 1;
  decision[Decision::kGradNorm] = norm;
  const double clip = options_.clip_norm > 0 ? std::min(1.0, options_.clip_norm / (norm + 1e-6)) : 1.0;
  decision[Decision::kClipCoefficient] = finite ? clip : 0;
  decision[Decision::kLearningRate] = *context.input(2).as<double>();
  decision[Decision::kBiasCorrection1] = 1 - std::pow(options_.beta1, next_step);
  decision[Decision::kBiasCorrection2] = 1 - std::pow(options_.beta2, next_step);
  decision[Decision::kLoss] = loss;
  decision[Decision::kAdamStep] = state[StepState::kAdamStep];
}

StepDecisionValues step_decision(ir::Builder& builder, ir::ValueId norms, ir::ValueId loss,
                                 ir::ValueId learning_rate, ir::ValueId state,
                                 const StepDecisionOptions& options) {
  const std::vector<ir::ValueId> outputs =
      builder.add(std::make_shared<StepDecision>(options), {norms, loss, learning_rate, state});
  return {.state = outputs[0], .decision = outputs[1]};
}

void register_step_decision(ir::Registry& registry) { registry.add("step_decision", step_decision_cases); }

}  // namespace wych::ops
