#include "fuzz/fuzz_target.h"
#include "io/huggingface.h"

// A config that reads names its tensors, if it is of a size that anybody could have.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const wych::fuzz::InputFile file(data, size, ".json");
  const wych::Expected<wych::config::ModelConfig> model = wych::io::read_hf_config(file.path());
  if (model && model->n_layers * model->moe.experts < 10'000) {
    if (wych::io::weight_pieces(*model, wych::io::ExpertNaming::kPerExpert).empty()) {
      std::abort();
    }
  }
  return 0;
}
