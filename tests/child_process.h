// For tests: a program run as a child, its output read piece by piece. The pipe behind its standard output is
// one page: a child that prints every step waits for its reader, so a test can act at a known step without
// sleeping.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace wych {

struct ChildOptions {
  std::vector<std::string> environment;  // "NAME=value"; nothing is inherited but PATH
  bool on_terminal = false;              // standard streams are a pseudo-terminal of 100 x 40
  int limit_seconds = 300;               // a child that takes longer is killed: nothing may hang
};

class ChildProcess {
 public:
  // Starts `command` (program, arguments). CHECKs that it could be started.
  explicit ChildProcess(const std::vector<std::string>& command, const ChildOptions& options = {});
  ~ChildProcess();  // kills it if it still runs
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Reads until standard output has had `text`; false if it ended without.
  bool read_until(std::string_view text);
  void send(int signal) const;
  // Waits until no thread of the child has still to take `signal`, sent before.
  void wait_until_taken(int signal) const;
  // Reads to the end; the exit code, or 128 + the signal that ended it.
  int wait();

  // What was read so far; on a terminal standard error is in there too.
  [[nodiscard]] const std::string& output() const { return output_; }
  // Standard error, after wait().
  [[nodiscard]] const std::string& errors() const { return errors_; }

 private:
  bool read_some();

  std::chrono::steady_clock::time_point deadline_;
  int process_ = -1;
  int output_descriptor_ = -1;
  int errors_descriptor_ = -1;  // of an unlinked file
  std::string output_;
  std::string errors_;
};

}  // namespace wych
