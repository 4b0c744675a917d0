// Runs a fuzz target without a fuzzer: over every file of a corpus folder and over changed copies of each,
// the same ones every time: cut short, bytes and bits changed, pieces doubled and moved. What fails is
// printed before it runs, so a crash names its input.
//   fuzz_NAME CORPUS [COPIES]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/fuzz_target.h"

namespace {

using Bytes = std::vector<std::uint8_t>;

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::size_t below(std::size_t limit) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return limit == 0 ? 0 : static_cast<std::size_t>(state_ >> 33U) % limit;
  }

 private:
  std::uint64_t state_;
};

Bytes changed(const Bytes& original, Random& random) {
  Bytes bytes = original;
  const std::size_t changes = 1 + random.below(4);
  for (std::size_t change = 0; change < changes && !bytes.empty(); ++change) {
    const std::size_t at = random.below(bytes.size());
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (random.below(6)) {
      case 0:
        bytes.erase(begin, bytes.end());
        break;
      case 1:
        bytes[at] = static_cast<std::uint8_t>(random.below(256));
        break;
      case 2:
        bytes[at] ^= static_cast<std::uint8_t>(1U << random.below(8));
        break;
      case 3: {  // a piece twice
        const Bytes piece(begin, begin + static_cast<std::ptrdiff_t>(
                                             std::min<std::size_t>(bytes.size() - at, 1 + random.below(16))));
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(random.below(bytes.size())), piece.begin(),
                     piece.end());
        break;
      }
      case 4:  // a digit or a bracket where parsers branch
        bytes[at] = static_cast<std::uint8_t>("0123456789-.eE[]{}\",:\\ntf"[random.below(25)]);
        break;
      default:
        bytes.erase(begin, begin + static_cast<std::ptrdiff_t>(
                                       std::min<std::size_t>(bytes.size() - at, 1 + random.below(8))));
    }
  }
  return bytes;
}

Bytes read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CORPUS [COPIES]\n", argv[0]);
    return 2;
  }
  const long copies = argc > 2 ? std::atol(argv[2]) : 500;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    std::fprintf(stderr, "no file in %s\n", argv[1]);
    return 1;
  }
  long runs = 0;
  for (const std::filesystem::path& file : files) {
    const Bytes original = read(file);
    std::fprintf(stderr, "%s\n", file.c_str());
    LLVMFuzzerTestOneInput(original.data(), original.size());
    ++runs;
    Random random(original.size());
    for (long copy = 0; copy < copies; ++copy, ++runs) {
      const Bytes bytes = changed(original, random);
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
  }
  std::fprintf(stderr, "%ld inputs from %zu files\n", runs, files.size());
  return 0;
}
