#include "plan/report.h"

#include <gtest/gtest.h>

namespace wych::plan {
namespace {

constexpr i64 kMiB = i64{1} << 20;

// Costs 2 flops and 4 + 4 bytes an element.
class DoubleOp final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "double"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override {
    return std::vector<ir::TensorType>{inputs[0]};
  }
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override {
    return {.flops = 2.0 * static_cast<double>(inputs[0].elements()),
            .bytes_read = static_cast<double>(inputs[0].bytes()),
            .bytes_written = static_cast<double>(outputs[0].bytes())};
  }
};

Program program_of(std::string name, i64 stash, i64 scratch) {
  Program program;
  program.name = std::move(name);
  program.arenas[static_cast<std::size_t>(ir::Category::kStash)] = {stash, stash};
  program.arenas[static_cast<std::size_t>(ir::Category::kScratch)] = {scratch, scratch / 2};
  return program;
}

TEST(BytesText, KeepsThreeDigits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.00 KiB");
  EXPECT_EQ(bytes_text(15 * kMiB / 10), "1.50 MiB");
  EXPECT_EQ(bytes_text(123 * kMiB), "123 MiB");
  EXPECT_EQ(bytes_text(1023 * kMiB), "1.00 GiB");
}

TEST(MemoryTable, ListsCategoriesTotalAndPeak) {
  Layout layout;
  ir::Value weight;
  weight.type = {DType::kF32, {1024, 1024}};
  weight.path = "embed.weight";
  weight.lifetime = ir::Lifetime::kPersistent;
  weight.category = ir::Category::kWeights;
  layout.place(weight);
  Program train = program_of("train", 2 * kMiB, 8 * kMiB);
  train.peak = {{"blocks.0 swiglu f32[2,3]", 3 * kMiB}};
  const Program update = program_of("update", 0, kMiB);
  layout.reserve(train);
  layout.reserve(update);
  EXPECT_EQ(memory_table(layout, {&train, &update}),
            "                 bytes     lower bound\n"
            "weights       4.00 MiB\n"
            "stash         2.00 MiB        2.00 MiB\n"
            "scratch       8.00 MiB        4.00 MiB\n"
            "total         14.0 MiB\n"
            "scratch is fullest in train, largest buffers there:\n"
            "              3.00 MiB  blocks.0 swiglu f32[2,3]\n");
}

TEST(MemoryTable, NeedsNoProgram) {
  EXPECT_EQ(memory_table(Layout(), {}),
            "                 bytes     lower bound\n"
            "total              0 B\n");
}

TEST(EstimateSeconds, TakesTheSlowerOfArithmeticAndMemory) {
  const Slot slot{.arena = ir::Category::kScratch, .offset = 0, .type = {DType::kF32, {1000}}};
  Instruction instruction;
  instruction.op = std::make_shared<DoubleOp>();
  instruction.inputs = {slot};
  instruction.outputs = {slot};
  Program program;
  program.instructions = {instruction, instruction};
  // 2000 flops and 8000 bytes an instruction.
  EXPECT_DOUBLE_EQ(estimate_seconds(program, {.name = "a", .flops_per_second = 1e3, .bytes_per_second = 1e6}),
                   4);
  EXPECT_DOUBLE_EQ(estimate_seconds(program, {.name = "b", .flops_per_second = 1e6, .bytes_per_second = 1e3}),
                   16);
}

}  // namespace
}  // namespace wych::plan
