// XXH3 (64 bits): the one hash of names, files and programs. The value is the same on every platform, so it
// may be stored in checkpoints and keys of random streams. Not cryptographic.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/types.h"

struct XXH3_state_s;

namespace wych {

[[nodiscard]] u64 hash_bytes(std::span<const std::byte> bytes);
[[nodiscard]] u64 hash_bytes(std::string_view bytes);

// The same value for a sequence of pieces, however it is cut.
class Hasher {
 public:
  Hasher();
  void update(std::span<const std::byte> bytes);
  void update(std::string_view bytes);
  // The hash of everything so far; more may follow.
  [[nodiscard]] u64 digest() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace wych
