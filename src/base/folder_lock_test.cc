#include "base/folder_lock.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

namespace wych {
namespace {

TEST(FolderLock, IsHeldByOneAtATimeAndFreeAfterwards) {
  const std::string folder = testing::TempDir() + "wych_folder_lock";
  std::filesystem::create_directories(folder);
  {
    const Expected<FolderLock> first = FolderLock::take(folder, ErrorKind::kData);
    ASSERT_TRUE(first.has_value());
    const Expected<FolderLock> second = FolderLock::take(folder, ErrorKind::kData);
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().kind, ErrorKind::kUsage);
    EXPECT_EQ(second.error().where, folder);
  }
  EXPECT_TRUE(FolderLock::take(folder, ErrorKind::kData).has_value());
  std::filesystem::remove_all(folder);
}

TEST(FolderLock, NamesAFolderThatIsNotThere) {
  const Expected<FolderLock> lock = FolderLock::take("/nonexistent/folder", ErrorKind::kData);
  ASSERT_FALSE(lock.has_value());
  EXPECT_EQ(lock.error().kind, ErrorKind::kData);
}

}  // namespace
}  // namespace wych
