// An arena: one block of memory of which every tensor of a kind is a slice, at an offset that the plan chose.
// Nothing else allocates during a step. Device twins of this class keep the same contract.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/expected.h"
#include "base/types.h"

namespace wych::device {

// Every slot offset is a multiple of this, and every arena starts at one: a cache line, an AVX-512 register.
inline constexpr i64 kArenaAlignment = 64;

// Host memory from the kernel, zero at first, in huge pages where the system grants them; move-only. Pages
// become resident when first touched.
class Arena {
 public:
  Arena() = default;
  // `name` ("weights", "scratch") is for messages; bytes >= 0. kMemory if the system refuses.
  static Expected<Arena> create(std::string name, i64 bytes);
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] i64 bytes() const { return bytes_; }
  [[nodiscard]] std::byte* data() const { return data_; }
  // `bytes` bytes at `offset`, which must lie inside (CHECK).
  [[nodiscard]] std::span<std::byte> slice(i64 offset, i64 bytes) const;

  // Fills with 0xff: a quiet NaN in every float type, -1 in every integer. What reads memory that nobody
  // wrote then shows in the loss.
  void poison(i64 offset, i64 bytes) const;
  void poison() const { poison(0, bytes_); }

 private:
  std::string name_;
  i64 bytes_ = 0;
  std::byte* data_ = nullptr;
  void* mapping_ = nullptr;  // at or below data_, which is aligned to huge pages
  std::size_t mapping_bytes_ = 0;
};

}  // namespace wych::device
