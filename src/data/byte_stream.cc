// One input buffer; what is in it goes to inflate, to ZSTD_decompressStream, or out as it is.
#include "data/byte_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace wych::data {
namespace {

constexpr std::size_t kInputBytes = std::size_t{1} << 18U;
constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr std::string_view kZstdMagic = "\x28\xb5\x2f\xfd";

struct EndInflate {
  void operator()(z_stream* stream) const {
    inflateEnd(stream);
    delete stream;  // NOLINT: made beside inflateInit2, freed beside inflateEnd
  }
};
struct FreeZstd {
  void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

}  // namespace

struct ByteStream::State {
  std::string path;
  Descriptor file;
  std::vector<char> input = std::vector<char>(kInputBytes);
  std::size_t begin = 0;  // unread part of `input`: [begin, end)
  std::size_t end = 0;
  bool at_end = false;  // the file has no more
  bool inside = false;  // a member or frame has begun and not ended
  i64 position = 0;     // bytes taken from the file
  std::unique_ptr<z_stream, EndInflate> gzip;
  std::unique_ptr<ZSTD_DStream, FreeZstd> zstd;

  [[nodiscard]] bool begins_with(std::string_view magic) const {
    return end - begin >= magic.size() && std::memcmp(input.data() + begin, magic.data(), magic.size()) == 0;
  }
  [[nodiscard]] Error damaged(std::string_view what) const {
    return {ErrorKind::kData,
            path,
            fmt::format("is damaged or cut short near byte {} of the file: {}",
                        position - static_cast<i64>(end - begin), what),
            "copy or write the file again",
            {}};
  }

  // Refills the empty input buffer.
  Expected<void> refill() {
    begin = 0;
    end = 0;
    while (end < input.size() && !at_end) {
      const ssize_t got = ::read(file.get(), input.data() + end, input.size() - end);
      if (got < 0 && errno != EINTR) {
        return file_error(ErrorKind::kData, path, "read", errno);
      }
      at_end = got == 0;
      end += got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    position += static_cast<i64>(end);
    return {};
  }

  std::size_t copy_some(std::span<char> out) {
    const std::size_t count = std::min(out.size(), end - begin);
    std::memcpy(out.data(), input.data() + begin, count);
    begin += count;
    return count;
  }

  Expected<std::size_t> inflate_some(std::span<char> out) {
    constexpr std::size_t kMost = std::size_t{1} << 30U;  // zlib counts in unsigned
    gzip->next_in = reinterpret_cast<Bytef*>(input.data() + begin);
    gzip->avail_in = static_cast<uInt>(end - begin);
    gzip->next_out = reinterpret_cast<Bytef*>(out.data());
    gzip->avail_out = static_cast<uInt>(std::min(out.size(), kMost));
    const uInt room = gzip->avail_out;
    const int result = inflate(gzip.get(), Z_NO_FLUSH);
    begin = end - gzip->avail_in;
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
      return damaged(gzip->msg != nullptr ? gzip->msg : "no gzip data");
    }
    inside = result != Z_STREAM_END;
    if (!inside) {
      inflateReset(gzip.get());
    }
    return static_cast<std::size_t>(room - gzip->avail_out);
  }

  Expected<std::size_t> decompress_some(std::span<char> out) {
    ZSTD_inBuffer from = {input.data() + begin, end - begin, 0};
    ZSTD_outBuffer to = {out.data(), out.size(), 0};
    const std::size_t result = ZSTD_decompressStream(zstd.get(), &to, &from);
    begin += from.pos;
    if (ZSTD_isError(result) != 0) {
      return damaged(ZSTD_getErrorName(result));
    }
    inside = result != 0;
    return to.pos;
  }
};

ByteStream::ByteStream(std::unique_ptr<State> state) : state_(std::move(state)) {}
ByteStream::ByteStream(ByteStream&&) noexcept = default;
ByteStream& ByteStream::operator=(ByteStream&&) noexcept = default;
ByteStream::~ByteStream() = default;

i64 ByteStream::position() const { return state_->position - static_cast<i64>(state_->end - state_->begin); }

Expected<ByteStream> ByteStream::open(const std::string& path) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->file = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (state->file.get() < 0) {
    return file_error(ErrorKind::kData, path, "open", errno);
  }
  WYCH_TRY_VOID(state->refill());
  if (state->begins_with(kGzipMagic)) {
    constexpr int kGzipOnly = 15 + 16;
    auto stream = std::make_unique<z_stream>();
    *stream = {};
    WYCH_CHECK(inflateInit2(stream.get(), kGzipOnly) == Z_OK, "zlib does not start");
    state->gzip.reset(stream.release());
  } else if (state->begins_with(kZstdMagic)) {
    state->zstd.reset(ZSTD_createDStream());
    WYCH_CHECK(state->zstd != nullptr, "zstd does not start");
  }
  return ByteStream(std::move(state));
}

Expected<std::size_t> ByteStream::read(std::span<char> out) {
  std::size_t filled = 0;
  while (filled < out.size()) {
    if (state_->begin == state_->end) {
      WYCH_TRY_VOID(state_->refill());
    }
    const bool drained = state_->begin == state_->end;
    if (drained && !state_->inside) {
      break;
    }
    const std::span<char> rest = out.subspan(filled);
    WYCH_TRY(const std::size_t got, state_->gzip   ? state_->inflate_some(rest)
                                    : state_->zstd ? state_->decompress_some(rest)
                                                   : Expected<std::size_t>(state_->copy_some(rest)));
    filled += got;
    if (drained && got == 0 && state_->inside) {
      return state_->damaged("the packed data does not end");
    }
  }
  return filled;
}

Expected<std::string> read_unpacked(const std::string& path) {
  constexpr std::size_t kPiece = std::size_t{1} << 20U;
  WYCH_TRY(ByteStream stream, ByteStream::open(path));
  std::string text;
  while (true) {
    const std::size_t before = text.size();
    text.resize(before + kPiece);
    WYCH_TRY(const std::size_t got, stream.read(std::span(text).subspan(before)));
    text.resize(before + got);
    if (got < kPiece) {
      return text;
    }
  }
}

}  // namespace wych::data
