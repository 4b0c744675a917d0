#include "fuzz/fuzz_target.h"
#include "io/safetensors.h"

// Every tensor of a file that opens can be read, or gives an Error.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const wych::fuzz::InputFile input(data, size, ".safetensors");
  const wych::Expected<wych::io::SafetensorsFile> file =
      wych::io::SafetensorsFile::open(input.path(), wych::ErrorKind::kData);
  if (file) {
    for (const wych::io::TensorView& tensor : file->tensors()) {
      const wych::Expected<std::vector<double>> values = file->read<double>(tensor.name);
      if (values && static_cast<wych::i64>(values->size()) != tensor.num_elements) {
        std::abort();
      }
    }
  }
  return 0;
}
