// A folder that appears under its name whole or not at all: it is filled beside it and renamed when it is
// complete and on the disk.
#pragma once

#include <string>

#include "base/expected.h"

namespace wych {

// Renames the finished folder `temporary` to `final_name`. A folder that is there already is swapped out at
// once, so that the name is valid at every moment, and removed. The caller syncs content and parent.
Expected<void> publish_folder(const std::string& temporary, const std::string& final_name, ErrorKind kind);

// Move-only. Unless it was published, what was written is removed again; a process that is killed leaves a
// folder named like the final one with ".tmp" and a number behind it.
class StagedFolder {
 public:
  // Creates the empty folder to write into. Errors (`kind`): its parent is missing or cannot be written.
  static Expected<StagedFolder> create(const std::string& final_name, ErrorKind kind);
  StagedFolder(StagedFolder&& other) noexcept;
  StagedFolder& operator=(StagedFolder&&) = delete;
  ~StagedFolder();

  // Where to write.
  [[nodiscard]] const std::string& path() const { return path_; }
  // Puts the folder, whose files the caller has synced, under its final name.
  Expected<void> publish();

 private:
  StagedFolder(std::string path, std::string final_name, ErrorKind kind)
      : path_(std::move(path)), final_name_(std::move(final_name)), kind_(kind) {}

  std::string path_;  // empty: published or moved from
  std::string final_name_;
  ErrorKind kind_;
};

}  // namespace wych
