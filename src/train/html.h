// Text inside HTML and SVG: the one place where it is made harmless.
#pragma once

#include <string>
#include <string_view>

namespace wych::train {

// `text` for element content or a quoted attribute: & < > " ' as entities, all else as it is.
std::string html_escape(std::string_view text);

}  // namespace wych::train
