// Flattens the tree of toml++ (toml_reader.h).
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_WINDOWS_COMPAT 0
// Some of the parser's assertions fail on malformed input ("[ ="), which it then reports properly.
#define TOML_ASSERT(expr) static_assert(true)
#include "config/toml_reader.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

namespace wych::config {
namespace {

TomlValue convert(const toml::node& node) {
  if (const auto* value = node.as_boolean()) {
    return {value->get()};
  }
  if (const auto* value = node.as_integer()) {
    return {static_cast<i64>(value->get())};
  }
  if (const auto* value = node.as_floating_point()) {
    return {value->get()};
  }
  if (const auto* value = node.as_string()) {
    return {value->get()};
  }
  if (const auto* array = node.as_array()) {
    if (!array->empty() && array->is_homogeneous<toml::table>()) {
      return {TomlValue::Unsupported{"an array of tables"}};
    }
    std::vector<TomlValue> values;
    for (const toml::node& element : *array) {
      values.push_back(convert(element));
    }
    return {std::move(values)};
  }
  if (node.is_table()) {
    return {TomlValue::Table{}};
  }
  return {TomlValue::Unsupported{"a date or time"}};
}

void flatten(const toml::table& table, const std::string& prefix, std::vector<TomlEntry>& out) {
  for (const auto& [name, node] : table) {
    std::string part(name.str());
    if (part.find('.') != std::string::npos || part.empty()) {
      part = '"' + part + '"';
    }
    const std::string key = prefix + part;
    out.push_back({key, convert(node), static_cast<i64>(node.source().begin.line)});
    if (const toml::table* inner = node.as_table()) {
      flatten(*inner, key + ".", out);
    }
  }
}

}  // namespace

std::string TomlValue::describe() const {
  struct Visitor {
    std::string operator()(Table) const { return "a table"; }
    std::string operator()(const Unsupported& value) const { return value.kind; }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(i64 value) const { return fmt::format("the integer {}", value); }
    std::string operator()(double value) const { return fmt::format("the number {}", value); }
    std::string operator()(const std::string& value) const { return fmt::format("the string \"{}\"", value); }
    std::string operator()(const std::vector<TomlValue>& value) const {
      return fmt::format("a list of {}", value.size());
    }
  };
  return std::visit(Visitor{}, data);
}

Expected<std::vector<TomlEntry>> read_toml(std::string_view text, const std::string& where) {
  const toml::parse_result parsed = toml::parse(text, where);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return Error{ErrorKind::kUsage,
                 fmt::format("{}:{}", where, error.source().begin.line),
                 fmt::format("malformed TOML: {}", error.description()),
                 "",
                 {}};
  }
  std::vector<TomlEntry> entries;
  flatten(parsed.table(), "", entries);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const TomlEntry& a, const TomlEntry& b) { return a.line < b.line; });
  return entries;
}

}  // namespace wych::config
