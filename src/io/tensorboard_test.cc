// TensorBoard files to the byte. The expected records were read back with the reader of the tensorboard
// package (event_file_loader, which checks both checksums), version 2.21.
#include "io/tensorboard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "io/scratch_folder.h"

namespace wych::io {
namespace {

using namespace std::string_literals;

constexpr double kWallTime = 1.5;

// The payloads of a file whose every checksum holds; fails the test otherwise.
std::vector<std::string> payloads(const std::string& file) {
  std::vector<std::string> out;
  std::size_t at = 0;
  while (at + 12 <= file.size()) {
    u64 length = 0;
    std::memcpy(&length, file.data() + at, sizeof(length));
    if (length > file.size() - at - 12) {
      break;
    }
    out.push_back(file.substr(at + 12, length));
    EXPECT_EQ(file.substr(at, 16 + length), event_record(out.back()));
    at += 16 + length;
  }
  EXPECT_EQ(at, file.size());
  return out;
}

// The only event file of a run folder.
std::string event_file(const std::string& run) {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    EXPECT_EQ(found, "");
    found = entry.path().string();
  }
  return found;
}

TEST(Crc32c, MatchesKnownValues) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);    // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);  // RFC 3720, B.4
}

TEST(TensorBoard, FirstRecordNamesTheFormat) {
  EXPECT_EQ(event_record(version_event(kWallTime)),
            "\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22"
            "\x09\0\0\0\0\0\0\xf8\x3f\x1a\x0d"
            "brain.Event:2"
            "\x2a\x28\x64\x6c"s);
}

TEST(TensorBoard, SessionStartCarriesItsStep) {
  EXPECT_EQ(event_record(session_start_event(kWallTime, 301)),
            "\x10\0\0\0\0\0\0\0\x95\xfb\xfe\x18"
            "\x09\0\0\0\0\0\0\xf8\x3f\x10\xad\x02\x3a\x02\x08\x01"
            "\xd1\x79\x49\xd4"s);
}

TEST(TensorBoard, ScalarsOfAStepAreOneRecord) {
  const std::vector<Scalar> scalars = {{"a b", 0.5}, {"c", -2}};
  EXPECT_EQ(event_record(summary_event(kWallTime, 300, scalars, {})),
            "\x24\0\0\0\0\0\0\0\x42\x2b\x80\x4d"
            "\x09\0\0\0\0\0\0\xf8\x3f\x10\xac\x02\x2a\x16"
            "\x0a\x0a\x0a\x03"
            "a b"
            "\x15\0\0\0\x3f"
            "\x0a\x08\x0a\x01"
            "c"
            "\x15\0\0\0\xc0"
            "\x64\x66\x4b\x4d"s);
}

TEST(TensorBoard, ValuesBeyondFloatAndLongTagsAreWhole) {
  const std::string tag(300, 't');  // its length takes two bytes
  const std::vector<Scalar> scalars = {{tag, std::numeric_limits<double>::quiet_NaN()}, {"h", 1e300}};
  const std::string event = summary_event(kWallTime, 1, scalars, {});
  EXPECT_NE(event.find("\x0a\xac\x02"s + tag + "\x15\0\0\xc0\x7f"s), std::string::npos);
  EXPECT_NE(event.find("\x0a\x01h\x15\0\0\x80\x7f"s), std::string::npos);
}

TEST(TensorBoard, CountsAreAHistogramOverTheirIndices) {
  const std::vector<Histogram> histograms = {{"h", {3, 1}}};
  EXPECT_EQ(summary_event(kWallTime, 2, {}, histograms),
            "\x09\0\0\0\0\0\0\xf8\x3f\x10\x02\x2a\x58\x0a\x56\x0a\x01h\x2a\x51"
            "\x09\0\0\0\0\0\0\0\0"                              // least value 0
            "\x11\0\0\0\0\0\0\xf0\x3f"                          // greatest 1
            "\x19\0\0\0\0\0\0\x10\x40"                          // 4 in all
            "\x21\0\0\0\0\0\0\xf0\x3f"                          // sum 1
            "\x29\0\0\0\0\0\0\xf0\x3f"                          // sum of squares 1
            "\x32\x10\0\0\0\0\0\0\xe0\x3f\0\0\0\0\0\0\xf8\x3f"  // up to 0.5, up to 1.5
            "\x3a\x10\0\0\0\0\0\0\x08\x40\0\0\0\0\0\0\xf0\x3f"s);
}

TEST(TensorBoard, FileIsCompleteAfterEveryStep) {
  const ScratchFolder run;
  TensorBoardWriter writer = TensorBoardWriter::create(run.path(), 7).value();
  const std::string path = event_file(run.path());
  EXPECT_NE(path.find("/events.out.tfevents."), std::string::npos);
  EXPECT_EQ(payloads(read_bytes(path)).size(), 2U);
  for (i64 step = 8; step <= 10; ++step) {
    const std::vector<Scalar> scalars = {{"train/CE loss", static_cast<double>(step)}};
    writer.write(step, scalars).value();
    EXPECT_EQ(payloads(read_bytes(path)).size(), static_cast<std::size_t>(step - 5));
  }
  const std::vector<std::string> records = payloads(read_bytes(path));
  EXPECT_NE(records[0].find("brain.Event:2"), std::string::npos);
  EXPECT_EQ(records[1].substr(9), "\x10\x08\x3a\x02\x08\x01"s);  // goes on at step 8
  EXPECT_EQ(records[4].substr(9, 2), "\x10\x0a"s);
}

TEST(TensorBoard, AFolderThatIsNotThereIsADataError) {
  const Expected<TensorBoardWriter> writer = TensorBoardWriter::create("/nonexistent", 0);
  ASSERT_FALSE(writer.has_value());
  EXPECT_EQ(writer.error().kind, ErrorKind::kData);
  EXPECT_NE(writer.error().text().find("/nonexistent/events.out.tfevents."), std::string::npos);
}

}  // namespace
}  // namespace wych::io
