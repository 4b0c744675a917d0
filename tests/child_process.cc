#include "child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/check.h"
#include "base/types.h"

namespace wych {
namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) {
    out.push_back(text.data());
  }
  out.push_back(nullptr);
  return out;
}

int make_unlinked_file() {
  std::FILE* file = std::tmpfile();
  WYCH_CHECK(file != nullptr, "no temporary file");
  const int descriptor = ::dup(::fileno(file));
  std::fclose(file);
  return descriptor;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command, const ChildOptions& options)
    : deadline_(std::chrono::steady_clock::now() + std::chrono::seconds(options.limit_seconds)) {
  std::vector<std::string> arguments = command;
  std::vector<std::string> environment = options.environment;
  const char* path = std::getenv("PATH");
  environment.push_back(std::string("PATH=") + (path == nullptr ? "" : path));
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(environment);
  if (options.on_terminal) {
    const winsize size{.ws_row = 40, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
    process_ = ::forkpty(&output_descriptor_, nullptr, nullptr, &size);
    if (process_ == 0) {
      ::execve(argv[0], argv.data(), envp.data());
      ::_exit(127);
    }
    WYCH_CHECK(process_ > 0, "cannot start {}", command[0]);
    return;
  }
  std::array<int, 2> ends{};
  WYCH_CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0, "no pipe");
  ::fcntl(ends[0], F_SETPIPE_SZ, 4096);
  errors_descriptor_ = make_unlinked_file();
  process_ = ::fork();
  if (process_ == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(errors_descriptor_, STDERR_FILENO);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  WYCH_CHECK(process_ > 0, "cannot start {}", command[0]);
  ::close(ends[1]);
  output_descriptor_ = ends[0];
}

ChildProcess::~ChildProcess() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  ::close(output_descriptor_);
  if (errors_descriptor_ >= 0) {
    ::close(errors_descriptor_);
  }
}

// In small pieces, so that the child is never far ahead of what was read.
bool ChildProcess::read_some() {
  using std::chrono::milliseconds;
  const auto left =
      std::chrono::duration_cast<milliseconds>(deadline_ - std::chrono::steady_clock::now()).count();
  pollfd readable{.fd = output_descriptor_, .events = POLLIN, .revents = 0};
  if (::poll(&readable, 1, static_cast<int>(std::max<i64>(left, 0))) == 0) {
    send(SIGKILL);
    return false;
  }
  std::array<char, 256> piece{};
  const ssize_t got = ::read(output_descriptor_, piece.data(), piece.size());
  if (got <= 0) {  // a terminal whose other side is gone says EIO
    return false;
  }
  output_.append(piece.data(), static_cast<std::size_t>(got));
  return true;
}

bool ChildProcess::read_until(std::string_view text) {
  while (output_.find(text) == std::string::npos) {
    if (!read_some()) {
      return false;
    }
  }
  return true;
}

void ChildProcess::send(int signal) const { WYCH_CHECK(::kill(process_, signal) == 0, "cannot signal"); }

void ChildProcess::wait_until_taken(int signal) const {
  const u64 bit = u64{1} << static_cast<unsigned>(signal - 1);
  u64 pending = bit;
  while ((pending & bit) != 0 && std::chrono::steady_clock::now() < deadline_) {
    pending = 0;
    std::ifstream status(fmt::format("/proc/{}/status", process_));
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("ShdPnd:")) {
        pending = std::stoull(line.substr(sizeof "ShdPnd:"), nullptr, 16);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

int ChildProcess::wait() {
  while (read_some()) {
  }
  int status = 0;
  WYCH_CHECK(::waitpid(process_, &status, 0) == process_, "the child is gone");
  process_ = -1;
  if (errors_descriptor_ >= 0) {
    std::array<char, 4096> piece{};
    ::lseek(errors_descriptor_, 0, SEEK_SET);
    for (ssize_t got = 0; (got = ::read(errors_descriptor_, piece.data(), piece.size())) > 0;) {
      errors_.append(piece.data(), static_cast<std::size_t>(got));
    }
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace wych
