// A fuzz target: a parser of files that come from outside, given any bytes. It must return: an Error or a
// value, never a crash, a hang or a read outside. Each *_fuzz.cc defines the one function below, which both
// libFuzzer
// (`./x fuzz NAME SECONDS`) and replay.cc call; corpus/NAME holds inputs, those that once crashed among them.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace wych::fuzz {

inline std::string_view text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// The input as a file, for parsers that map one: in memory where the system has such a place.
class InputFile {
 public:
  InputFile(const std::uint8_t* data, std::size_t size, const char* ending) {
    const std::string folder = std::ifstream("/dev/shm/.").good() ? "/dev/shm" : "/tmp";
    path_ = folder + "/wych_fuzz_XXXXXX" + ending;
    const int file = mkstemps(path_.data(), static_cast<int>(std::string_view(ending).size()));
    if (file < 0) {
      std::abort();
    }
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    close(file);
  }
  ~InputFile() { std::remove(path_.c_str()); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace wych::fuzz
