// For tests: a file system of a few kilobytes, to see what becomes of a command when a disk is full or
// read-only. It is mounted in a namespace of this process, so it is gone with it and nobody else sees it.
#pragma once

#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/check.h"
#include "base/types.h"

namespace wych {

class SmallDisk {
 public:
  // Whether this process may mount. The first call gives it a namespace of its own, as root of one if it is
  // not root; threads must not run yet.
  static bool is_permitted() {
    static const bool permitted = enter_namespace();
    return permitted;
  }

  // Mounts at `path`, which is made.
  SmallDisk(std::string path, i64 kilobytes) : path_(std::move(path)) {
    std::filesystem::create_directories(path_);
    mount(kilobytes, 0);
  }
  ~SmallDisk() { ::umount2(path_.c_str(), MNT_DETACH); }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  void resize(i64 kilobytes) { mount(kilobytes, MS_REMOUNT); }
  void make_read_only() { mount(0, MS_REMOUNT | MS_RDONLY); }

 private:
  static bool enter_namespace() {
    const uid_t user = ::getuid();
    const gid_t group = ::getgid();
    if (::unshare(CLONE_NEWNS) != 0) {
      if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        return false;
      }
      std::ofstream("/proc/self/setgroups") << "deny";
      std::ofstream("/proc/self/uid_map") << fmt::format("0 {} 1", user);
      std::ofstream("/proc/self/gid_map") << fmt::format("0 {} 1", group);
    }
    return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  }

  void mount(i64 kilobytes, unsigned long flags) {
    const std::string size = kilobytes > 0 ? fmt::format("size={}k", kilobytes) : "";
    WYCH_CHECK(::mount("tmpfs", path_.c_str(), "tmpfs", flags, size.c_str()) == 0, "cannot mount {}", path_);
  }

  std::string path_;
};

}  // namespace wych
