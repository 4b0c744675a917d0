// The xxHash library behind hash.h; its header stays out of ours.
#include "base/hash.h"

#include <xxhash.h>

#include "base/check.h"

namespace wych {

u64 hash_bytes(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

u64 hash_bytes(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

void Hasher::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Hasher::Hasher() : state_(XXH3_createState()) {
  WYCH_CHECK(state_ != nullptr && XXH3_64bits_reset(state_.get()) == XXH_OK, "no memory for a hash state");
}

void Hasher::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) {
    WYCH_CHECK(XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()) == XXH_OK);
  }
}

void Hasher::update(std::string_view bytes) { update(std::as_bytes(std::span(bytes))); }

u64 Hasher::digest() const { return XXH3_64bits_digest(state_.get()); }

}  // namespace wych
