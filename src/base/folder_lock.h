// FolderLock: one process at a time in a folder. The lock is the kernel's (flock): it dies with its process,
// so nothing stale is ever left behind.
#pragma once

#include <string>

#include "base/expected.h"
#include "base/file.h"

namespace wych {

class FolderLock {
 public:
  // Takes `folder`/lock without waiting; the folder must exist. kUsage if another process holds it, naming
  // the folder; `kind` if the file cannot be made.
  static Expected<FolderLock> take(const std::string& folder, ErrorKind kind);

 private:
  explicit FolderLock(Descriptor file) : file_(std::move(file)) {}
  Descriptor file_;
};

}  // namespace wych
