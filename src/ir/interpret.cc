#include "ir/interpret.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) static_cast<void>(address)
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) static_cast<void>(address)
#endif

namespace wych::ir {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kGuard = 256;

}  // namespace

double load_element(const std::byte* data, DType dtype, i64 index) {
  const auto read = [&]<class T>(T value) {
    std::memcpy(&value, data + index * static_cast<i64>(sizeof(T)), sizeof(T));
    return value;
  };
  switch (dtype) {
    case DType::kF32:
      return static_cast<double>(read(float{}));
    case DType::kF64:
      return read(double{});
    case DType::kBF16:
      return static_cast<double>(static_cast<float>(read(bf16{})));
    case DType::kI32:
      return read(i32{});
    case DType::kI64:
      return static_cast<double>(read(i64{}));
    case DType::kU8:
      return read(u8{});
  }
  return 0;
}

void store_element(std::byte* data, DType dtype, i64 index, double value) {
  const auto write = [&]<class T>(T element) {
    std::memcpy(data + index * static_cast<i64>(sizeof(T)), &element, sizeof(T));
  };
  switch (dtype) {
    case DType::kF32:
      return write(static_cast<float>(value));
    case DType::kF64:
      return write(value);
    case DType::kBF16:
      return write(bf16(static_cast<float>(value)));
    case DType::kI32:
      return write(static_cast<i32>(std::llround(value)));
    case DType::kI64:
      return write(static_cast<i64>(std::llround(value)));
    case DType::kU8:
      return write(static_cast<u8>(std::llround(value)));
  }
}

Interpreter::Buffer::Buffer(i64 bytes, std::byte poison)
    : storage_(static_cast<std::size_t>(bytes) + kAlignment + kGuard, poison),
      bytes_(bytes),
      poison_(poison) {
  ASAN_POISON_MEMORY_REGION(data() + bytes_, kGuard);
}

std::byte* Interpreter::Buffer::data() {
  const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
  return storage_.data() + (kAlignment - address % kAlignment) % kAlignment;
}

bool Interpreter::Buffer::guard_intact() {
  const std::byte* guard = data() + bytes_;
  ASAN_UNPOISON_MEMORY_REGION(guard, kGuard);
  const bool intact = std::all_of(guard, guard + kGuard, [&](std::byte byte) { return byte == poison_; });
  ASAN_POISON_MEMORY_REGION(guard, kGuard);
  return intact;
}

Interpreter::Interpreter(const Graph& graph, ThreadPool& pool, InterpreterOptions options)
    : graph_(graph), pool_(pool), options_(options) {
  buffers_.reserve(graph.values.size());
  for (const Value& value : graph.values) {
    buffers_.emplace_back(value.type.bytes(), options_.poison);
  }
}

std::byte* Interpreter::data(ValueId id) { return buffer(id).data(); }

std::vector<double> Interpreter::read(ValueId id) {
  const TensorType& type = graph_.type(id);
  std::vector<double> values(static_cast<std::size_t>(type.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load_element(data(id), type.dtype, static_cast<i64>(i));
  }
  return values;
}

void Interpreter::write(ValueId id, const std::vector<double>& values) {
  const TensorType& type = graph_.type(id);
  WYCH_CHECK(static_cast<i64>(values.size()) == type.elements(), "{} values for {}", values.size(),
             type.text());
  for (std::size_t i = 0; i < values.size(); ++i) {
    store_element(data(id), type.dtype, static_cast<i64>(i), values[i]);
  }
}

void Interpreter::run() {
  for (const Node& node : graph_.nodes) {
    run_node(node);
  }
}

void Interpreter::run_node(const Node& node) {
  const std::size_t num_inputs = node.inputs.size() - (node.accumulate ? 1 : 0);
  const auto copy = [&](ValueId from, ValueId to) {
    std::memcpy(data(to), data(from), static_cast<std::size_t>(graph_.type(to).bytes()));
  };
  std::vector<View> inputs;
  std::vector<View> outputs;
  std::vector<TensorType> input_types;
  std::vector<TensorType> output_types;
  for (std::size_t i = 0; i < num_inputs; ++i) {
    inputs.push_back({data(node.inputs[i]), &graph_.type(node.inputs[i])});
    input_types.push_back(graph_.type(node.inputs[i]));
  }
  for (const ValueId id : node.outputs) {
    outputs.push_back({data(id), &graph_.type(id)});
    output_types.push_back(graph_.type(id));
  }
  const std::vector<Alias> aliases = node.op->aliases();
  for (std::size_t i = 0; i < aliases.size(); ++i) {
    const Alias& alias = aliases[i];
    if (alias.kind != AliasKind::kMay || static_cast<int>(i) == options_.may_alias) {
      const ValueId output = node.outputs[static_cast<std::size_t>(alias.output)];
      copy(node.inputs[static_cast<std::size_t>(alias.input)], output);
      inputs[static_cast<std::size_t>(alias.input)].data = data(output);
    }
  }
  if (node.accumulate) {
    copy(node.inputs.back(), node.outputs[static_cast<std::size_t>(node.op->accumulates())]);
  }
  const i64 workspace_bytes = node.op->workspace(input_types, output_types);
  Buffer workspace(workspace_bytes, options_.poison);
  node.op->run_cpu({.inputs = inputs,
                    .outputs = outputs,
                    .accumulate = node.accumulate,
                    .workspace = workspace.data(),
                    .pool = &pool_});
  WYCH_CHECK(workspace.guard_intact(), "{} wrote behind its workspace", node.op->name());
  for (const ValueId id : node.outputs) {
    WYCH_CHECK(buffer(id).guard_intact(), "{} wrote behind output {}", node.op->name(),
               graph_.type(id).text());
  }
  for (const ValueId id : node.inputs) {
    WYCH_CHECK(buffer(id).guard_intact(), "{} wrote behind input {}", node.op->name(),
               graph_.type(id).text());
  }
}

}  // namespace wych::ir
