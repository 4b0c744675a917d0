#include "exec/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace wych::exec {

void Profiler::add(const plan::Program& program, std::size_t instruction, double seconds) {
  const plan::Instruction& executed = program.instructions[instruction];
  std::vector<ir::TensorType> inputs;
  std::vector<ir::TensorType> outputs;
  for (const plan::Slot& slot : executed.inputs) {
    inputs.push_back(slot.type);
  }
  for (const plan::Slot& slot : executed.outputs) {
    outputs.push_back(slot.type);
  }
  if (traces_) {
    add_event(program, instruction, seconds);
  }
  const ir::Cost cost = executed.op->cost(inputs, outputs);
  OpTime& time = times_[std::string(executed.op->name())];
  time.seconds += seconds;
  ++time.calls;
  time.flops += cost.flops;
  time.bytes += cost.bytes_read + cost.bytes_written;
}

std::string Profiler::table(const plan::Target& target) const {
  std::vector<std::pair<std::string, OpTime>> rows(times_.begin(), times_.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  double total = 0;
  for (const auto& [name, time] : rows) {
    total += time.seconds;
  }
  std::string text = fmt::format("{:<24} {:>8} {:>10} {:>7} {:>9} {:>8} {:>7}\n", "op", "calls", "ms",
                                 "share", "GFLOP/s", "GB/s", "floor");
  for (const auto& [name, time] : rows) {
    const double floor = std::max(time.flops / target.flops_per_second, time.bytes / target.bytes_per_second);
    text += fmt::format("{:<24} {:>8} {:>10.2f} {:>6.1f}% {:>9.1f} {:>8.1f} {:>6.0f}%\n", name, time.calls,
                        1e3 * time.seconds, 100 * time.seconds / total, 1e-9 * time.flops / time.seconds,
                        1e-9 * time.bytes / time.seconds, 100 * floor / time.seconds);
  }
  return text + fmt::format("{:<24} {:>8} {:>10.2f}\n", "total", "", 1e3 * total);
}

void Profiler::add_event(const plan::Program& program, std::size_t instruction, double seconds) {
  const plan::Instruction& executed = program.instructions[instruction];
  const ir::Node& node = program.graph.node(executed.node);
  // Names of ops, regions and programs are identifiers: nothing in them needs escaping.
  events_ += fmt::format(
      R"({}{{"name":"{}","cat":"{}","ph":"X","pid":"wych","tid":"{}","ts":{:.3f},"dur":{:.3f},)"
      R"("args":{{"region":"{}","microbatch":{},"output":"{}"}}}})",
      events_.empty() ? "\n" : ",\n", executed.op->name(), ir::phase_name(node.phase), program.name,
      microseconds_, 1e6 * seconds, program.graph.regions[static_cast<std::size_t>(node.region)],
      node.microbatch, executed.outputs.empty() ? "" : executed.outputs.front().type.text());
  microseconds_ += 1e6 * seconds;
}

std::string Profiler::chrome_trace() const {
  return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[" + events_ + "\n]}\n";
}

}  // namespace wych::exec
