// Files: errors that say what to do, content that is complete or absent.
#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

namespace wych {
namespace {

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "wych_file_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string folder_;
};

TEST_F(FileTest, AtomicWriteReplacesAndLeavesNoTemporary) {
  write_file_atomic(path("a"), "first", ErrorKind::kData).value();
  write_file_atomic(path("a"), std::string("sec\0ond", 7), ErrorKind::kData).value();
  EXPECT_EQ(read_file(path("a"), ErrorKind::kData).value(), std::string("sec\0ond", 7));
  EXPECT_FALSE(std::filesystem::exists(path("a.tmp")));
}

TEST_F(FileTest, FailedAtomicWriteKeepsTheOldContent) {
  write_file_atomic(path("a"), "old", ErrorKind::kCheckpoint).value();
  // A limit on file sizes gives first a short write, then EFBIG: what a full disk does, without filling one.
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 4096, .rlim_max = old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Expected<void> result = write_file_atomic(path("a"), std::string(10000, 'x'), ErrorKind::kCheckpoint);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);

  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().kind, ErrorKind::kCheckpoint);
  EXPECT_EQ(result.error().where, path("a.tmp"));
  EXPECT_EQ(read_file(path("a"), ErrorKind::kData).value(), "old");
  EXPECT_FALSE(std::filesystem::exists(path("a.tmp")));
}

TEST_F(FileTest, ErrorsNameThePathTheCauseAndTheRemedy) {
  const Expected<std::string> missing = read_file(path("missing"), ErrorKind::kData);
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().text(),
            path("missing") + ": cannot open: No such file or directory; check the path");
  EXPECT_EQ(missing.error().kind, ErrorKind::kData);

  const Expected<std::string> folder = read_file(folder_, ErrorKind::kData);
  ASSERT_FALSE(folder.has_value());
  EXPECT_NE(folder.error().text().find("Is a directory"), std::string::npos);

  EXPECT_FALSE(write_file_atomic(path("no/such/folder"), "x", ErrorKind::kData).has_value());
  EXPECT_FALSE(MappedFile::open(path("missing"), ErrorKind::kData).has_value());
  EXPECT_FALSE(MappedFile::open(folder_, ErrorKind::kData).has_value());
  EXPECT_FALSE(sync_directory(path("missing"), ErrorKind::kData).has_value());
}

TEST_F(FileTest, FullDiskIsAnErrorWithAHint) {
  FileWriter writer = FileWriter::create("/dev/full", ErrorKind::kCheckpoint).value();
  const Expected<void> result = writer.write("x");
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().what.find("No space left"), std::string::npos);
  EXPECT_NE(result.error().hint.find("free some space"), std::string::npos);
}

TEST_F(FileTest, WriterCreatesAppendsAndMoves) {
  FileWriter first = FileWriter::create(path("a"), ErrorKind::kData).value();
  first.write("one\n").value();
  FileWriter moved = std::move(first);
  EXPECT_FALSE(first.is_open());  // NOLINT: a moved-from writer is closed
  moved.write("two\n").value();
  moved.sync().value();
  moved.close().value();
  EXPECT_FALSE(moved.is_open());
  FileWriter more = FileWriter::append(path("a"), ErrorKind::kData).value();
  more.write("three\n").value();
  more.close().value();
  EXPECT_EQ(read_file(path("a"), ErrorKind::kData).value(), "one\ntwo\nthree\n");
  EXPECT_TRUE(FileWriter::create(path("a"), ErrorKind::kData).has_value());
  EXPECT_EQ(read_file(path("a"), ErrorKind::kData).value(), "");
}

TEST_F(FileTest, ReadsFilesThatHideTheirSize) {
  EXPECT_GT(read_file("/proc/self/status", ErrorKind::kData).value().size(), 100U);
}

TEST_F(FileTest, WriteAllGoesOnAfterShortWrites) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Descriptor source(ends[0]);
  Descriptor sink(ends[1]);
  const std::string sent(1 << 20, 'w');  // far beyond a pipe's buffer
  std::string received;
  std::thread reader([&] {
    std::string piece(5000, '\0');
    for (ssize_t got = 1; got > 0;) {
      got = ::read(source.get(), piece.data(), piece.size());
      received.append(piece, 0, got > 0 ? static_cast<std::size_t>(got) : 0);
    }
  });
  write_all(sink.get(), std::as_bytes(std::span(sent)), "pipe", ErrorKind::kData).value();
  sink = Descriptor();
  reader.join();
  EXPECT_EQ(received, sent);
}

TEST_F(FileTest, MappingShowsTheBytesAndSurvivesMoves) {
  write_file_atomic(path("a"), "hello", ErrorKind::kData).value();
  write_file_atomic(path("empty"), "", ErrorKind::kData).value();
  MappedFile mapped = MappedFile::open(path("a"), ErrorKind::kData).value();
  MappedFile target = MappedFile::open(path("empty"), ErrorKind::kData).value();
  EXPECT_TRUE(target.bytes().empty());
  target = std::move(mapped);
  ASSERT_EQ(target.bytes().size(), 5U);
  EXPECT_EQ(static_cast<char>(target.bytes()[4]), 'o');
}

}  // namespace
}  // namespace wych
