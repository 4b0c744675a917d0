#include "base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <utility>

namespace wych {

Expected<FolderLock> FolderLock::take(const std::string& folder, ErrorKind kind) {
  const std::string path = folder + "/lock";
  constexpr mode_t kMode = 0644;
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kMode));
  if (file.get() < 0) {
    return file_error(kind, path, "create", errno);
  }
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      return file_error(kind, path, "lock", errno);
    }
    return Error{.kind = ErrorKind::kUsage,
                 .where = folder,
                 .what = "another process is using this run folder",
                 .hint = "wait for it or stop it, or choose another with --run.dir",
                 .more = {}};
  }
  return FolderLock(std::move(file));
}

}  // namespace wych
