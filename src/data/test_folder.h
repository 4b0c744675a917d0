// For tests of this folder: a temporary directory that lives as long as the object.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace wych::data {

class TestFolder {
 public:
  TestFolder() : path_(testing::TempDir() + "wych_data_XXXXXX") {
    EXPECT_NE(::mkdtemp(path_.data()), nullptr);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] std::string path(std::string_view name) const { return path_ + "/" + std::string(name); }
  // Writes a file, its folders too; returns its path.
  [[nodiscard]] std::string write(std::string_view name, std::string_view content) const {
    const std::string where = path(name);
    std::filesystem::create_directories(std::filesystem::path(where).parent_path());
    std::ofstream(where, std::ios::binary) << content;
    return where;
  }

 private:
  std::string path_;
};

}  // namespace wych::data
