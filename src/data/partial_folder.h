// A folder that appears as a whole by a rename, or not at all.
#pragma once

#include <string>

#include "base/expected.h"

namespace wych::data {

// Made beside `target` under a name of its own; removed by the destructor unless moved into place. Move-only.
class PartialFolder {
 public:
  static Expected<PartialFolder> create(const std::string& target);
  PartialFolder(PartialFolder&& other) noexcept;
  PartialFolder& operator=(PartialFolder&&) = delete;
  ~PartialFolder();

  // Where to write.
  [[nodiscard]] const std::string& path() const { return path_; }
  // Renames it to the target, durably. What is there gives way; nothing is lost if this fails.
  Expected<void> move_into_place();

 private:
  explicit PartialFolder(std::string target);
  std::string target_;
  std::string path_;  // empty: nothing to remove
};

// "a/b" of "a/./b/".
std::string plain_folder_name(const std::string& folder);

}  // namespace wych::data
