// Every op with a CUDA kernel against its oracle (or its reference composition in float64 on the CPU), in
// float32 and, where infer() takes it, with activations in bfloat16: recorded in a graph and launched, with
// poisoned outputs and workspaces and guard zones around every buffer, twice for equal bits, accumulating, in
// place where the op allows it. Oracles see the rounded inputs. Needs a device; without one the tests are
// skipped by name.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/cuda.h"
#include "ir/interpret.h"
#include "ir/registry.h"
#include "ops/op_suite_run.h"

#include "all_ops.inc"  // needs the registry's declaration

namespace wych::ops {
namespace {

using ir::OpCase;
using ir::Values;

constexpr i64 kGuardBytes = 256;
constexpr i64 kArenaBytes = i64{1} << 30U;

struct Options {
  std::byte poison = suite::kNanPoison;
  bool accumulate = false;
  int may_alias = -1;
  bool cudnn = true;
};

// One device and one arena for all tests.
class Machine {
 public:
  static Machine* get() {
    static const std::unique_ptr<Machine> machine = create();  // NOLINT: shared by the tests of this binary
    return machine.get();
  }
  device::CudaDevice& device() { return *device_; }
  [[nodiscard]] const device::CudaArena& arena() const { return arena_; }

 private:
  static std::unique_ptr<Machine> create() {
    if (device::num_cuda_devices() == 0) {
      return nullptr;
    }
    auto machine = std::make_unique<Machine>();
    machine->device_ = device::CudaDevice::open().value();
    machine->arena_ = device::CudaArena::create(*machine->device_, "tests", kArenaBytes).value();
    return machine;
  }
  std::unique_ptr<device::CudaDevice> device_;
  device::CudaArena arena_;
};

// Buffers one after the other in the arena, each in front of a guard zone of poison.
class Buffers {
 public:
  Buffers(Machine& machine, std::byte poison) : machine_(machine), poison_(poison) {}

  std::byte* add(i64 bytes) {
    std::byte* data = machine_.arena().data() + used_;
    used_ += round_up(bytes, i64{256}) + kGuardBytes;
    WYCH_CHECK(used_ <= machine_.arena().bytes(), "the case does not fit into {} bytes", kArenaBytes);
    machine_.device().fill(data, static_cast<u8>(poison_), round_up(bytes, i64{256}) + kGuardBytes);
    ends_.push_back({data + bytes, round_up(bytes, i64{256}) + kGuardBytes - bytes});
    return data;
  }
  std::byte* add(std::span<const std::byte> content) {
    std::byte* data = add(static_cast<i64>(content.size()));
    machine_.device().copy_to_device(data, content.data(), static_cast<i64>(content.size()));
    machine_.device().synchronize();
    return data;
  }
  std::vector<std::byte> read(const std::byte* data, i64 bytes) {
    std::vector<std::byte> content(static_cast<std::size_t>(bytes));
    machine_.device().copy_to_host(content.data(), data, bytes);
    machine_.device().synchronize();
    return content;
  }
  // The number of the first buffer behind which something was written, or -1.
  int first_broken_guard() {
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      for (const std::byte value : read(ends_[i].data, ends_[i].bytes)) {
        if (value != poison_) {
          return static_cast<int>(i);
        }
      }
    }
    return -1;
  }

 private:
  struct Guard {
    std::byte* data;
    i64 bytes;
  };
  Machine& machine_;
  std::byte poison_;
  i64 used_ = 0;
  std::vector<Guard> ends_;
};

std::vector<std::byte> encode(const ir::TensorType& type, const std::vector<double>& values,
                              std::byte poison) {
  const i64 width = dtype_bytes(type.dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(type.bytes()), poison);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isnan(values[i])) {
      ir::store_element(bytes.data(), type.dtype, static_cast<i64>(i), values[i]);
    }
  }
  WYCH_CHECK(static_cast<i64>(values.size()) * width == type.bytes(), "values of {}", type.text());
  return bytes;
}

// Runs the op once, as a captured graph. `accumulator` is what the output holds before, if asked for.
suite::Result run_cuda(const OpCase& example, const Values& inputs, const Options& options,
                       const std::vector<double>& accumulator = {}) {
  Machine& machine = *Machine::get();
  Buffers buffers(machine, options.poison);
  std::vector<ir::TensorType> input_types;
  std::vector<std::vector<std::byte>> contents;
  std::vector<ir::View> input_views;
  for (const ir::CaseInput& input : example.inputs) {
    input_types.push_back(input.type);
  }
  const std::vector<ir::TensorType> output_types = example.op->infer(input_types).value();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    contents.push_back(encode(input_types[i], inputs[i], options.poison));
    input_views.push_back({buffers.add(contents[i]), &input_types[i]});
  }
  const std::vector<ir::View> originals = input_views;
  std::vector<ir::View> output_views;
  for (const ir::TensorType& type : output_types) {
    output_views.push_back({buffers.add(type.bytes()), &type});
  }
  const std::vector<ir::Alias> aliases = example.op->aliases();
  for (std::size_t i = 0; i < aliases.size(); ++i) {
    const auto input = static_cast<std::size_t>(aliases[i].input);
    const auto output = static_cast<std::size_t>(aliases[i].output);
    if (aliases[i].kind != ir::AliasKind::kMay || static_cast<int>(i) == options.may_alias) {
      machine.device().copy_to_device(output_views[output].data, contents[input].data(),
                                      static_cast<i64>(contents[input].size()));
      machine.device().synchronize();
      input_views[input].data = output_views[output].data;
    }
  }
  if (options.accumulate) {
    const auto output = static_cast<std::size_t>(example.op->accumulates());
    const std::vector<std::byte> before = encode(output_types[output], accumulator, options.poison);
    machine.device().copy_to_device(output_views[output].data, before.data(),
                                    static_cast<i64>(before.size()));
    machine.device().synchronize();
  }
  const CudaTarget target = machine.device().target();
  std::byte* workspace = buffers.add(example.op->cuda_workspace(input_types, output_types, target));
  const ir::CudaContext context{.inputs = input_views,
                                .outputs = output_views,
                                .accumulate = options.accumulate,
                                .workspace = workspace,
                                .stream = machine.device().stream(),
                                .target = target,
                                .matmul = &machine.device().matmul(),
                                .attention = options.cudnn ? &machine.device().attention() : nullptr};
  example.op->prepare_cuda(context);
  const device::CudaGraph graph =
      device::CudaGraph::capture(machine.device(), [&] { example.op->launch_cuda(context); });
  graph.launch(machine.device());
  machine.device().synchronize();
  suite::Result result;
  result.types = output_types;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (buffers.read(originals[i].data, input_types[i].bytes()) != contents[i]) {
      result.changed_input = fmt::format("changed input {}", i);
    }
  }
  if (const int broken = buffers.first_broken_guard(); broken >= 0) {
    result.changed_input = fmt::format("wrote behind buffer {} (inputs, outputs, workspace)", broken);
  }
  for (std::size_t i = 0; i < output_types.size(); ++i) {
    result.bytes.push_back(buffers.read(output_views[i].data, output_types[i].bytes()));
    std::vector<double> values;
    for (i64 e = 0; e < output_types[i].elements(); ++e) {
      values.push_back(ir::load_element(result.bytes.back().data(), output_types[i].dtype, e));
    }
    result.values.push_back(std::move(values));
  }
  return result;
}

struct GpuCase {
  std::string name;
  u64 seed = 0;
  OpCase example;
  OpCase twice;  // the same in float64; used where there is no oracle
};

void PrintTo(const GpuCase& example, std::ostream* stream) {
  *stream << ir::op_text(*example.example.op) << " [" << example.example.label << "]";
}

// Whether the op takes the case and bfloat16 is in it.
bool takes_bf16(const OpCase& example) {
  std::vector<ir::TensorType> types;
  for (const ir::CaseInput& input : example.inputs) {
    types.push_back(input.type);
  }
  const Expected<std::vector<ir::TensorType>> outputs = example.op->infer(types);
  if (!outputs) {
    return false;
  }
  types.insert(types.end(), outputs->begin(), outputs->end());
  return std::any_of(types.begin(), types.end(),
                     [](const ir::TensorType& type) { return type.dtype == DType::kBF16; });
}

void append_cases(const ir::RegistryEntry& entry, DType dtype, std::vector<GpuCase>& cases) {
  std::vector<OpCase> examples = entry.cases(dtype);
  std::vector<OpCase> twice = entry.cases(DType::kF64);
  // bfloat16 may have cases of its own behind those of all types; they must bring their oracles.
  WYCH_CHECK(examples.size() >= twice.size(), "{} has fewer cases in {}", entry.name, dtype_name(dtype));
  for (std::size_t i = twice.size(); i < examples.size(); ++i) {
    WYCH_CHECK(examples[i].oracle != nullptr, "{} has a case in {} without oracle", entry.name,
               dtype_name(dtype));
  }
  twice.resize(examples.size());
  for (std::size_t i = 0; i < examples.size(); ++i) {
    if (examples[i].op->has_cuda_kernel() && (dtype != DType::kBF16 || takes_bf16(examples[i]))) {
      cases.push_back({fmt::format("{}_{}_{}", entry.name, i, dtype_name(dtype)), 1 + i,
                       std::move(examples[i]), std::move(twice[i])});
    }
  }
}

std::vector<GpuCase> all_cases() {
  ir::Registry registry;
  register_all_ops(registry);
  std::vector<GpuCase> cases;
  for (const ir::RegistryEntry& entry : registry.entries()) {
    append_cases(entry, DType::kF32, cases);
    append_cases(entry, DType::kBF16, cases);
  }
  return cases;
}

class CudaSuite : public testing::TestWithParam<GpuCase> {
 protected:
  void SetUp() override {
    if (Machine::get() == nullptr) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
  [[nodiscard]] const OpCase& example() const { return GetParam().example; }
  [[nodiscard]] u64 seed() const { return GetParam().seed; }
  void expect_fine(const std::string& wrong) const {
    EXPECT_TRUE(wrong.empty()) << testing::PrintToString(GetParam()) << ": " << wrong;
  }
};

// Also without cuDNN, whose cases kernels of our own have to take then.
TEST_P(CudaSuite, Values) {
  const Values inputs = suite::make_inputs(example(), seed());
  const Values expected =
      example().oracle
          ? example().oracle(inputs)
          : suite::run(*suite::make_program(GetParam().twice, suite::Body::kReference), inputs).values;
  for (const bool cudnn : {true, false}) {
    const suite::Result result = run_cuda(example(), inputs, {.cudnn = cudnn});
    expect_fine(result.changed_input);
    expect_fine(suite::compare(example(), inputs, result, expected, 1));
  }
}

TEST_P(CudaSuite, PoisonAndRepetitionChangeNoBit) {
  const Values inputs = suite::make_inputs(example(), seed());
  const suite::Result first = run_cuda(example(), inputs, {});
  const auto expect_same = [&](const suite::Result& other) {
    expect_fine(other.changed_input);
    expect_fine(example().repeats_on_cuda ? suite::compare_bits(example(), inputs, first, other)
                                          : suite::compare(example(), inputs, other, first.values, 1));
  };
  expect_same(run_cuda(example(), inputs, {}));
  expect_same(run_cuda(example(), inputs, {.poison = suite::kFinitePoison}));
}

TEST_P(CudaSuite, Aliases) {
  const Values inputs = suite::make_inputs(example(), seed());
  const suite::Result apart = run_cuda(example(), inputs, {});
  const std::vector<ir::Alias> aliases = example().op->aliases();
  for (std::size_t i = 0; i < aliases.size(); ++i) {
    if (aliases[i].kind == ir::AliasKind::kMay) {
      expect_fine(suite::compare_bits(example(), inputs, apart,
                                      run_cuda(example(), inputs, {.may_alias = static_cast<int>(i)})));
    }
  }
}

TEST_P(CudaSuite, Accumulate) {
  const int output = example().op->accumulates();
  if (output < 0) {
    return;
  }
  const auto o = static_cast<std::size_t>(output);
  const Values inputs = suite::make_inputs(example(), seed());
  const suite::Result plain = run_cuda(example(), inputs, {});
  const std::vector<double> accumulator = suite::random_like(plain.types[o], seed() + 5);
  suite::Result sum = run_cuda(example(), inputs, {.accumulate = true}, accumulator);
  for (std::size_t i = 0; i < sum.values[o].size(); ++i) {
    sum.values[o][i] -= accumulator[i];
  }
  const double largest = std::max(suite::largest_of(plain.values[o]), 1e-3);
  expect_fine(suite::compare(example(), inputs, sum, plain.values, 1 + 1 / largest));
}

// An op without either would pass the tests above, which leave it out, and fail the first program that has
// it. Needs no device.
TEST(CudaRegistry, EveryOpHasAKernelOrAReference) {
  ir::Registry registry;
  register_all_ops(registry);
  for (const ir::RegistryEntry& entry : registry.entries()) {
    const std::vector<OpCase> cases = entry.cases(DType::kF32);
    EXPECT_FALSE(cases.empty()) << entry.name;
    for (const OpCase& example : cases) {
      EXPECT_TRUE(example.op->has_cuda_kernel() ||
                  !suite::make_program(example, suite::Body::kReference)->outputs.empty())
          << ir::op_text(*example.op) << " [" << example.label << "]";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, CudaSuite, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace wych::ops
