// The CPU loops over philox.h: a block of four words serves four neighbours.
#include "base/philox.h"

namespace wych {
namespace {

template <class Convert>
void fill(RandomStream stream, u64 first, float* out, i64 count, Convert convert) {
  PhiloxBlock block = random_block(stream, first >> 2U);
  for (i64 j = 0; j < count; ++j) {
    const u64 index = first + static_cast<u64>(j);
    if (j > 0 && (index & 3U) == 0) {
      block = random_block(stream, index >> 2U);
    }
    out[j] = convert(block.words[index & 3U]);
  }
}

}  // namespace

void fill_uniform(RandomStream stream, u64 first, float* out, i64 count) {
  fill(stream, first, out, count, uniform_from_word);
}

void fill_normal(RandomStream stream, u64 first, float* out, i64 count) {
  fill(stream, first, out, count, normal_from_word);
}

}  // namespace wych
