// Log: what goes where, whole lines from many threads, and a disk that fills up.
#include "base/log.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>
#include <vector>

namespace wych {
namespace {

bool matches(const std::string& text, const std::string& glob) {
  return ::fnmatch(glob.c_str(), text.c_str(), 0) == 0;
}

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "wych_log_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    terminal_ = Descriptor(::open((folder_ + "/terminal").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    ASSERT_GE(terminal_.get(), 0);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string shown() const {
    return read_file(folder_ + "/terminal", ErrorKind::kData).value();
  }
  std::string folder_;
  Descriptor terminal_;
};

TEST_F(LogTest, TerminalShowsLinesFromTheThresholdUpWithoutTimes) {
  Log log(terminal_.get(), LogLevel::kInfo, "rank 3: ");
  log.debug("hidden");
  log.info("step {}", 12);
  log.warning("slow");
  log.error("{} lost", "rank 5");
  EXPECT_EQ(shown(), "rank 3: step 12\nrank 3: warning: slow\nrank 3: error: rank 5 lost\n");
}

TEST_F(LogTest, FileTakesEveryLevelWithATime) {
  Log log(terminal_.get(), LogLevel::kError);
  log.open_file(folder_ + "/run.log").value();
  log.debug("a");
  log.info("b");
  EXPECT_EQ(shown(), "");
  const std::string content = read_file(folder_ + "/run.log", ErrorKind::kData).value();
  const std::string time =
      "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9]Z";
  EXPECT_TRUE(matches(content, time + " debug a\n" + time + " info b\n")) << content;
}

TEST_F(LogTest, LinesOfManyThreadsStayWhole) {
  Log log(-1);
  log.open_file(folder_ + "/run.log").value();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&log, t] {
      for (int i = 0; i < 200; ++i) {
        log.info("thread {} line {} end", t, i);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::istringstream content(read_file(folder_ + "/run.log", ErrorKind::kData).value());
  int lines = 0;
  for (std::string line; std::getline(content, line); ++lines) {
    ASSERT_TRUE(matches(line, "*Z info thread [0-3] line * end") && line.find("end") == line.size() - 3)
        << line;
  }
  EXPECT_EQ(lines, 800);
}

TEST_F(LogTest, FullDiskIsReportedOnceAndTheTerminalGoesOn) {
  Log log(terminal_.get());
  log.open_file("/dev/full").value();
  log.info("one");
  log.info("two");
  const std::string text = shown();
  EXPECT_EQ(text.find("one\nwarning: no log file from here on: /dev/full: cannot write"), 0U) << text;
  EXPECT_EQ(text.find("no log file", text.find("no log file") + 1), std::string::npos) << text;
  EXPECT_EQ(text.substr(text.size() - 5), "\ntwo\n");
}

TEST_F(LogTest, FileThatCannotBeOpenedIsAnError) {
  Log log(-1);
  EXPECT_FALSE(log.open_file(folder_ + "/missing/run.log").has_value());
}

}  // namespace
}  // namespace wych
