// Fixed-width names used everywhere. Extents, counts and bytes are i64; raw memory is std::byte.
#pragma once

#include <cstddef>
#include <cstdint>

namespace wych {

using i32 = std::int32_t;
using i64 = std::int64_t;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

// Rounds `value` up to a multiple of `alignment` (> 0).
constexpr i64 round_up(i64 value, i64 alignment) { return (value + alignment - 1) / alignment * alignment; }

constexpr i64 ceil_div(i64 value, i64 divisor) { return (value + divisor - 1) / divisor; }

}  // namespace wych
