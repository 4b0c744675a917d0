// Which build this is. The version is CMake's project version; the commit is found with every build.
#pragma once

#include <string_view>

namespace wych::io {

// "0.1.0".
[[nodiscard]] std::string_view build_version();
// The commit the sources were built from, "94ad5b20c1d2", "...-modified" if tracked files differed from it;
// empty if they were no git checkout.
[[nodiscard]] std::string_view build_commit();
// "gcc-compatible 12.2.0".
[[nodiscard]] std::string_view build_compiler();

}  // namespace wych::io
