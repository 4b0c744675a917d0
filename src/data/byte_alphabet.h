// GPT-2's way to write bytes as text, used by tokenizer.json: each byte is one Unicode character, printable
// ones stand for themselves and the others follow from U+0100 on in order of value.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace wych::data {

std::string to_alphabet(std::string_view bytes);

// Nothing if `text` has a character outside the alphabet.
std::optional<std::string> from_alphabet(std::string_view text);

}  // namespace wych::data
