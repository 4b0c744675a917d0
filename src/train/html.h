// Text and bytes inside HTML: the one place where they are made harmless.
#pragma once

#include <string>
#include <string_view>

namespace wych::train {

// `text` for element content or a quoted attribute: & < > " ' as entities, all else as it is.
std::string html_escape(std::string_view text);

// Bytes for a data: address.
std::string base64(std::string_view bytes);

}  // namespace wych::train
