// The table of scalar types; order follows the enum.
#include "base/dtype.h"

#include <array>

namespace wych {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  i64 bytes;
};
constexpr std::array<Entry, 6> kEntries = {{{DType::kF32, "f32", 4},
                                            {DType::kF64, "f64", 8},
                                            {DType::kBF16, "bf16", 2},
                                            {DType::kI32, "i32", 4},
                                            {DType::kI64, "i64", 8},
                                            {DType::kU8, "u8", 1}}};

}  // namespace

i64 dtype_bytes(DType dtype) { return kEntries[static_cast<std::size_t>(dtype)].bytes; }

std::string_view dtype_name(DType dtype) { return kEntries[static_cast<std::size_t>(dtype)].name; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) {
      return entry.dtype;
    }
  }
  return std::nullopt;
}

}  // namespace wych
