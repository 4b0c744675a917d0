// Arenas by mmap. A mapping is only guaranteed to start at a page, and a huge page needs its own alignment,
// so large arenas reserve one huge page more than they use.
#include "device/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace wych::device {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20U;

}  // namespace

Expected<Arena> Arena::create(std::string name, i64 bytes) {
  WYCH_CHECK(bytes >= 0, "arena {} of {} bytes", name, bytes);
  Arena arena;
  arena.name_ = std::move(name);
  arena.bytes_ = bytes;
  if (bytes == 0) {
    return arena;
  }
  const bool huge = static_cast<std::size_t>(bytes) >= kHugePage;
  std::size_t space = static_cast<std::size_t>(bytes) + (huge ? kHugePage : 0);
  void* mapping = ::mmap(nullptr, space, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return Error{
        .kind = ErrorKind::kMemory,
        .where = fmt::format("arena {}", arena.name_),
        .what = fmt::format("cannot get {} bytes: {}", bytes, std::generic_category().message(errno)),
        .hint = "see `wych plan` for what uses memory and what to change",
        .more = {}};
  }
  arena.mapping_ = mapping;
  arena.mapping_bytes_ = space;
  void* start = mapping;
  if (huge) {
    std::align(kHugePage, static_cast<std::size_t>(bytes), start, space);
    // Only advice: without huge pages everything still works, with more TLB misses.
    (void)::madvise(start, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  }
  arena.data_ = static_cast<std::byte*>(start);
  return arena;
}

Arena::Arena(Arena&& other) noexcept { *this = std::move(other); }

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(bytes_, other.bytes_);
  std::swap(data_, other.data_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  return *this;
}

Arena::~Arena() {
  if (mapping_ != nullptr) {
    ::munmap(mapping_, mapping_bytes_);
  }
}

std::span<std::byte> Arena::slice(i64 offset, i64 bytes) const {
  WYCH_CHECK(offset >= 0 && bytes >= 0 && offset <= bytes_ - bytes,
             "[{}, {} + {}) outside arena {} of {} bytes", offset, offset, bytes, name_, bytes_);
  return {data_ + offset, static_cast<std::size_t>(bytes)};
}

void Arena::poison(i64 offset, i64 bytes) const {
  const std::span<std::byte> target = slice(offset, bytes);
  if (!target.empty()) {
    std::memset(target.data(), 0xff, target.size());
  }
}

}  // namespace wych::device
