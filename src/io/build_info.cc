// The only file that sees the generated commit, so a new commit compiles one file.
#include "io/build_info.h"

#include "commit.inc"

namespace wych::io {

std::string_view build_version() { return WYCH_VERSION; }

std::string_view build_commit() { return WYCH_COMMIT; }

std::string_view build_compiler() { return "gcc-compatible " __VERSION__; }

}  // namespace wych::io
