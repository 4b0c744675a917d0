// The suite can fail: one op, right as it stands and wrong in one way per fault. Each check must pass the
// right one and catch the faults that are its own.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "ir/add.h"
#include "ir/builder.h"
#include "ops/op_suite.h"

namespace wych::ops {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

enum class Fault {
  kNone,
  kWrongValue,
  kWritesInput,
  kSloppyFloat32,
  kWrongGradient,
  kNoGradient,
  kReadsUndefinedCotangent,
  kIgnoresAccumulator,
  kDependsOnThreads,
  kDependsOnHistory,
  kReadsWorkspace,
  kReadsUndefinedInput,
  kLeavesElement,
  kAcceptsAnything,
  kSilentError,
  kNotInPlace,
};

// y[i] = 3 x[i] scale[0] for i < limit; the rest of y is undefined and the rest of x is not read. The limit
// is the i32[1] input.
class Faulty final : public ir::Op {
 public:
  explicit Faulty(Fault fault) : fault_(fault) {}
  [[nodiscard]] std::string_view name() const override { return "faulty"; }
  [[nodiscard]] int accumulates() const override { return 0; }
  [[nodiscard]] std::vector<ir::Alias> aliases() const override { return {{0, 0, ir::AliasKind::kMay}}; }
  [[nodiscard]] i64 workspace(std::span<const ir::TensorType> /*inputs*/,
                              std::span<const ir::TensorType> /*outputs*/) const override {
    return 64;
  }

  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override {
    if (fault_ == Fault::kAcceptsAnything && !inputs.empty()) {
      return std::vector<ir::TensorType>{inputs[0]};
    }
    if (inputs.size() != 3 || !is_float(inputs[0].dtype) || inputs[0].shape.rank() != 1 ||
        inputs[1] != ir::TensorType{inputs[0].dtype, {1}} || inputs[2] != ir::TensorType{DType::kI32, {1}}) {
      return fault_ == Fault::kSilentError ? Error{ErrorKind::kUsage, "", "wrong", "", {}}
                                           : ir::shape_error("needs F[n], F[1], i32[1]", inputs);
    }
    return std::vector<ir::TensorType>{inputs[0]};
  }

  // dx = dy * 3 scale: this very op; the scale is a constant.
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override {
    if (fault_ == Fault::kNoGradient) {
      return {ir::kNoValue, ir::kNoValue, ir::kNoValue};
    }
    ir::ValueId dx = builder.add_one(std::make_shared<Faulty>(Fault::kNone),
                                     {cotangents[0], node.inputs[1], node.inputs[2]});
    if (fault_ == Fault::kWrongGradient) {
      dx = ir::add(builder, dx, dx);
    }
    if (fault_ == Fault::kReadsUndefinedCotangent) {
      dx = builder.add_one(std::make_shared<Faulty>(Fault::kReadsUndefinedInput),
                           {cotangents[0], node.inputs[1], node.inputs[2]});
    }
    return {dx, ir::kNoValue, ir::kNoValue};
  }

  void run_cpu(const ir::ExecContext& context) const override {
    dispatch_float(context.output(0).type->dtype, [&]<class T>(T) { run(context, T{}); });
  }

 private:
  template <class T>
  void run(const ir::ExecContext& context, T /*type*/) const {
    T* x = context.input(0).as<T>();
    T* y = context.output(0).as<T>();
    const T factor = static_cast<T>(fault_ == Fault::kWrongValue ? 3.001 : 3) * *context.input(1).as<T>();
    const i64 limit = *context.input(2).as<i32>();
    for (i64 i = 0; i < limit; ++i) {
      const T value = context.accumulate && fault_ != Fault::kIgnoresAccumulator ? y[i] : T{0};
      y[i] = value + x[i] * factor + disturbance<T>(context, i);
    }
    if (fault_ == Fault::kWritesInput) {
      x[0] = T{1};
    }
    if (fault_ == Fault::kNotInPlace) {
      y[limit - 1] = T{0};
      y[limit - 1] = x[limit - 1] * factor;  // in place, x is gone
    }
  }

  template <class T>
  T disturbance(const ir::ExecContext& context, i64 i) const {
    const T small = std::numeric_limits<T>::epsilon() / 4;
    switch (fault_) {
      case Fault::kSloppyFloat32:
        return sizeof(T) == 4 ? static_cast<T>(1e-4) : T{0};
      case Fault::kDependsOnThreads:
        return context.pool->num_threads() == 3 && i == 0 ? small : T{0};
      case Fault::kDependsOnHistory:
        return i == 0 ? small * static_cast<T>(++history_) : T{0};
      case Fault::kReadsWorkspace: {
        const T left = *reinterpret_cast<const T*>(context.workspace);
        return left > 0 ? small : T{0};
      }
      case Fault::kReadsUndefinedInput:
        return i == 0 ? context.input(0).as<T>()[context.output(0).elements() - 1] : T{0};
      case Fault::kLeavesElement:
        return i == 1 ? context.output(0).as<T>()[context.output(0).elements() - 1] : T{0};
      default:
        return T{0};
    }
  }

  Fault fault_;
  mutable i64 history_ = 0;
};

ir::OpCase faulty_case(Fault fault, DType dtype) {
  ir::OpCase example;
  example.label = "limit 5 of 7";
  example.op = std::make_shared<Faulty>(fault);
  example.inputs = {{{dtype, {7}}, {0.01, 0.02, 0.03, -0.04, 0.05, kNan, kNan}},
                    {{dtype, {1}}, {0.5}},
                    {{DType::kI32, {1}}, {5}}};
  example.oracle = [](const ir::Values& inputs) {
    ir::Values outputs = {inputs[0]};
    for (double& value : outputs[0]) {
      value *= 3 * inputs[1][0];
    }
    return outputs;
  };
  example.differentiable = {0};
  example.defined = [](int /*output*/, i64 element, const ir::Values& inputs) {
    return static_cast<double>(element) < inputs[2][0];
  };
  return example;
}

constexpr u64 kSeed = 1;

TEST(OpSuiteSelf, PassesARightOp) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const ir::OpCase example = faulty_case(Fault::kNone, dtype);
    EXPECT_EQ(check_values(example, kSeed), "");
    EXPECT_EQ(check_precision(example, faulty_case(Fault::kNone, DType::kF64), kSeed), "");
    EXPECT_EQ(check_accumulate(example, kSeed), "");
    EXPECT_EQ(check_determinism(example, kSeed), "");
    EXPECT_EQ(check_poison(example, kSeed), "");
    EXPECT_EQ(check_infer(example), "");
    EXPECT_EQ(check_aliases(example, kSeed), "");
  }
  EXPECT_EQ(check_gradient(faulty_case(Fault::kNone, DType::kF64), kSeed), "");
}

TEST(OpSuiteSelf, ValuesCatchesAWrongFactorAndAWrittenInput) {
  EXPECT_NE(check_values(faulty_case(Fault::kWrongValue, DType::kF64), kSeed), "");
  EXPECT_NE(check_values(faulty_case(Fault::kWrongValue, DType::kF32), kSeed), "");
  EXPECT_EQ(check_values(faulty_case(Fault::kWritesInput, DType::kF64), kSeed), "changed input 0");
}

TEST(OpSuiteSelf, ValuesWantsAnOracleOrAReference) {
  ir::OpCase example = faulty_case(Fault::kNone, DType::kF64);
  example.oracle = nullptr;
  EXPECT_EQ(check_values(example, kSeed), "has neither an oracle nor a reference");
}

TEST(OpSuiteSelf, ValuesReportsAShapeError) {
  ir::OpCase example = faulty_case(Fault::kNone, DType::kF64);
  example.inputs.pop_back();
  EXPECT_NE(check_values(example, kSeed).find("infer rejects the case"), std::string::npos);
}

TEST(OpSuiteSelf, PrecisionCatchesASloppyFloat32Kernel) {
  EXPECT_NE(check_precision(faulty_case(Fault::kSloppyFloat32, DType::kF32),
                            faulty_case(Fault::kSloppyFloat32, DType::kF64), kSeed),
            "");
}

TEST(OpSuiteSelf, GradientCatchesWrongMissingAndPoisonedOnes) {
  for (const Fault fault : {Fault::kWrongGradient, Fault::kNoGradient, Fault::kReadsUndefinedCotangent}) {
    EXPECT_NE(check_gradient(faulty_case(fault, DType::kF64), kSeed), "") << static_cast<int>(fault);
  }
}

TEST(OpSuiteSelf, AccumulateCatchesAnIgnoredAccumulator) {
  EXPECT_NE(check_accumulate(faulty_case(Fault::kIgnoresAccumulator, DType::kF64), kSeed), "");
}

TEST(OpSuiteSelf, DeterminismCatchesThreadsAndHistory) {
  for (const Fault fault : {Fault::kDependsOnThreads, Fault::kDependsOnHistory}) {
    EXPECT_NE(check_determinism(faulty_case(fault, DType::kF64), kSeed), "") << static_cast<int>(fault);
  }
}

TEST(OpSuiteSelf, PoisonCatchesReadsOfUndefinedMemory) {
  for (const Fault fault : {Fault::kReadsWorkspace, Fault::kReadsUndefinedInput, Fault::kLeavesElement}) {
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      EXPECT_NE(check_poison(faulty_case(fault, dtype), kSeed), "") << static_cast<int>(fault);
    }
  }
}

TEST(OpSuiteSelf, InferCatchesLenienceAndSilence) {
  EXPECT_NE(check_infer(faulty_case(Fault::kAcceptsAnything, DType::kF32)), "");
  EXPECT_NE(check_infer(faulty_case(Fault::kSilentError, DType::kF32)).find("does not quote"),
            std::string::npos);
}

TEST(OpSuiteSelf, AliasesCatchesAKernelThatIsWrongInPlace) {
  EXPECT_NE(check_aliases(faulty_case(Fault::kNotInPlace, DType::kF64), kSeed), "");
}

}  // namespace
}  // namespace wych::ops
