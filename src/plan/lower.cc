#include "plan/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ir/verify.h"
#include "plan/buffers.h"
#include "plan/pack.h"

namespace wych::plan {
namespace {

using ir::Category;
using ir::NodeId;
using ir::ValueId;

constexpr std::size_t index_of(Category category) { return static_cast<std::size_t>(category); }

// Where a transient buffer lives.
enum class Level : u8 {
  kAction,      // scratch of one action
  kMicrobatch,  // stash block of one microbatch
  kProgram,     // bottom of scratch, for the whole program
};

class Lowering {
 public:
  Lowering(Program& program, Layout& layout, const std::optional<CudaTarget>& cuda)
      : program_(program),
        graph_(program.graph),
        layout_(layout),
        cuda_(cuda),
        buffers_(program.graph),
        slots_(buffers_.all().size()) {}

  void run() {
    find_actions();
    place_fixed();
    place_program_level();
    place_stash();
    place_actions();
    emit();
  }

 private:
  // Consecutive nodes of one microbatch and direction are one action; nodes of no microbatch likewise.
  void find_actions() {
    const auto num_nodes = graph_.nodes.size();
    action_of_.resize(num_nodes);
    for (std::size_t id = 0; id < num_nodes; ++id) {
      const ir::Node& node = graph_.nodes[id];
      const bool forward = node.phase == ir::Phase::kForward;
      const bool starts =
          id == 0 || node.microbatch != graph_.nodes[id - 1].microbatch ||
          (node.microbatch >= 0 && forward != (graph_.nodes[id - 1].phase == ir::Phase::kForward));
      if (starts) {
        actions_.push_back({static_cast<NodeId>(id), node.microbatch});
      }
      action_of_[id] = static_cast<i32>(actions_.size()) - 1;
    }
  }

  void place_fixed() {
    i64& io = program_.arenas[index_of(Category::kIo)].bytes;
    const i64 io_base = layout_.bytes(Category::kIo);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const Buffer& buffer = buffers_.all()[i];
      if (buffer.persistent != ir::kNoValue) {
        slots_[i] = layout_.place(graph_.value(buffer.persistent));
      } else if (buffer.io) {
        slots_[i] = {Category::kIo, io_base + io, {}};
        io += round_up(buffer.bytes, kAlignment);
      }
    }
    program_.arenas[index_of(Category::kIo)].lower_bound = io;
  }

  [[nodiscard]] bool is_transient(const Buffer& buffer) const {
    return buffer.persistent == ir::kNoValue && !buffer.io;
  }

  [[nodiscard]] Level level(const Buffer& buffer) const {
    const i32 first = action_of_[static_cast<std::size_t>(buffer.first)];
    const i32 last = action_of_[static_cast<std::size_t>(buffer.last)];
    if (first == last) {
      return Level::kAction;
    }
    const i32 microbatch = actions_[static_cast<std::size_t>(first)].microbatch;
    return microbatch >= 0 && microbatch == actions_[static_cast<std::size_t>(last)].microbatch
               ? Level::kMicrobatch
               : Level::kProgram;
  }

  // Packs the buffers for which `selected` holds into `arena` from `base`; returns the bytes.
  template <class Selected, class Step>
  Packing place(Category arena, i64 base, const Selected& selected, const Step& step) {
    std::vector<Interval> intervals;
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const Buffer& buffer = buffers_.all()[i];
      if (is_transient(buffer) && selected(buffer)) {
        intervals.push_back({buffer.bytes, step(buffer.first), step(buffer.last)});
        indices.push_back(i);
      }
    }
    Packing packing = pack(intervals, kAlignment);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      slots_[indices[i]] = {arena, base + packing.offsets[i], {}};
    }
    return packing;
  }

  void place_program_level() {
    const Packing packing = place(
        Category::kScratch, 0, [&](const Buffer& buffer) { return level(buffer) == Level::kProgram; },
        [](NodeId id) { return id; });
    scratch_base_ = packing.bytes;
    program_.arenas[index_of(Category::kScratch)] = {packing.bytes, packing.lower_bound};
  }

  // Every microbatch in flight owns a block; a block is reused when its backward is over. Within a block,
  // time is counted in the microbatch's own nodes, so that all microbatches get the same offsets.
  void place_stash() {
    std::vector<i32> local_step(graph_.nodes.size(), 0);
    std::vector<i32> next_step;
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const i32 microbatch = graph_.nodes[id].microbatch;
      if (microbatch >= 0) {
        next_step.resize(std::max(next_step.size(), static_cast<std::size_t>(microbatch) + 1), 0);
        local_step[id] = next_step[static_cast<std::size_t>(microbatch)]++;
      }
    }
    const std::vector<i32> slot_of = assign_stash_slots(next_step.size());
    std::vector<Packing> packings;
    i64 block = 0;
    for (const bool measure : {true, false}) {  // the block size is known after all were packed once
      for (std::size_t microbatch = 0; microbatch < next_step.size(); ++microbatch) {
        const Packing packing = place(
            Category::kStash, slot_of[microbatch] * block,
            [&](const Buffer& buffer) {
              return level(buffer) == Level::kMicrobatch &&
                     graph_.nodes[static_cast<std::size_t>(buffer.first)].microbatch ==
                         static_cast<i32>(microbatch);
            },
            [&](NodeId id) { return local_step[static_cast<std::size_t>(id)]; });
        if (measure) {
          block = std::max(block, packing.bytes);
          stash_bound_ = std::max(stash_bound_, packing.lower_bound);
        }
      }
    }
    program_.arenas[index_of(Category::kStash)] = {block * program_.stash_slots,
                                                   stash_bound_ * program_.stash_slots};
  }

  std::vector<i32> assign_stash_slots(std::size_t num_microbatches) {
    std::vector<NodeId> last(num_microbatches, 0);
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (graph_.nodes[id].microbatch >= 0) {
        last[static_cast<std::size_t>(graph_.nodes[id].microbatch)] = static_cast<NodeId>(id);
      }
    }
    std::vector<i32> slot_of(num_microbatches, -1);
    std::set<i32> free;
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const i32 microbatch = graph_.nodes[id].microbatch;
      if (microbatch < 0) {
        continue;
      }
      i32& slot = slot_of[static_cast<std::size_t>(microbatch)];
      if (slot < 0) {
        if (free.empty()) {
          free.insert(program_.stash_slots++);
        }
        slot = *free.begin();
        free.erase(free.begin());
      }
      if (last[static_cast<std::size_t>(microbatch)] == static_cast<NodeId>(id)) {
        free.insert(slot);
      }
    }
    return slot_of;
  }

  // Scratch of every action, workspaces included.
  void place_actions() {
    workspaces_.assign(graph_.nodes.size(), Instruction{}.workspace);
    std::vector<std::vector<std::size_t>> buffers_of(actions_.size());
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const Buffer& buffer = buffers_.all()[i];
      if (is_transient(buffer) && level(buffer) == Level::kAction) {
        buffers_of[static_cast<std::size_t>(action_of_[static_cast<std::size_t>(buffer.first)])].push_back(i);
      }
    }
    ArenaPlan& scratch = program_.arenas[index_of(Category::kScratch)];
    const i64 base_bound = scratch.lower_bound;
    for (std::size_t action = 0; action < actions_.size(); ++action) {
      place_action(action, buffers_of[action], base_bound);
    }
  }

  void place_action(std::size_t action, const std::vector<std::size_t>& indices, i64 base_bound) {
    const NodeId end =
        action + 1 < actions_.size() ? actions_[action + 1].first : static_cast<NodeId>(graph_.nodes.size());
    std::vector<Interval> intervals;
    for (const std::size_t i : indices) {
      intervals.push_back({buffers_.all()[i].bytes, buffers_.all()[i].first, buffers_.all()[i].last});
    }
    std::vector<NodeId> workspace_nodes;
    for (NodeId id = actions_[action].first; id < end; ++id) {
      if (const i64 bytes = workspace_bytes(id); bytes > 0) {
        intervals.push_back({bytes, id, id});
        workspace_nodes.push_back(id);
      }
    }
    const Packing packing = pack(intervals, kAlignment);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      slots_[indices[i]] = {Category::kScratch, scratch_base_ + packing.offsets[i], {}};
    }
    for (std::size_t i = 0; i < workspace_nodes.size(); ++i) {
      const std::size_t interval = indices.size() + i;
      workspaces_[static_cast<std::size_t>(workspace_nodes[i])] = {Category::kScratch,
                                                                   scratch_base_ + packing.offsets[interval],
                                                                   {DType::kU8, {intervals[interval].bytes}}};
    }
    ArenaPlan& scratch = program_.arenas[index_of(Category::kScratch)];
    if (scratch_base_ + packing.bytes > scratch.bytes) {
      scratch.bytes = scratch_base_ + packing.bytes;
      record_peak(indices, intervals, workspace_nodes, packing.peak_step);
    }
    scratch.lower_bound = std::max(scratch.lower_bound, base_bound + packing.lower_bound);
  }

  [[nodiscard]] i64 workspace_bytes(NodeId id) const {
    const ir::Node& node = graph_.node(id);
    std::vector<ir::TensorType> inputs;
    std::vector<ir::TensorType> outputs;
    for (std::size_t i = 0; i + (node.accumulate ? 1 : 0) < node.inputs.size(); ++i) {
      inputs.push_back(graph_.type(node.inputs[i]));
    }
    for (const ValueId output : node.outputs) {
      outputs.push_back(graph_.type(output));
    }
    return cuda_ ? node.op->cuda_workspace(inputs, outputs, *cuda_) : node.op->workspace(inputs, outputs);
  }

  void record_peak(const std::vector<std::size_t>& indices, const std::vector<Interval>& intervals,
                   const std::vector<NodeId>& workspace_nodes, i32 step) {
    constexpr std::size_t kShown = 8;
    program_.peak.clear();
    for (std::size_t i = 0; i < intervals.size(); ++i) {
      if (intervals[i].begin > step || intervals[i].end < step) {
        continue;
      }
      const bool is_buffer = i < indices.size();
      const ValueId value = is_buffer ? buffers_.all()[indices[i]].values.front() : ir::kNoValue;
      const ir::Node& node =
          graph_.node(is_buffer ? graph_.value(value).producer : workspace_nodes[i - indices.size()]);
      program_.peak.push_back(
          {fmt::format("{} {} {}", graph_.regions[static_cast<std::size_t>(node.region)], node.op->name(),
                       is_buffer ? graph_.type(value).text() : "workspace"),
           intervals[i].bytes});
    }
    std::stable_sort(program_.peak.begin(), program_.peak.end(),
                     [](const PeakBuffer& a, const PeakBuffer& b) { return a.bytes > b.bytes; });
    program_.peak.resize(std::min(program_.peak.size(), kShown));
  }

  [[nodiscard]] Slot slot(ValueId id) const {
    Slot slot = slots_[buffers_.of(id)];
    slot.type = graph_.type(id);
    return slot;
  }

  void emit() {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes.size()); ++id) {
      const ir::Node& node = graph_.node(id);
      Instruction instruction{.op = node.op,
                              .inputs = {},
                              .outputs = {},
                              .accumulate = node.accumulate,
                              .workspace = workspaces_[static_cast<std::size_t>(id)],
                              .fresh = {},
                              .released = {},
                              .node = id};
      for (std::size_t i = 0; i + (node.accumulate ? 1 : 0) < node.inputs.size(); ++i) {
        instruction.inputs.push_back(slot(node.inputs[i]));
      }
      for (const ValueId output : node.outputs) {
        instruction.outputs.push_back(slot(output));
        if (buffers_.all()[buffers_.of(output)].first == id) {
          instruction.fresh.push_back(slot(output));
        }
      }
      program_.instructions.push_back(std::move(instruction));
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const Buffer& buffer = buffers_.all()[i];
      if (is_transient(buffer)) {
        Slot released = slots_[i];
        released.type = {DType::kU8, {buffer.bytes}};
        program_.instructions[static_cast<std::size_t>(buffer.last)].released.push_back(released);
      }
    }
    for (std::size_t id = 0; id < graph_.values.size(); ++id) {
      const ir::Value& value = graph_.values[id];
      if (value.producer == ir::kNoNode && value.lifetime == ir::Lifetime::kInput) {
        program_.inputs.push_back({value.path, slot(static_cast<ValueId>(id))});
      }
    }
    for (const ir::Output& output : graph_.outputs) {
      program_.outputs.push_back({output.name, slot(output.value)});
    }
  }

  struct Action {
    NodeId first;
    i32 microbatch;
  };

  Program& program_;
  const ir::Graph& graph_;
  Layout& layout_;
  const std::optional<CudaTarget>& cuda_;
  Buffers buffers_;
  std::vector<Slot> slots_;  // by buffer; the type is filled by slot()
  std::vector<Slot> workspaces_;
  std::vector<Action> actions_;
  std::vector<i32> action_of_;
  i64 scratch_base_ = 0;
  i64 stash_bound_ = 0;
};

}  // namespace

Expected<Program> lower(std::string name, ir::Graph graph, Layout& layout,
                        const std::optional<CudaTarget>& cuda) {
  WYCH_TRY_VOID(ir::verify(graph));
  Program program;
  program.name = std::move(name);
  program.graph = std::move(graph);
  Lowering(program, layout, cuda).run();
  layout.reserve(program);
  return program;
}

}  // namespace wych::plan
