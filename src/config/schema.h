// The one table of configuration keys. Everything that knows keys is driven by it: strict parsing with type
// and range checks (load.cc), printing (to_toml) and the reference page (reference_markdown).
// Invariant: every member of Config but the derived quantities appears exactly once, in printing order.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/config.h"

namespace wych::config {

// An enumeration member: its value as an index into the names it is spelled with.
struct Choice {
  std::span<const std::string_view> names;
  std::function<std::size_t()> get;
  std::function<void(std::size_t)> set;
};

// The member a field stands for; pointers into the Config given to fields().
using Slot =
    std::variant<bool*, i64*, double*, std::string*, std::vector<i64>*, std::vector<std::string>*, Choice>;

// The values a number (or each number of a list) may have. Bounds are inclusive unless `open`.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool open = false;

  [[nodiscard]] bool contains(double value) const {
    return open ? value > low && value < high : value >= low && value <= high;
  }
  // "at least 1", "above 0", "in [0, 1)"...; empty if unbounded.
  [[nodiscard]] std::string text() const;
};

struct Field {
  std::string key;  // dotted, "model.moe.top_k"
  Slot slot;
  Range range;
  std::string_view doc;  // one sentence

  [[nodiscard]] std::string_view section() const;   // "model.moe"
  [[nodiscard]] std::string_view name() const;      // "top_k"
  [[nodiscard]] std::string type() const;           // "integer", "one of \"a\", \"b\"", ...
  [[nodiscard]] std::string value_as_toml() const;  // the member's value as a TOML literal
};

struct Section {
  std::string_view key;  // "model.moe"
  std::string_view doc;
};

// Sections whose last part is a name the user gives: "data.source." and what a documentation writes for it.
inline constexpr std::string_view kSourcePrefix = "data.source.";
inline constexpr std::string_view kSourcePlaceholder = "NAME";

// All sections and all fields, in printing order; a section of named parts is listed once, with the
// placeholder, and has the fields of every part that `config` has. The fields point into `config`, which must
// outlive them.
[[nodiscard]] std::span<const Section> sections();
[[nodiscard]] std::vector<Field> fields(Config& config);

// Keys of which at most one may be set (differ from its default); a later source replaces an earlier one.
[[nodiscard]] std::span<const std::vector<std::string_view>> exclusive_keys();

// Where each value came from: key -> "preset tiny-64e", "configs/laptop.toml:12", "command line", "derived".
// A key that is absent has its default.
using Origins = std::map<std::string, std::string, std::less<>>;

// Every key and value as TOML, which loads to an equal Config. With origins, each line ends in a comment
// that says where the value came from.
[[nodiscard]] std::string to_toml(const Config& config, const Origins* origins = nullptr);

// The reference of all keys: a Markdown table per section.
[[nodiscard]] std::string reference_markdown();

}  // namespace wych::config
