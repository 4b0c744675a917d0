#include "exec/cuda_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "device/cuda_attention.h"
#include "ir/interpret.h"
#include "ir/print.h"

namespace wych::exec {

Expected<std::unique_ptr<CudaExecutor>> CudaExecutor::create(const plan::Layout& layout,
                                                             std::unique_ptr<device::CudaDevice> device,
                                                             const CudaOptions& options) {
  std::unique_ptr<CudaExecutor> executor(new CudaExecutor(std::move(device), options));
  for (int arena = 0; arena < ir::kNumCategories; ++arena) {
    const auto category = static_cast<ir::Category>(arena);
    WYCH_TRY(device::CudaArena memory,
             device::CudaArena::create(*executor->device_, std::string(ir::category_name(category)),
                                       layout.bytes(category)));
    executor->arenas_.push_back(std::move(memory));
  }
  WYCH_TRY(executor->io_, device::PinnedMemory::create(layout.bytes(ir::Category::kIo)));
  executor->device_->synchronize();
  return executor;
}

std::byte* CudaExecutor::address(const plan::Slot& slot) const {
  const device::CudaArena& arena = arenas_[static_cast<std::size_t>(slot.arena)];
  WYCH_CHECK(slot.offset + slot.type.bytes() <= arena.bytes(), "slot {} at {} is outside arena {}",
             slot.type.text(), slot.offset, arena.name());
  return arena.data() + slot.offset;
}

std::byte* CudaExecutor::host(const plan::Slot& slot) {
  if (slot.arena == ir::Category::kIo) {
    WYCH_CHECK(slot.offset + slot.type.bytes() <= io_.bytes(), "slot {} is outside io", slot.type.text());
    return io_.data() + slot.offset;
  }
  const auto twin = outside_io_.find(address(slot));
  WYCH_CHECK(twin != outside_io_.end(), "slot {} of {} is neither an input nor an output", slot.type.text(),
             ir::category_name(slot.arena));
  return twin->second.data();
}

// Neighbours in io are copied as one piece; the gaps between them are alignment.
void CudaExecutor::place_twins(const std::vector<plan::Binding>& bindings, std::vector<Twin>& twins) {
  Twin io;
  for (const plan::Binding& binding : bindings) {
    const plan::Slot& slot = binding.slot;
    std::byte* device = address(slot);
    const i64 bytes = slot.type.bytes();
    if (slot.arena != ir::Category::kIo) {
      device::PinnedMemory& memory = outside_io_[device];
      if (memory.bytes() < bytes) {
        memory = device::PinnedMemory::create(bytes).value();
      }
      twins.push_back({device, memory.data(), bytes});
    } else if (io.bytes == 0) {
      io = {device, host(slot), bytes};
    } else {
      std::byte* end = std::max(io.device + io.bytes, device + bytes);
      io.host = std::min(io.host, host(slot));
      io.device = std::min(io.device, device);
      io.bytes = end - io.device;
    }
  }
  if (io.bytes > 0) {
    twins.push_back(io);
  }
}

void CudaExecutor::read(const plan::Slot& slot, std::span<std::byte> to) {
  WYCH_CHECK(static_cast<i64>(to.size()) == slot.type.bytes(), "{} bytes for {}", to.size(),
             slot.type.text());
  device_->copy_to_host(to.data(), address(slot), slot.type.bytes());
  device_->synchronize();
}

void CudaExecutor::write(const plan::Slot& slot, std::span<const std::byte> from) {
  WYCH_CHECK(static_cast<i64>(from.size()) == slot.type.bytes(), "{} bytes for {}", from.size(),
             slot.type.text());
  device_->copy_to_device(address(slot), from.data(), slot.type.bytes());
  device_->synchronize();  // `from` is the caller's again
}

int CudaExecutor::load(const plan::Program& program) {
  LoadedProgram loaded;
  loaded.program = &program;
  const auto view = [&](const plan::Slot& slot) { return ir::View{address(slot), &slot.type}; };
  for (const plan::Instruction& instruction : program.instructions) {
    Operands operands;
    for (const plan::Slot& slot : instruction.inputs) {
      operands.inputs.push_back(view(slot));
    }
    for (const plan::Slot& slot : instruction.outputs) {
      operands.outputs.push_back(view(slot));
    }
    operands.workspace = address(instruction.workspace);
    loaded.operands.push_back(std::move(operands));
  }
  place_twins(program.inputs, loaded.inputs);
  place_twins(program.outputs, loaded.outputs);
  prepare(loaded);
  if (!options_.eager) {
    loaded.graph = device::CudaGraph::capture(*device_, [&] { queue_all(loaded); });
  }
  loaded_.push_back(std::move(loaded));
  return static_cast<int>(loaded_.size()) - 1;
}

void CudaExecutor::fill_with_nan(const std::vector<plan::Slot>& slots) {
  for (const plan::Slot& slot : slots) {
    if (slot.type.bytes() > 0) {
      device_->fill(address(slot), 0xff, slot.type.bytes());
    }
  }
}

ir::CudaContext CudaExecutor::context(const LoadedProgram& loaded, std::size_t index) {
  const Operands& operands = loaded.operands[index];
  return {.inputs = operands.inputs,
          .outputs = operands.outputs,
          .accumulate = loaded.program->instructions[index].accumulate,
          .workspace = operands.workspace,
          .stream = device_->stream(),
          .target = device_->target(),
          .matmul = &device_->matmul(),
          .attention = options_.cudnn ? &device_->attention() : nullptr};
}

void CudaExecutor::prepare(const LoadedProgram& loaded) {
  for (std::size_t i = 0; i < loaded.program->instructions.size(); ++i) {
    loaded.program->instructions[i].op->prepare_cuda(context(loaded, i));
  }
  for (const std::string& note : device_->attention().take_notes()) {
    fmt::print(stderr, "{}\n", note);
  }
}

void CudaExecutor::queue(const LoadedProgram& loaded, std::size_t index) {
  const plan::Instruction& instruction = loaded.program->instructions[index];
  if (options_.poison) {
    fill_with_nan(instruction.fresh);
    fill_with_nan({instruction.workspace});
  }
  instruction.op->launch_cuda(context(loaded, index));
  if (options_.poison) {
    fill_with_nan(instruction.released);
  }
}

void CudaExecutor::queue_inputs(const LoadedProgram& loaded) {
  for (const Twin& twin : loaded.inputs) {
    device_->copy_to_device(twin.device, twin.host, twin.bytes);
  }
}

void CudaExecutor::queue_outputs(const LoadedProgram& loaded) {
  for (const Twin& twin : loaded.outputs) {
    device_->copy_to_host(twin.host, twin.device, twin.bytes);
  }
}

// The copies are part of the program: a step is one launch.
void CudaExecutor::queue_all(const LoadedProgram& loaded) {
  queue_inputs(loaded);
  for (std::size_t i = 0; i < loaded.program->instructions.size(); ++i) {
    queue(loaded, i);
  }
  queue_outputs(loaded);
}

void CudaExecutor::start(int program, Profiler* profiler) {
  const LoadedProgram& loaded = loaded_[static_cast<std::size_t>(program)];
  if (options_.eager || profiler != nullptr) {
    run_each(loaded, profiler);
  } else {
    loaded.graph.launch(*device_);
  }
}

void CudaExecutor::run_each(const LoadedProgram& loaded, Profiler* profiler) {
  queue_inputs(loaded);
  device::CudaTimer timer;
  for (std::size_t i = 0; i < loaded.program->instructions.size(); ++i) {
    timer.start(*device_);
    queue(loaded, i);
    timer.stop(*device_);
    if (profiler != nullptr) {
      profiler->add(*loaded.program, i, timer.seconds());
    }
    if (options_.eager) {
      check_finite(loaded, i);
    }
  }
  queue_outputs(loaded);
}

// Rows that an op leaves undefined may hold anything; so only a value that was finite in every input counts.
void CudaExecutor::check_finite(const LoadedProgram& loaded, std::size_t index) {
  device_->synchronize();
  const auto has_non_finite = [&](const ir::View& view) {
    if (!is_float(view.type->dtype)) {
      return false;
    }
    std::vector<std::byte> bytes(static_cast<std::size_t>(view.type->bytes()));
    device_->copy_to_host(bytes.data(), view.data, view.type->bytes());
    device_->synchronize();
    for (i64 i = 0; i < view.elements(); ++i) {
      if (!std::isfinite(ir::load_element(bytes.data(), view.type->dtype, i))) {
        return true;
      }
    }
    return false;
  };
  const Operands& operands = loaded.operands[index];
  const bool made_here = std::any_of(operands.outputs.begin(), operands.outputs.end(), has_non_finite) &&
                         std::none_of(operands.inputs.begin(), operands.inputs.end(), has_non_finite);
  if (made_here) {
    const plan::Instruction& instruction = loaded.program->instructions[index];
    const ir::Graph& graph = loaded.program->graph;
    const ir::Node& node = graph.node(instruction.node);
    fmt::print(stderr, "not finite: program {}, instruction {}, {} {}\n", loaded.program->name, index,
               graph.regions[static_cast<std::size_t>(node.region)], ir::op_text(*instruction.op));
  }
}

}  // namespace wych::exec
