// Every op of the registry against every check of op_suite.h, for all its cases in float32 and float64. A
// test is named <check>/<op>_<case>_<dtype>: run one op with --gtest_filter='*/rms_norm_*'.
#include "ops/op_suite.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "ir/registry.h"

#include "all_ops.inc"  // needs the registry's declaration

namespace wych::ops {
namespace {

struct SuiteCase {
  std::string name;
  DType dtype = DType::kF32;
  u64 seed = 0;
  ir::OpCase example;
};

std::vector<SuiteCase> cases_of(DType dtype) {
  ir::Registry registry;
  register_all_ops(registry);
  std::vector<SuiteCase> cases;
  for (const ir::RegistryEntry& entry : registry.entries()) {
    u64 index = 0;
    for (ir::OpCase& example : entry.cases(dtype)) {
      cases.push_back({.name = fmt::format("{}_{}_{}", entry.name, index, dtype_name(dtype)),
                       .dtype = dtype,
                       .seed = 1 + index,
                       .example = std::move(example)});
      ++index;
    }
  }
  return cases;
}

std::vector<SuiteCase> all_cases() {
  std::vector<SuiteCase> cases = cases_of(DType::kF32);
  for (SuiteCase& example : cases_of(DType::kF64)) {
    cases.push_back(std::move(example));
  }
  return cases;
}

void PrintTo(const SuiteCase& example, std::ostream* stream) {
  *stream << ir::op_text(*example.example.op) << " [" << example.example.label << "] "
          << dtype_name(example.dtype);
}

class OpSuite : public testing::TestWithParam<SuiteCase> {
 protected:
  [[nodiscard]] const ir::OpCase& example() const { return GetParam().example; }
  [[nodiscard]] u64 seed() const { return GetParam().seed; }
  // Reports with op, attributes, case and type.
  void expect_fine(const std::string& wrong) const {
    EXPECT_TRUE(wrong.empty()) << testing::PrintToString(GetParam()) << ": " << wrong;
  }
};

TEST_P(OpSuite, Values) { expect_fine(check_values(example(), seed())); }

TEST_P(OpSuite, Determinism) { expect_fine(check_determinism(example(), seed())); }

TEST_P(OpSuite, Poison) { expect_fine(check_poison(example(), seed())); }

TEST_P(OpSuite, Accumulate) { expect_fine(check_accumulate(example(), seed())); }

TEST_P(OpSuite, Aliases) { expect_fine(check_aliases(example(), seed())); }

TEST_P(OpSuite, Infer) { expect_fine(check_infer(example())); }

class OpSuiteDouble : public OpSuite {};

TEST_P(OpSuiteDouble, Gradient) { expect_fine(check_gradient(example(), seed())); }

std::string case_name(const testing::TestParamInfo<SuiteCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Ops, OpSuite, testing::ValuesIn(all_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Ops, OpSuiteDouble, testing::ValuesIn(cases_of(DType::kF64)), case_name);

TEST(OpSuiteRegistry, Float32AgreesWithFloat64) {
  const std::vector<SuiteCase> single = cases_of(DType::kF32);
  const std::vector<SuiteCase> twice = cases_of(DType::kF64);
  ASSERT_EQ(single.size(), twice.size()) << "every op has the same cases in both types";
  for (std::size_t i = 0; i < single.size(); ++i) {
    const std::string wrong = check_precision(single[i].example, twice[i].example, single[i].seed);
    EXPECT_TRUE(wrong.empty()) << testing::PrintToString(single[i]) << ": " << wrong;
  }
}

TEST(OpSuiteRegistry, CasesAreOfTheirOp) {
  ir::Registry registry;
  register_all_ops(registry);
  for (const ir::RegistryEntry& entry : registry.entries()) {
    EXPECT_FALSE(entry.cases(DType::kF32).empty()) << entry.name << " has no case";
    for (const ir::OpCase& example : entry.cases(DType::kF32)) {
      EXPECT_EQ(example.op->name(), entry.name);
      EXPECT_FALSE(example.label.empty()) << entry.name;
    }
  }
}

// Whether some case has an extent that no vector width divides.
bool has_odd_extent(const ir::OpCase& example) {
  std::vector<ir::TensorType> types;
  for (const ir::CaseInput& input : example.inputs) {
    types.push_back(input.type);
  }
  const std::vector<ir::TensorType> outputs = example.op->infer(types).value();
  types.insert(types.end(), outputs.begin(), outputs.end());
  return std::any_of(types.begin(), types.end(), [](const ir::TensorType& type) {
    return std::any_of(type.shape.dims().begin(), type.shape.dims().end(),
                       [](i64 extent) { return extent > 1 && extent % 2 == 1; });
  });
}

TEST(OpSuiteRegistry, EveryOpHasACaseOfOddSize) {
  ir::Registry registry;
  register_all_ops(registry);
  for (const ir::RegistryEntry& entry : registry.entries()) {
    const std::vector<ir::OpCase> cases = entry.cases(DType::kF64);
    EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), has_odd_extent)) << entry.name;
  }
}

// Ops without a gradient: backward ops, choices, constants, generation and the update. A new op is either
// here or has a case whose gradient is checked.
constexpr std::array<std::string_view, 39> kNoGradient = {"adamw",
                                                          "add_rms_norm_backward",
                                                          "attention_dqkv",
                                                          "balance_loss_dprobs",
                                                          "cached_attention",
                                                          "clip_dx",
                                                          "count_targets",
                                                          "embed_dw",
                                                          "equal",
                                                          "expert_fractions",
                                                          "fill",
                                                          "greater",
                                                          "greater_equal",
                                                          "grouped_linear_dw",
                                                          "grouped_linear_dx",
                                                          "head_loss_backward",
                                                          "iota",
                                                          "kv_append",
                                                          "linear_dw",
                                                          "linear_dx",
                                                          "moe_placement",
                                                          "moe_swiglu_dx",
                                                          "normalize_weights_dx",
                                                          "one_hot",
                                                          "qk_norm_dw",
                                                          "qk_norm_dx",
                                                          "qk_norm_rope_backward",
                                                          "random_normal",
                                                          "rms_norm_backward",
                                                          "router_linear_dw",
                                                          "router_linear_dx",
                                                          "router_z_loss_dlogits",
                                                          "select_state",
                                                          "softmax_dx",
                                                          "step_decision",
                                                          "sum_of_squares",
                                                          "swiglu_dx",
                                                          "take_row",
                                                          "top_k_dx"};

TEST(OpSuiteRegistry, EveryGradientIsChecked) {
  ir::Registry registry;
  register_all_ops(registry);
  for (const ir::RegistryEntry& entry : registry.entries()) {
    const std::vector<ir::OpCase> cases = entry.cases(DType::kF64);
    const bool checked = std::any_of(cases.begin(), cases.end(), [](const ir::OpCase& example) {
      return !example.differentiable.empty();
    });
    const bool listed = std::find(kNoGradient.begin(), kNoGradient.end(), entry.name) != kNoGradient.end();
    EXPECT_NE(checked, listed) << entry.name << " must have a differentiable case or be in kNoGradient";
  }
}

}  // namespace
}  // namespace wych::ops
