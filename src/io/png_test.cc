// Pictures: chunks with right checksums, and pixels that unpack to what went in.
#include "io/png.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <map>
#include <vector>

namespace wych::io {
namespace {

u32 big_endian_at(std::string_view bytes, std::size_t at) {
  u32 value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value = value << 8U | static_cast<unsigned char>(bytes[at + i]);
  }
  return value;
}

// The data of each chunk; fails the test where a length or checksum is wrong.
std::map<std::string, std::string> chunks(const std::string& png) {
  std::map<std::string, std::string> out;
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  std::size_t at = 8;
  while (at + 12 <= png.size()) {
    const u32 length = big_endian_at(png, at);
    const std::string body = png.substr(at + 4, length + 4);
    EXPECT_EQ(big_endian_at(png, at + 8 + length),
              crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size())));
    out[body.substr(0, 4)] = body.substr(4);
    at += 12 + length;
  }
  EXPECT_EQ(at, png.size());
  return out;
}

TEST(Png, HoldsItsPixelsAndColours) {
  const std::vector<u8> pixels = {0, 1, 2, 2, 1, 0};
  const std::vector<Rgba> palette = {{1, 2, 3, 4}, {5, 6, 7, 8}, {255, 254, 253, 255}};
  std::map<std::string, std::string> parts = chunks(encode_png(3, 2, pixels, palette));
  using namespace std::string_literals;
  EXPECT_EQ(parts["IHDR"], "\0\0\0\x03\0\0\0\x02\x08\x03\0\0\0"s);
  EXPECT_EQ(parts["PLTE"], "\x01\x02\x03\x05\x06\x07\xff\xfe\xfd"s);
  EXPECT_EQ(parts["tRNS"], "\x04\x08\xff"s);
  EXPECT_EQ(parts.count("IEND"), 1U);
  std::string rows(8, '?');
  uLongf size = rows.size();
  const std::string& data = parts["IDAT"];
  ASSERT_EQ(uncompress(reinterpret_cast<Bytef*>(rows.data()), &size,
                       reinterpret_cast<const Bytef*>(data.data()), data.size()),
            Z_OK);
  EXPECT_EQ(size, 8U);
  EXPECT_EQ(rows, "\0\0\x01\x02\0\x02\x01\0"s);  // each row behind its filter byte
}

}  // namespace
}  // namespace wych::io
