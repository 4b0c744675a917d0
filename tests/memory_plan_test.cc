// The memory plan against shadow memory: every byte that an instruction reads was last written as part of the
// value it means to read, nothing that is read later is released or handed out again, and an instruction's
// outputs, inputs and workspace are in each other's way only where an alias allows it.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <map>

#include "config/load.h"
#include "train/programs.h"

namespace wych::train {
namespace {

// For each granule of each arena the value that owns it.
class ShadowMemory {
 public:
  void write(const plan::Slot& slot, ir::ValueId value) { fill(slot, value); }
  void release(const plan::Slot& slot) { fill(slot, ir::kNoValue); }
  [[nodiscard]] bool holds(const plan::Slot& slot, ir::ValueId value) const {
    const std::vector<ir::ValueId>& arena = owner_.at(slot.arena);
    for (std::size_t granule = first(slot); granule < last(slot); ++granule) {
      if (granule >= arena.size() || arena[granule] != value) {
        return false;
      }
    }
    return true;
  }

 private:
  static std::size_t first(const plan::Slot& slot) {
    return static_cast<std::size_t>(slot.offset / plan::kAlignment);
  }
  static std::size_t last(const plan::Slot& slot) {
    return first(slot) + static_cast<std::size_t>(ceil_div(slot.type.bytes(), plan::kAlignment));
  }
  void fill(const plan::Slot& slot, ir::ValueId value) {
    std::vector<ir::ValueId>& arena = owner_[slot.arena];
    arena.resize(std::max(arena.size(), last(slot)), ir::kNoValue);
    std::fill(arena.begin() + static_cast<std::ptrdiff_t>(first(slot)),
              arena.begin() + static_cast<std::ptrdiff_t>(last(slot)), value);
  }
  std::map<ir::Category, std::vector<ir::ValueId>> owner_;
};

bool overlap(const plan::Slot& a, const plan::Slot& b) {
  return a.arena == b.arena && a.offset < b.offset + b.type.bytes() && b.offset < a.offset + a.type.bytes();
}

// Nothing that the op reads or writes lies in its workspace.
void check_workspace(const plan::Instruction& instruction, const std::string& where) {
  for (const std::vector<plan::Slot>* operands : {&instruction.inputs, &instruction.outputs}) {
    for (std::size_t i = 0; i < operands->size(); ++i) {
      const plan::Slot& operand = (*operands)[i];
      ASSERT_FALSE(overlap(operand, instruction.workspace))
          << where << (operands == &instruction.inputs ? " input " : " output ") << i << " at "
          << operand.offset << " + " << operand.type.bytes() << ", workspace at "
          << instruction.workspace.offset << " + " << instruction.workspace.type.bytes();
    }
  }
}

// Checks every instruction of a program whose inputs and persistent values are all written before it.
void check(const plan::Program& program, const plan::Layout& layout) {
  ShadowMemory memory;
  const ir::Graph& graph = program.graph;
  std::map<std::string, ir::ValueId> sources;
  for (std::size_t id = 0; id < graph.values.size(); ++id) {
    if (graph.values[id].producer == ir::kNoNode) {
      sources[graph.values[id].path] = static_cast<ir::ValueId>(id);
    }
  }
  for (const plan::Binding& input : program.inputs) {
    memory.write(input.slot, sources.at(input.name));
  }
  for (const auto& [path, id] : sources) {
    if (graph.value(id).lifetime == ir::Lifetime::kPersistent) {
      memory.write(*layout.find(path), id);
    }
  }
  for (const plan::Instruction& instruction : program.instructions) {
    const ir::Node& node = graph.node(instruction.node);
    const std::string where = fmt::format("{} node {} {}", program.name, instruction.node, node.op->name());
    for (std::size_t i = 0; i < instruction.inputs.size(); ++i) {
      ASSERT_TRUE(memory.holds(instruction.inputs[i], node.inputs[i])) << where << " input " << i;
    }
    if (node.accumulate) {
      ASSERT_TRUE(memory.holds(instruction.outputs[static_cast<std::size_t>(node.op->accumulates())],
                               node.inputs.back()))
          << where << " accumulator";
    }
    if (instruction.workspace.type.bytes() > 0) {
      memory.release(instruction.workspace);
      check_workspace(instruction, where);
    }
    for (const plan::Slot& fresh : instruction.fresh) {
      memory.release(fresh);
      for (std::size_t i = 0; i < instruction.inputs.size(); ++i) {
        ASSERT_TRUE(memory.holds(instruction.inputs[i], node.inputs[i])) << where << " fresh output";
      }
    }
    // A view shares its input's bytes, so both names are good from here on: the newest is kept.
    for (std::size_t i = 0; i < instruction.outputs.size(); ++i) {
      memory.write(instruction.outputs[i], node.outputs[i]);
    }
    for (std::size_t i = 0; i < instruction.outputs.size(); ++i) {
      ASSERT_TRUE(memory.holds(instruction.outputs[i], node.outputs[i]))
          << where << " output " << i << " is overwritten by another one";
    }
    for (const plan::Slot& released : instruction.released) {
      memory.release(released);
    }
  }
  for (const ir::Output& output : graph.outputs) {
    EXPECT_TRUE(memory.holds(program.output(output.name), output.value))
        << program.name << " output " << output.name;
  }
}

TEST(MemoryPlan, NothingReadsWhatIsNotItsOwn) {
  for (const char* recompute : {"none", "selective", "block"}) {
    for (const char* microbatch : {"16", "4"}) {
      const std::vector<std::string> overrides = {std::string("--memory.recompute=") + recompute,
                                                  std::string("--data.microbatch_sequences=") + microbatch};
      const Expected<config::Loaded> loaded =
          config::load("preset:laptop", overrides, {.purpose = config::Purpose::kPlan});
      ASSERT_TRUE(loaded.has_value()) << loaded.error().text();
      const Expected<Programs> programs = build_programs(
          loaded->config,
          {.training = true, .evaluation_sequences = 4, .prefill_tokens = 16, .cache_length = 128});
      ASSERT_TRUE(programs.has_value()) << programs.error().text();
      for (const auto* program : {&programs->initialise, &programs->train, &programs->update,
                                  &programs->evaluate, &programs->prefill, &programs->decode}) {
        check(**program, programs->layout);
      }
    }
  }
}

}  // namespace
}  // namespace wych::train
