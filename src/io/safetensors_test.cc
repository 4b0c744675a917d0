// safetensors: round trip, conversion, every way a header can lie, and replays of damaged files.
#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "io/scratch_folder.h"

namespace wych::io {
namespace {

// A file of the given header text and `data_bytes` bytes 0, 1, 2...
std::string file_of(const std::string& header, std::size_t data_bytes) {
  const u64 length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  out += header;
  for (std::size_t i = 0; i < data_bytes; ++i) {
    out += static_cast<char>(i);
  }
  return out;
}

std::string open_error(const std::string& content) {
  const ScratchFolder folder;
  write_bytes(folder / "a.safetensors", content);
  const Expected<SafetensorsFile> file = SafetensorsFile::open(folder / "a.safetensors", ErrorKind::kData);
  return file ? "" : file.error().text();
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

TEST(Safetensors, RoundTripsAllWrittenTypesInPieces) {
  const ScratchFolder folder;
  const std::vector<float> floats = {1.5F,  -0.0F, std::numeric_limits<float>::denorm_min(),
                                     3e38F, 0.1F,  -7.0F};
  const std::vector<double> doubles = {0.1, 1e-300};
  const std::vector<i64> integers = {1, -5, i64{1} << 40U};
  const std::vector<TensorSpec> specs = {{"z", DType::kF32, {2, 3}},
                                         {"a", DType::kF64, {2}},
                                         {"scalar", DType::kI64, {}},
                                         {"none", DType::kF32, {0, 4}},
                                         {"m", DType::kI64, {2}}};
  Expected<SafetensorsWriter> writer =
      SafetensorsWriter::create(folder / "a.safetensors", specs, {{"format", "pt"}}, ErrorKind::kData);
  ASSERT_TRUE(writer.has_value());
  writer->write(bytes_of(floats).first(7)).value();
  writer->write(bytes_of(floats).subspan(7)).value();
  writer->write(bytes_of(doubles)).value();
  writer->write(bytes_of(integers)).value();
  writer->finish().value();
  EXPECT_EQ(writer->offset(0) % 64, 0);

  const Expected<SafetensorsFile> file = SafetensorsFile::open(folder / "a.safetensors", ErrorKind::kData);
  ASSERT_TRUE(file.has_value()) << file.error().text();
  EXPECT_EQ(file->metadata().at("format"), "pt");
  ASSERT_EQ(file->tensors().size(), 5U);
  EXPECT_EQ(file->tensors()[0].name, "a");
  EXPECT_EQ(file->find("z")->shape, (std::vector<i64>{2, 3}));
  EXPECT_EQ(*file->read<float>("z"), floats);
  EXPECT_EQ(*file->read<double>("a"), doubles);
  EXPECT_EQ(*file->read<i64>("scalar"), std::vector<i64>{1});
  EXPECT_EQ(file->read<float>("none")->size(), 0U);
  const std::string bytes = read_bytes(folder / "a.safetensors");
  EXPECT_EQ(std::memcmp(bytes.data() + writer->offset(1), doubles.data(), 16), 0);

  EXPECT_NE(file->read<i32>("m").error().text().find("a.safetensors: m: element 1 does not fit"),
            std::string::npos);
  EXPECT_NE(file->read<float>("m").error().text().find("dtype I64, which is not read as f32"),
            std::string::npos);
  EXPECT_NE(file->read<i32>("z").error().text().find("dtype F32, which is not read as i32"),
            std::string::npos);
  EXPECT_NE(file->read<float>("q").error().text().find("a.safetensors: q: no such tensor"),
            std::string::npos);
  std::vector<float> five(5);
  EXPECT_NE(file->read("z", std::span<float>(five)).error().text().find("shape [2, 3], expected 5"),
            std::string::npos);
}

TEST(Safetensors, ConvertsHalfTypesExactly) {
  const std::vector<u16> half = {0x3c00, 0x0001, 0x8000, 0x7bff, 0x7c00,
                                 0xfc00, 0x7e00, 0x0400, 0x03ff, 0xc000};
  const std::vector<u16> brain = {0x3f80, 0x0001, 0x8000, 0x7f80};
  const std::string header = R"({"h":{"dtype":"F16","shape":[10],"data_offsets":[0,20]},)"
                             R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[20,28]}})";
  std::string content = file_of(header, 0);
  content.append(reinterpret_cast<const char*>(half.data()), 20);
  content.append(reinterpret_cast<const char*>(brain.data()), 8);
  const ScratchFolder folder;
  write_bytes(folder / "a", content);
  const Expected<SafetensorsFile> file = SafetensorsFile::open(folder / "a", ErrorKind::kData);
  ASSERT_TRUE(file.has_value()) << file.error().text();
  const std::vector<double> h = *file->read<double>("h");
  EXPECT_EQ(h[0], 1.0);
  EXPECT_EQ(h[1], 0x1p-24);
  EXPECT_TRUE(h[2] == 0.0 && std::signbit(h[2]));
  EXPECT_EQ(h[3], 65504.0);
  EXPECT_EQ(h[4], std::numeric_limits<double>::infinity());
  EXPECT_EQ(h[5], -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(h[6]));
  EXPECT_EQ(h[7], 0x1p-14);
  EXPECT_EQ(h[8], 1023.0 * 0x1p-24);
  EXPECT_EQ(h[9], -2.0);
  const std::vector<float> b = *file->read<float>("b");
  EXPECT_EQ(b[0], 1.0F);
  EXPECT_EQ(b[1], 0x1p-133F);
  EXPECT_EQ(b[3], std::numeric_limits<float>::infinity());
}

TEST(Safetensors, RefusesHeadersThatLie) {
  const std::string good = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_EQ(open_error(file_of("{" + good + "}", 8)), "");
  EXPECT_EQ(open_error(file_of("{" + good + "}   ", 8)), "") << "padding is allowed";
  const auto refuse = [](const std::string& header, std::size_t bytes, const std::string& message) {
    const std::string text = open_error(file_of(header, bytes));
    EXPECT_NE(text.find(message), std::string::npos) << header << "\n" << text;
  };
  refuse("{" + good + "}", 9, "has 1 bytes behind the last tensor");
  refuse("{" + good + "}", 7, "a: data_offsets [0, 8] lie outside the 7 bytes");
  refuse("{" + good + "," + good + "}", 8, "stands twice");
  refuse("[]", 0, "header is a list");
  refuse("{\"a\":3}", 0, "a: expected an object of dtype");
  refuse(R"({"a":{"dtype":"F32","shape":[2]}})", 8, "a: expected an object of dtype");
  refuse(R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8,
         "unknown dtype, found the string \"F33\"");
  refuse(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "an extent of the shape is");
  refuse(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8, "shape is the integer 2");
  refuse(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8,
         "span 8 bytes, but shape [3] of F32 needs 12");
  refuse(R"({"a":{"dtype":"F64","shape":[2],"data_offsets":[0,8]}})", 8, "shape [2] of F64 needs 16");
  refuse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "lie outside");
  refuse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0.0,8]}})", 8, "not two integers");
  refuse(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0, "is too large");
  refuse(R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0, "is too large");
  refuse(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
      3, "b: begins 1 bytes before the end");
  refuse(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
      5, "b: begins 1 bytes behind the end");
  refuse(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3, "a: begins 1 bytes behind");
}

TEST(Safetensors, RefusesImpossibleHeaderLengths) {
  EXPECT_NE(open_error("").find("too few"), std::string::npos);
  EXPECT_NE(open_error("1234567").find("too few"), std::string::npos);
  EXPECT_NE(open_error(std::string(8, '\xff')).find("announces a header"), std::string::npos);
  EXPECT_NE(open_error(std::string(8, '\0')).find("malformed JSON"), std::string::npos);
}

TEST(Safetensors, EveryTruncationIsAnErrorAndNoFlippedByteCrashes) {
  const std::string content =
      file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[1,3],)"
              R"("data_offsets":[8,11]}})",
              11);
  const ScratchFolder folder;
  const std::string path = folder / "a";
  for (std::size_t length = 0; length < content.size(); ++length) {
    write_bytes(path, content.substr(0, length));
    EXPECT_FALSE(SafetensorsFile::open(path, ErrorKind::kData).has_value()) << length;
  }
  for (std::size_t at = 0; at < content.size() - 11; ++at) {
    for (const int flip : {1, 4, 0x20, 0x80}) {
      std::string damaged = content;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      write_bytes(path, damaged);
      const Expected<SafetensorsFile> file = SafetensorsFile::open(path, ErrorKind::kData);
      if (file) {  // a name or another dtype of that size: still consistent, so readable in full
        for (const TensorView& view : file->tensors()) {
          EXPECT_EQ(static_cast<i64>(view.bytes.size()), view.num_elements * stored_bytes(view.type));
        }
      }
    }
  }
}

}  // namespace
}  // namespace wych::io
