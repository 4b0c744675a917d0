// StepDecision and AdamW over several steps: what one case cannot show.
#include "ops/step_decision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/builder.h"
#include "ir/interpret.h"
#include "ops/adamw.h"

namespace wych::ops {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// One parameter of one element under the decision and AdamW, a step at a time.
class Trainer {
 public:
  explicit Trainer(const StepDecisionOptions& options) {
    const ir::TensorType scalar = {DType::kF64, {1}};
    ir::Builder builder(graph_);
    norms_ = builder.input("norms", scalar);
    loss_ = builder.input("loss", scalar);
    rate_ = builder.input("rate", scalar);
    state_ = builder.input("state", {DType::kF64, {StepState::size(options.skip_window)}});
    for (const char* path : {"p", "g", "m", "v"}) {
      parameter_.push_back(builder.input(path, scalar));
    }
    next_ = step_decision(builder, norms_, loss_, rate_, state_, options);
    updated_ = adamw(builder, parameter_[0], parameter_[1], parameter_[2], parameter_[3], next_.decision,
                     ir::kNoValue, {.beta1 = options.beta1, .beta2 = options.beta2});
    state.resize(static_cast<std::size_t>(StepState::size(options.skip_window)));
  }

  void step(double loss, double gradient) {
    ThreadPool pool(1);
    ir::Interpreter interpreter(graph_, pool);
    interpreter.write(norms_, {gradient * gradient});
    interpreter.write(loss_, {loss});
    interpreter.write(rate_, {0.1});
    interpreter.write(state_, state);
    interpreter.write(parameter_[0], {p});
    interpreter.write(parameter_[1], {gradient});
    interpreter.write(parameter_[2], {m});
    interpreter.write(parameter_[3], {v});
    interpreter.run();
    state = interpreter.read(next_.state);
    decision = interpreter.read(next_.decision);
    p = interpreter.read(updated_.parameter)[0];
    m = interpreter.read(updated_.m)[0];
    v = interpreter.read(updated_.v)[0];
  }

  double p = 1;
  double m = 0;
  double v = 0;
  std::vector<double> state;
  std::vector<double> decision;

 private:
  ir::Graph graph_;
  ir::ValueId norms_, loss_, rate_, state_;
  std::vector<ir::ValueId> parameter_;
  StepDecisionValues next_;
  AdamWValues updated_;
};

TEST(StepDecision, SkippedAndNonFiniteStepsLeaveTheTrajectoryAlone) {
  const StepDecisionOptions options = {
      .clip_norm = 1, .skip_window = 4, .skip_sigma = 3, .skip_min_steps = 3};
  Trainer disturbed(options);
  Trainer quiet(options);
  const double losses[] = {3.0, 2.9, 3.1, 2.8, 2.9, 2.7};
  const double gradients[] = {0.5, -0.4, 0.6, 0.5, 2.0, -0.4};
  for (int i = 0; i < 6; ++i) {
    quiet.step(losses[i], gradients[i]);
    disturbed.step(losses[i], gradients[i]);
    EXPECT_EQ(disturbed.decision[Decision::kApplied], quiet.decision[Decision::kApplied]);
    disturbed.step(3.0, kNan);
    EXPECT_EQ(disturbed.decision[Decision::kNonFinite], 1);
    EXPECT_EQ(disturbed.decision[Decision::kApplied], 0);
    disturbed.step(kNan, 0.5);
    EXPECT_EQ(disturbed.state[StepState::kConsecutiveNonFinite], 2);
    EXPECT_EQ(disturbed.p, quiet.p);
    EXPECT_EQ(disturbed.m, quiet.m);
    EXPECT_EQ(disturbed.v, quiet.v);
    EXPECT_EQ(disturbed.state[StepState::kAdamStep], quiet.state[StepState::kAdamStep]);
  }
  EXPECT_EQ(quiet.state[StepState::kTotalSkipped], 1);  // the gradient of 2.0
  EXPECT_EQ(quiet.state[StepState::kAdamStep], 5);
  EXPECT_NEAR(quiet.decision[Decision::kBiasCorrection1], 1 - std::pow(options.beta1, 5), 1e-15);
}

TEST(StepDecision, AnOutlierDoesNotWidenTheWindow) {
  Trainer trainer({.skip_window = 4, .skip_sigma = 3, .skip_min_steps = 3});
  for (const double loss : {3.0, 2.9, 3.1}) {
    trainer.step(loss, 1 + 0.1 * loss);
  }
  for (int i = 1; i <= 5; ++i) {
    trainer.step(9, 1.3);
    EXPECT_EQ(trainer.decision[Decision::kSkipped], 1);
    EXPECT_EQ(trainer.state[StepState::kTotalSkipped], i);
    EXPECT_EQ(trainer.state[StepState::kWindowCount], 3);
  }
  trainer.step(3.05, 1.3);
  EXPECT_EQ(trainer.decision[Decision::kApplied], 1);
  EXPECT_EQ(trainer.state[StepState::kConsecutiveNonFinite], 0);
}

TEST(StepDecision, TheWindowForgetsItsOldestEntry) {
  Trainer trainer({.skip_window = 3, .skip_sigma = 2, .skip_min_steps = 3});
  for (const double loss : {5.0, 4.0, 3.0, 2.0, 1.0}) {
    trainer.step(loss, 1 + 0.1 * loss);
    EXPECT_EQ(trainer.decision[Decision::kApplied], 1);
  }
  trainer.step(4.5, 1.2);  // above 2 + 2 * 1, the window of 3, 2, 1; below 3 + 2 * 1.6 of all five
  EXPECT_EQ(trainer.decision[Decision::kSkipped], 1);
}

TEST(StepDecision, TheFirstStepMovesByTheLearningRate) {
  Trainer trainer({.clip_norm = 0.5});
  trainer.step(3, 2);
  EXPECT_NEAR(trainer.decision[Decision::kClipCoefficient], 0.25, 1e-6);
  EXPECT_NEAR(trainer.p, 1 - 0.1, 1e-7);
  EXPECT_NEAR(trainer.m, 0.1 * 0.5, 1e-6);
}

}  // namespace
}  // namespace wych::ops
