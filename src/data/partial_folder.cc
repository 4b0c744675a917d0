#include "data/partial_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "base/file.h"

namespace wych::data {
namespace {

namespace fs = std::filesystem;

Error filesystem_error(const std::string& path, std::string_view verb, const std::error_code& failure) {
  return file_error(ErrorKind::kData, path, verb, failure.value());
}

}  // namespace

std::string plain_folder_name(const std::string& folder) {
  std::string name = fs::path(folder).lexically_normal().string();
  if (name.size() > 1 && name.ends_with('/')) {
    name.pop_back();
  }
  return name;
}

PartialFolder::PartialFolder(std::string target)
    : target_(std::move(target)), path_(fmt::format("{}.partial-{}", target_, getpid())) {}

PartialFolder::PartialFolder(PartialFolder&& other) noexcept
    : target_(std::move(other.target_)), path_(std::exchange(other.path_, {})) {}

PartialFolder::~PartialFolder() {
  if (!path_.empty()) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
}

Expected<PartialFolder> PartialFolder::create(const std::string& target) {
  PartialFolder folder(plain_folder_name(target));
  std::error_code failure;
  fs::create_directories(folder.path_, failure);
  if (failure) {
    return filesystem_error(folder.path_, "create", failure);
  }
  return folder;
}

Expected<void> PartialFolder::move_into_place() {
  const std::string old = path_ + ".old";
  std::error_code failure;
  const bool is_replacement = fs::exists(target_, failure);
  if (is_replacement) {
    fs::rename(target_, old, failure);
    if (failure) {
      return filesystem_error(target_, "move aside", failure);
    }
  }
  fs::rename(path_, target_, failure);
  if (failure) {
    std::error_code ignored;
    fs::rename(old, target_, ignored);
    return filesystem_error(target_, "rename", failure);
  }
  path_.clear();
  if (is_replacement) {
    fs::remove_all(old, failure);
  }
  const std::string parent = fs::path(target_).parent_path().string();
  return sync_directory(parent.empty() ? "." : parent, ErrorKind::kData);
}

}  // namespace wych::data
