// The wych command: parse, run, report. An error goes to standard error and its kind is the exit code.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <new>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/terminal.h"

namespace wych::cli {
namespace {

// A standard stream that the caller closed is opened so that using it fails. Otherwise the next file opened,
// a checkpoint for one, would get its number, and whatever is printed.
void open_closed_streams() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) == -1 && errno == EBADF) {
      const int flags = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY;
      (void)::open("/dev/null", flags);  // takes the lowest free number: this one
    }
  }
}

void flatten(const Error& error, std::vector<const Error*>& errors) {
  errors.push_back(&error);
  for (const Error& next : error.more) {
    flatten(next, errors);
  }
}

// The first ones in full: a folder of another model has a fault in each of its thousands of tensors.
void print_errors(const Error& error) {
  constexpr std::size_t kMost = 20;
  std::vector<const Error*> errors;
  flatten(error, errors);
  for (std::size_t i = 0; i < std::min(errors.size(), kMost); ++i) {
    const Error& one = *errors[i];
    fmt::print(stderr, "error: {}{}{}\n", one.where, one.where.empty() ? "" : ": ", one.what);
    if (!one.hint.empty()) {
      fmt::print(stderr, "  hint: {}\n", one.hint);
    }
  }
  if (errors.size() > kMost) {
    fmt::print(stderr, "error: {} more\n", errors.size() - kMost);
  }
}

// The product is compiled for x86-64-v3 (docs/layers.md); elsewhere it would die without a word.
Expected<void> check_processor() {
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
      __builtin_cpu_supports("bmi2") != 0) {
    return {};
  }
  return Error{.kind = ErrorKind::kInternal,
               .where = "processor",
               .what = "lacks AVX2, FMA or BMI2 (x86-64-v3)",
               .hint = "wych needs an x86-64 processor of 2013 or later",
               .more = {}};
}

Expected<int> run_command_line(int argc, const char* const* argv) {
  WYCH_TRY_VOID(check_processor());
  WYCH_TRY(const auto parsed, parse_command_line(argc, argv));
  if (const Answer* answer = std::get_if<Answer>(&parsed)) {
    fmt::print("{}", answer->text);
    WYCH_TRY_VOID(flush_standard_output());
    return 0;
  }
  const Command& command = std::get<Command>(parsed);
  WYCH_TRY(const int code, std::visit([](const auto& options) { return run(options); }, command));
  // A training run's result is its folder, whatever became of what it showed.
  if (!std::holds_alternative<TrainOptions>(command)) {
    WYCH_TRY_VOID(flush_standard_output());
  }
  return code;
}

Error unexpected(ErrorKind kind, const char* what, const char* hint) {
  return {.kind = kind, .where = "", .what = what, .hint = hint, .more = {}};
}

// Nothing of ours throws; the libraries below us may.
Expected<int> run_caught(int argc, const char* const* argv) {
  try {
    return run_command_line(argc, argv);
  } catch (const std::bad_alloc&) {
    return unexpected(ErrorKind::kMemory, "out of memory", "`wych plan` shows what a run needs");
  } catch (const std::system_error& exception) {  // fmt's, if it cannot print
    if (std::ferror(stdout) != 0) {
      return file_error(ErrorKind::kData, "standard output", "write", exception.code().value());
    }
    return unexpected(ErrorKind::kInternal, exception.what(), "");
  } catch (const std::exception& exception) {
    return unexpected(ErrorKind::kInternal, exception.what(), "");
  }
}

}  // namespace
}  // namespace wych::cli

int main(int argc, char** argv) {
  wych::cli::open_closed_streams();
  const wych::Expected<int> code = wych::cli::run_caught(argc, argv);
  if (code) {
    return *code;
  }
  std::fflush(stdout);
  wych::cli::print_errors(code.error());
  return static_cast<int>(code.error().kind);
}
