// JSON lines with truncation on resume (metrics.h).
#include "io/metrics.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "io/build_info.h"

namespace wych::io {
namespace {

// How many bytes of `text` a run that goes on after `resumed_step` keeps.
Expected<i64> kept_bytes(const std::string& text, i64 resumed_step, const std::string& path) {
  std::size_t at = 0;
  for (i64 number = 1; at < text.size(); ++number) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) {
      break;  // torn by a kill
    }
    const std::string where = fmt::format("{}:{}", path, number);
    const std::string hint = "move the file away to go on without the metrics so far";
    Expected<Json> line = parse_json(std::string_view(text).substr(at, end - at), where, ErrorKind::kData);
    if (!line) {
      Error error = std::move(line).error();
      error.hint = hint;
      return error;
    }
    const Json* step = line->find("step");
    if (step == nullptr || step->get<i64>() == nullptr) {
      return Error{ErrorKind::kData, where, "has no integer \"step\"", hint, {}};
    }
    if (*step->get<i64>() > resumed_step) {
      break;
    }
    at = end + 1;
  }
  return static_cast<i64>(at);
}

// The members of an object without its braces, with a comma in front if there are any.
std::string members(const JsonObject& object) {
  const std::string text = object.text();
  return text.size() == 2 ? "" : "," + text.substr(1, text.size() - 2);
}

// The value behind "key : " in a file of /proc; empty if there is none.
std::string proc_value(const std::string& path, std::string_view key) {
  const Expected<std::string> text = read_file(path, ErrorKind::kInternal);
  const std::size_t at = text ? text->find(key) : std::string::npos;
  if (at == std::string::npos) {
    return "";
  }
  const std::size_t begin = text->find_first_not_of(" \t:", at + key.size());
  return begin == std::string::npos ? "" : text->substr(begin, text->find('\n', begin) - begin);
}

}  // namespace

Expected<MetricsWriter> MetricsWriter::open(const std::string& run_dir, i64 resumed_step) {
  const std::string path = run_dir + "/metrics.jsonl";
  if (std::filesystem::exists(path)) {
    WYCH_TRY(const std::string text, read_file(path, ErrorKind::kData));
    WYCH_TRY(const i64 kept, kept_bytes(text, resumed_step, path));
    std::error_code code;
    std::filesystem::resize_file(path, static_cast<std::uintmax_t>(kept), code);
    if (code) {
      return file_error(ErrorKind::kData, path, "shorten", code.value());
    }
  }
  MetricsWriter writer;
  WYCH_TRY(writer.file_, FileWriter::append(path, ErrorKind::kData));
  return writer;
}

Expected<void> MetricsWriter::write(i64 step, const JsonObject& metrics) {
  return file_.write(fmt::format("{{\"step\":{}{}}}\n", step, members(metrics)));
}

Expected<EventsWriter> EventsWriter::open(const std::string& run_dir) {
  const std::string path = run_dir + "/events.jsonl";
  bool torn = false;
  if (std::filesystem::exists(path)) {
    WYCH_TRY(const std::string text, read_file(path, ErrorKind::kData));
    torn = !text.empty() && text.back() != '\n';
  }
  EventsWriter writer;
  WYCH_TRY(writer.file_, FileWriter::append(path, ErrorKind::kData));
  if (torn) {
    WYCH_TRY_VOID(writer.file_.write("\n"));
  }
  return writer;
}

Expected<void> EventsWriter::write(i64 step, std::string_view kind, const JsonObject& details) {
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return file_.write(fmt::format("{{\"time\":{:.3f},\"step\":{},\"event\":{}{}}}\n", now, step,
                                 json_string(kind), members(details)));
}

JsonObject environment() {
  JsonObject out;
  out.add("version", build_version()).add("commit", build_commit()).add("compiler", build_compiler());
  utsname names{};
  ::uname(&names);
  out.add("host", names.nodename).add("kernel", fmt::format("{} {}", names.sysname, names.release));
  out.add("processor", proc_value("/proc/cpuinfo", "model name"));
  out.add("cores", static_cast<i64>(std::thread::hardware_concurrency()));
  out.add("memory_bytes",
          static_cast<i64>(::sysconf(_SC_PHYS_PAGES)) * static_cast<i64>(::sysconf(_SC_PAGESIZE)));
  out.add("started", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))));
  return out;
}

Expected<void> write_environment(const std::string& run_dir, const JsonObject& environment) {
  return write_file_atomic(run_dir + "/env.json", environment.text() + "\n", ErrorKind::kData);
}

}  // namespace wych::io
