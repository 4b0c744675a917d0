// What tests of Hugging Face folders share: the reference models (tests/golden/README.md) and their configs.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/huggingface.h"

namespace wych::io {

inline const std::vector<std::string>& golden_models() {
  static const std::vector<std::string> kModels = {"olmoe",           "olmoe_tied", "olmo2",
                                                   "olmo2_documents", "olmo3",      "olmo3_yarn",
                                                   "flex_olmo",       "mixtral",    "qwen3_moe"};
  return kModels;
}

inline std::string golden(const std::string& model, const std::string& file) {
  return "tests/golden/" + model + "/" + file;
}

inline config::ModelConfig golden_config(const std::string& model) {
  return read_hf_config(golden(model, "config.json")).value();
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in:\n" << text;
}

}  // namespace wych::io
