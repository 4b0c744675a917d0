#include "plan/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/print.h"

namespace wych::plan {
namespace {

const Slot& find_binding(const std::vector<Binding>& bindings, std::string_view name,
                         std::string_view program) {
  for (const Binding& binding : bindings) {
    if (binding.name == name) {
      return binding.slot;
    }
  }
  check_failed(__FILE__, __LINE__, "binding exists", fmt::format("program {} has no '{}'", program, name));
}

std::string slot_text(const Slot& slot) {
  return fmt::format("{}+{}", ir::category_name(slot.arena), slot.offset);
}

}  // namespace

const Slot& Program::input(std::string_view input_name) const {
  return find_binding(inputs, input_name, name);
}

const Slot& Program::output(std::string_view output_name) const {
  return find_binding(outputs, output_name, name);
}

const Slot& Layout::place(const ir::Value& value) {
  if (const auto found = slots_.find(value.path); found != slots_.end()) {
    WYCH_CHECK(found->second.type == value.type && found->second.arena == value.category,
               "{} is {} in one program and {} in another", value.path, found->second.type.text(),
               value.type.text());
    return found->second;
  }
  i64& bytes = bytes_[static_cast<std::size_t>(value.category)];
  const Slot slot{value.category, bytes, value.type};
  bytes += round_up(value.type.bytes(), kAlignment);
  return slots_.emplace(value.path, slot).first->second;
}

const Slot* Layout::find(std::string_view path) const {
  const auto found = slots_.find(path);
  return found == slots_.end() ? nullptr : &found->second;
}

void Layout::reserve(const Program& program) {
  for (const ir::Category arena : {ir::Category::kStash, ir::Category::kScratch}) {
    i64& bytes = bytes_[static_cast<std::size_t>(arena)];
    bytes = std::max(bytes, program.arenas[static_cast<std::size_t>(arena)].bytes);
  }
  bytes_[static_cast<std::size_t>(ir::Category::kIo)] +=
      program.arenas[static_cast<std::size_t>(ir::Category::kIo)].bytes;
}

i64 Layout::total_bytes() const {
  i64 total = overhead_bytes_;
  for (const i64 bytes : bytes_) {
    total += bytes;
  }
  return total;
}

std::string program_text(const Program& program) {
  std::string text;
  for (const Instruction& instruction : program.instructions) {
    text += ir::node_text(program.graph, instruction.node) + "  @";
    for (const Slot& slot : instruction.outputs) {
      text += " " + slot_text(slot);
    }
    if (instruction.workspace.type.bytes() > 0) {
      text += " workspace " + slot_text(instruction.workspace);
    }
    text += "\n";
  }
  return text;
}

}  // namespace wych::plan
