// Profiler: time per op, beside what its cost() says.
#pragma once

#include <map>
#include <string>

#include "plan/program.h"
#include "plan/report.h"

namespace wych::exec {

// All executions of ops of one name in one phase.
struct OpTime {
  double seconds = 0;
  i64 calls = 0;
  double flops = 0;  // by cost(), summed over calls
  double bytes = 0;  // read + written, by cost()
};

class Profiler {
 public:
  // With `trace`, every execution is kept for chrome_trace().
  explicit Profiler(bool trace = false) : traces_(trace) {}

  // Adds one execution of an instruction of `program`.
  void add(const plan::Program& program, std::size_t instruction, double seconds);
  // By "op" name.
  [[nodiscard]] const std::map<std::string, OpTime>& times() const { return times_; }
  // A table sorted by time: op, calls, ms, share of the total, GFLOP/s, GB/s, and the share of its time that
  // the op's floor on `target` is: max(flops / peak, bytes / bandwidth). Above 100 % where data stays in
  // caches that `target` does not know.
  [[nodiscard]] std::string table(const plan::Target& target) const;

  // Every execution in order, end to end, as Chrome's trace events (chrome://tracing, Perfetto): what was
  // measured one by one, so no gaps and no overlap. A row a program; an event says its region and phase.
  [[nodiscard]] std::string chrome_trace() const;

 private:
  void add_event(const plan::Program& program, std::size_t instruction, double seconds);

  std::map<std::string, OpTime> times_;
  bool traces_;
  std::string events_;  // JSON objects
  double microseconds_ = 0;
};

}  // namespace wych::exec
