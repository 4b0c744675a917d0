// PNG pictures of a few colours: one palette index a pixel, each colour with its own opacity. Readable by
// every browser; zlib does the compression.
#pragma once

#include <span>
#include <string>

#include "base/types.h"

namespace wych::io {

struct Rgba {
  u8 red = 0;
  u8 green = 0;
  u8 blue = 0;
  u8 alpha = 255;
};

// The file. `pixels`: width x height indices into `palette`, row by row from the top. CHECKs: width and
// height in [1, 2^16], 1 to 256 colours.
[[nodiscard]] std::string encode_png(i64 width, i64 height, std::span<const u8> pixels,
                                     std::span<const Rgba> palette);

}  // namespace wych::io
