#include "base/staged_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/file.h"

namespace wych {

namespace fs = std::filesystem;

Expected<void> publish_folder(const std::string& temporary, const std::string& final_name, ErrorKind kind) {
  std::error_code code;
  if (!fs::exists(final_name)) {
    fs::rename(temporary, final_name, code);
    return code ? Expected<void>(file_error(kind, final_name, "create", code.value())) : Expected<void>();
  }
  constexpr unsigned kExchange = 2;  // RENAME_EXCHANGE
  if (::syscall(SYS_renameat2, AT_FDCWD, temporary.c_str(), AT_FDCWD, final_name.c_str(), kExchange) != 0) {
    return file_error(kind, final_name, "replace", errno);
  }
  fs::remove_all(temporary, code);  // the old one; if this fails it stays under the temporary name
  return {};
}

Expected<StagedFolder> StagedFolder::create(const std::string& final_name, ErrorKind kind) {
  std::string path = fmt::format("{}.tmp{}", final_name, ::getpid());
  std::error_code code;
  fs::remove_all(path, code);  // of a killed process that had our number
  fs::create_directory(path, code);
  if (code) {
    return file_error(kind, path, "create", code.value());
  }
  return StagedFolder(std::move(path), final_name, kind);
}

StagedFolder::StagedFolder(StagedFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), final_name_(std::move(other.final_name_)), kind_(other.kind_) {}

StagedFolder::~StagedFolder() {
  if (!path_.empty()) {
    std::error_code code;
    fs::remove_all(path_, code);
  }
}

Expected<void> StagedFolder::publish() {
  WYCH_TRY_VOID(sync_directory(path_, kind_));
  WYCH_TRY_VOID(publish_folder(path_, final_name_, kind_));
  path_.clear();
  const std::string parent = fs::path(final_name_).parent_path().string();
  return sync_directory(parent.empty() ? "." : parent, kind_);
}

}  // namespace wych
