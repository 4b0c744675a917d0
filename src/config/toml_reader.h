// TOML text to a flat list of keys and values with line numbers: the only place that knows the TOML library.
// Invariant: entries come in the order of their lines; a table comes before what it contains.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/expected.h"
#include "base/types.h"

namespace wych::config {

struct TomlValue {
  struct Table {};
  struct Unsupported {  // dates, times, arrays of tables
    std::string kind;
  };
  std::variant<Table, Unsupported, bool, i64, double, std::string, std::vector<TomlValue>> data;

  // "the integer 4", "the string \"a\"", "a table": for error messages.
  [[nodiscard]] std::string describe() const;
};

struct TomlEntry {
  std::string key;  // dotted from the root; a part that itself contains a dot is quoted
  TomlValue value;
  i64 line = 0;  // from 1
};

// Errors: malformed TOML, as "where:line: ..." in the words of the parser.
[[nodiscard]] Expected<std::vector<TomlEntry>> read_toml(std::string_view text, const std::string& where);

}  // namespace wych::config
