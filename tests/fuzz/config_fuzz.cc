#include "config/load.h"
#include "fuzz/fuzz_target.h"

// What loads must print as TOML that loads again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const wych::fuzz::InputFile file(data, size, ".toml");
  const wych::Expected<wych::config::Loaded> loaded =
      wych::config::load(file.path(), {}, {.purpose = wych::config::Purpose::kPlan});
  if (loaded) {
    const std::string text = wych::config::to_toml(loaded->config);
    const wych::fuzz::InputFile again(reinterpret_cast<const std::uint8_t*>(text.data()), text.size(),
                                      ".toml");
    if (!wych::config::load(again.path(), {}, {.purpose = wych::config::Purpose::kPlan})) {
      std::fprintf(stderr, "does not load again:\n%s\n", text.c_str());
      std::abort();
    }
  }
  return 0;
}
