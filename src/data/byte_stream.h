// The bytes of a file, unpacked on the way: gzip and zstd are known by their first bytes, several members or
// frames one after the other are one text. Memory: a fixed buffer, whatever the size of the file.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/expected.h"
#include "base/types.h"

namespace wych::data {

class ByteStream {
 public:
  // Errors (kData) name the file: missing, unreadable.
  static Expected<ByteStream> open(const std::string& path);
  ByteStream(ByteStream&&) noexcept;
  ByteStream& operator=(ByteStream&&) noexcept;
  ~ByteStream();

  // Fills `out` from the front as far as the file goes; fewer bytes than asked for mean its end. Errors:
  // damaged or cut compressed data, with the position in the file.
  Expected<std::size_t> read(std::span<char> out);
  // Bytes of the file consumed so far, packed ones if it is packed: for progress.
  [[nodiscard]] i64 position() const;

 private:
  struct State;
  explicit ByteStream(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// All bytes of a file, unpacked.
Expected<std::string> read_unpacked(const std::string& path);

}  // namespace wych::data
