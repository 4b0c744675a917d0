// A PNG is a signature and chunks: length, type, data, CRC-32 of type and data, all big-endian (png.h).
#include "io/png.h"

#include <zlib.h>

#include <string_view>

#include "base/check.h"

namespace wych::io {
namespace {

std::string big_endian(u32 value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes += static_cast<char>((value >> static_cast<unsigned>(shift)) & 0xffU);
  }
  return bytes;
}

const Bytef* bytes_of(std::string_view text) { return reinterpret_cast<const Bytef*>(text.data()); }

std::string chunk(std::string_view type, std::string_view data) {
  const std::string body = std::string(type).append(data);
  const uLong crc = crc32(0, bytes_of(body), static_cast<uInt>(body.size()));
  return big_endian(static_cast<u32>(data.size())) + body + big_endian(static_cast<u32>(crc));
}

std::string compress(std::string_view data) {
  uLongf size = compressBound(data.size());
  std::string out(size, '\0');
  const int status =
      compress2(reinterpret_cast<Bytef*>(out.data()), &size, bytes_of(data), data.size(), Z_BEST_COMPRESSION);
  WYCH_CHECK(status == Z_OK, "zlib says {}", status);
  out.resize(size);
  return out;
}

}  // namespace

std::string encode_png(i64 width, i64 height, std::span<const u8> pixels, std::span<const Rgba> palette) {
  constexpr i64 kMostPixels = i64{1} << 16;
  WYCH_CHECK(0 < width && width <= kMostPixels && 0 < height && height <= kMostPixels, "{} x {}", width,
             height);
  WYCH_CHECK(static_cast<i64>(pixels.size()) == width * height, "{} pixels for {} x {}", pixels.size(), width,
             height);
  WYCH_CHECK(!palette.empty() && palette.size() <= 256, "{} colours", palette.size());
  std::string colors;
  std::string opacities;
  for (const Rgba& color : palette) {
    for (const u8 part : {color.red, color.green, color.blue}) {
      colors += static_cast<char>(part);
    }
    opacities += static_cast<char>(color.alpha);
  }
  std::string rows;
  for (i64 y = 0; y < height; ++y) {
    rows += '\0';  // no filter: neighbouring indices are no measure of neighbouring colours
    rows.append(reinterpret_cast<const char*>(pixels.data() + y * width), static_cast<std::size_t>(width));
  }
  constexpr std::string_view kEightBitPalette("\x08\x03\0\0\0", 5);
  const std::string header =
      (big_endian(static_cast<u32>(width)) + big_endian(static_cast<u32>(height))).append(kEightBitPalette);
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("PLTE", colors) + chunk("tRNS", opacities) +
         chunk("IDAT", compress(rows)) + chunk("IEND", "");
}

}  // namespace wych::io
