// The wych command: parse, run, report. An error goes to standard error and its kind is the exit code.
#include <fmt/format.h>

#include <exception>
#include <new>

#include "cli/command_line.h"
#include "cli/commands.h"

namespace wych::cli {
namespace {

void print_error(const Error& error) {
  fmt::print(stderr, "error: {}{}{}\n", error.where, error.where.empty() ? "" : ": ", error.what);
  if (!error.hint.empty()) {
    fmt::print(stderr, "  hint: {}\n", error.hint);
  }
  for (const Error& next : error.more) {
    print_error(next);
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
    return 0;
  }
  return std::visit([](const auto& options) { return run(options); }, std::get<Command>(parsed));
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
  } catch (const std::exception& exception) {
    return unexpected(ErrorKind::kInternal, exception.what(), "");
  }
}

}  // namespace
}  // namespace wych::cli

int main(int argc, char** argv) {
  const wych::Expected<int> code = wych::cli::run_caught(argc, argv);
  if (code) {
    return *code;
  }
  std::fflush(stdout);
  wych::cli::print_error(code.error());
  return static_cast<int>(code.error().kind);
}
