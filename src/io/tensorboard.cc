// Protobuf and record framing by hand (tensorboard.h). Field numbers are those of TensorFlow's event.proto
// and summary.proto.
#include "io/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>

namespace wych::io {
namespace {

constexpr u32 kReversedPolynomial = 0x82f63b78;  // Castagnoli's, lowest bit first

constexpr std::array<u32, 256> make_crc_table() {
  std::array<u32, 256> table{};
  for (u32 byte = 0; byte < 256; ++byte) {
    u32 crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? kReversedPolynomial : 0);
    }
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<u32, 256> kCrcTable = make_crc_table();

template <class T>
std::string little_endian(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    bytes += static_cast<char>((value >> (8 * i)) & 0xffU);
  }
  return bytes;
}

// The framing's checksum: rotated and shifted, so that a checksum of data that holds checksums stays sound.
std::string masked_crc(std::string_view bytes) {
  constexpr u32 kMaskDelta = 0xa282ead8;
  return little_endian(std::rotr(crc32c(bytes), 15) + kMaskDelta);
}

enum WireType : u32 { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(u64 value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7U) {
    bytes += static_cast<char>((value & 0x7fU) | 0x80U);
  }
  return bytes + static_cast<char>(value);
}

std::string key(u32 field, WireType type) { return varint(field << 3U | type); }

std::string varint_field(u32 field, i64 value) {
  return key(field, kVarint) + varint(static_cast<u64>(value));
}
std::string double_field(u32 field, double value) {
  return key(field, kFixed64) + little_endian(std::bit_cast<u64>(value));
}
std::string float_field(u32 field, double value) {
  return key(field, kFixed32) + little_endian(std::bit_cast<u32>(static_cast<float>(value)));
}
std::string bytes_field(u32 field, std::string_view bytes) {
  return (key(field, kBytes) + varint(bytes.size())).append(bytes);
}

namespace event_field {
constexpr u32 kWallTime = 1;
constexpr u32 kStep = 2;
constexpr u32 kFileVersion = 3;
constexpr u32 kSummary = 5;
constexpr u32 kSessionLog = 7;
}  // namespace event_field

// A HistogramProto: bucket i holds what lies in (i - 1/2, i + 1/2], so each count is the value i that often.
std::string histogram(std::span<const i64> counts) {
  enum Field : u32 { kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kLimits = 6, kBuckets = 7 };
  double num = 0;
  double sum = 0;
  double sum_squares = 0;
  std::string limits;
  std::string buckets;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto value = static_cast<double>(i);
    const auto count = static_cast<double>(counts[i]);
    num += count;
    sum += count * value;
    sum_squares += count * value * value;
    limits += little_endian(std::bit_cast<u64>(value + 0.5));
    buckets += little_endian(std::bit_cast<u64>(count));
  }
  return double_field(kMin, 0) + double_field(kMax, static_cast<double>(counts.size()) - 1) +
         double_field(kNum, num) + double_field(kSum, sum) + double_field(kSumSquares, sum_squares) +
         bytes_field(kLimits, limits) + bytes_field(kBuckets, buckets);
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace

u32 crc32c(std::string_view bytes) {
  u32 crc = ~u32{0};
  for (const char c : bytes) {
    crc = (crc >> 8U) ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xffU];
  }
  return ~crc;
}

std::string event_record(std::string_view payload) {
  const std::string length = little_endian(static_cast<u64>(payload.size()));
  return (length + masked_crc(length)).append(payload) + masked_crc(payload);
}

std::string version_event(double wall_time) {
  return double_field(event_field::kWallTime, wall_time) +
         bytes_field(event_field::kFileVersion, "brain.Event:2");
}

std::string session_start_event(double wall_time, i64 first_step) {
  constexpr u32 kStatus = 1;
  constexpr i64 kStart = 1;
  return double_field(event_field::kWallTime, wall_time) + varint_field(event_field::kStep, first_step) +
         bytes_field(event_field::kSessionLog, varint_field(kStatus, kStart));
}

std::string summary_event(double wall_time, i64 step, std::span<const Scalar> scalars,
                          std::span<const Histogram> histograms) {
  constexpr u32 kValue = 1;
  constexpr u32 kTag = 1;
  constexpr u32 kSimpleValue = 2;
  constexpr u32 kHistogram = 5;
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    summary += bytes_field(kValue, bytes_field(kTag, tag) + float_field(kSimpleValue, value));
  }
  for (const auto& [tag, counts] : histograms) {
    summary += bytes_field(kValue, bytes_field(kTag, tag) + bytes_field(kHistogram, histogram(counts)));
  }
  return double_field(event_field::kWallTime, wall_time) + varint_field(event_field::kStep, step) +
         bytes_field(event_field::kSummary, summary);
}

Expected<TensorBoardWriter> TensorBoardWriter::create(const std::string& run_dir, i64 resumed_step) {
  const double now = seconds_since_1970();
  const std::string path = fmt::format("{}/events.out.tfevents.{:010}.{}.{}", run_dir, static_cast<i64>(now),
                                       host_name(), ::getpid());
  TensorBoardWriter writer;
  WYCH_TRY(writer.file_, FileWriter::append(path, ErrorKind::kData));
  WYCH_TRY_VOID(writer.file_.write(event_record(version_event(now)) +
                                   event_record(session_start_event(now, resumed_step + 1))));
  return writer;
}

Expected<void> TensorBoardWriter::write(i64 step, std::span<const Scalar> scalars,
                                        std::span<const Histogram> histograms) {
  return file_.write(event_record(summary_event(seconds_since_1970(), step, scalars, histograms)));
}

}  // namespace wych::io
