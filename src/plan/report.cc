// Everything printed here is read from the Layout and the Programs that will run: there is no second model of
// memory that could disagree.
#include "plan/report.h"

#include <fmt/format.h>

#include <algorithm>

namespace wych::plan {
namespace {

using ir::Category;

constexpr std::size_t kShownAtPeak = 4;

const ArenaPlan& arena_of(const Program& program, Category category) {
  return program.arenas[static_cast<std::size_t>(category)];
}

bool shares_memory(Category category) {
  return category == Category::kStash || category == Category::kScratch;
}

std::vector<ir::TensorType> types_of(const std::vector<Slot>& slots) {
  std::vector<ir::TensorType> types;
  for (const Slot& slot : slots) {
    types.push_back(slot.type);
  }
  return types;
}

std::string category_row(const Layout& layout, const std::vector<const Program*>& programs,
                         Category category) {
  std::string row =
      fmt::format("{:<10}{:>12}", ir::category_name(category), bytes_text(layout.bytes(category)));
  if (shares_memory(category)) {
    i64 lower_bound = 0;
    for (const Program* program : programs) {
      lower_bound = std::max(lower_bound, arena_of(*program, category).lower_bound);
    }
    row += fmt::format("{:>16}", bytes_text(lower_bound));
  }
  return row + "\n";
}

}  // namespace

std::string bytes_text(i64 bytes) {
  if (bytes < 1024) {
    return fmt::format("{} B", bytes);
  }
  std::string_view units = "KMGTPE";
  double scaled = static_cast<double>(bytes) / 1024;
  while (scaled >= 999.5 && units.size() > 1) {
    scaled /= 1024;
    units.remove_prefix(1);
  }
  const int decimals = scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}iB", scaled, decimals, units.front());
}

std::string memory_table(const Layout& layout, const std::vector<const Program*>& programs) {
  std::string table = fmt::format("{:<10}{:>12}{:>16}\n", "", "bytes", "lower bound");
  for (int index = 0; index < ir::kNumCategories; ++index) {
    const auto category = static_cast<Category>(index);
    if (layout.bytes(category) > 0) {
      table += category_row(layout, programs, category);
    }
  }
  if (layout.overhead_bytes() > 0) {
    table += fmt::format("{:<10}{:>12}\n", "context", bytes_text(layout.overhead_bytes()));
  }
  table += fmt::format("{:<10}{:>12}\n", "total", bytes_text(layout.total_bytes()));
  const auto fullest =
      std::max_element(programs.begin(), programs.end(), [](const Program* a, const Program* b) {
        return arena_of(*a, Category::kScratch).bytes < arena_of(*b, Category::kScratch).bytes;
      });
  if (fullest == programs.end() || (*fullest)->peak.empty()) {
    return table;
  }
  table += fmt::format("scratch is fullest in {}, largest buffers there:\n", (*fullest)->name);
  const std::vector<PeakBuffer>& peak = (*fullest)->peak;
  for (std::size_t i = 0; i < std::min(peak.size(), kShownAtPeak); ++i) {
    table += fmt::format("{:>22}  {}\n", bytes_text(peak[i].bytes), peak[i].what);
  }
  return table;
}

double estimate_seconds(const Program& program, const Target& target) {
  double seconds = 0;
  for (const Instruction& instruction : program.instructions) {
    const ir::Cost cost = instruction.op->cost(types_of(instruction.inputs), types_of(instruction.outputs));
    seconds += std::max(cost.flops / target.flops_per_second,
                        (cost.bytes_read + cost.bytes_written) / target.bytes_per_second);
  }
  return seconds;
}

}  // namespace wych::plan
