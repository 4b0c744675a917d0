// Printing and documentation over the table of keys (schema.h); the table itself is schema_table.cc.
#include "config/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/check.h"

namespace wych::config {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

// The shortest literal that reads back to the same double, always a TOML float.
std::string float_literal(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string bound(double value) { return fmt::format("{}", value); }

}  // namespace

std::string Range::text() const {
  const bool has_low = std::isfinite(low);
  const bool has_high = std::isfinite(high);
  if (has_low && has_high) {
    return open ? fmt::format("between {} and {}, both excluded", bound(low), bound(high))
                : fmt::format("between {} and {}", bound(low), bound(high));
  }
  if (has_low) {
    return (open ? "above " : "at least ") + bound(low);
  }
  WYCH_CHECK(!has_high, "ranges have a lower bound");
  return "";
}

std::string_view Field::section() const { return std::string_view(key).substr(0, key.rfind('.')); }

std::string_view Field::name() const { return std::string_view(key).substr(key.rfind('.') + 1); }

std::string Field::type() const {
  return std::visit(
      Overloaded{[](bool*) { return std::string("true or false"); },
                 [](i64*) { return std::string("integer"); }, [](double*) { return std::string("number"); },
                 [](std::string*) { return std::string("string"); },
                 [](std::vector<i64>*) { return std::string("list of integers"); },
                 [](std::vector<std::string>*) { return std::string("list of strings"); },
                 [](const Choice& choice) {
                   std::string out = "one of";
                   for (const std::string_view option : choice.names) {
                     out += fmt::format("{} \"{}\"", out.size() > 6 ? "," : "", option);
                   }
                   return out;
                 }},
      slot);
}

std::string Field::value_as_toml() const {
  return std::visit(
      Overloaded{[](bool* value) { return std::string(*value ? "true" : "false"); },
                 [](i64* value) { return fmt::format("{}", *value); },
                 [](double* value) { return float_literal(*value); },
                 [](std::string* value) { return quote(*value); },
                 [](std::vector<i64>* value) { return fmt::format("[{}]", fmt::join(*value, ", ")); },
                 [](std::vector<std::string>* value) {
                   std::vector<std::string> quoted;
                   std::transform(value->begin(), value->end(), std::back_inserter(quoted), quote);
                   return fmt::format("[{}]", fmt::join(quoted, ", "));
                 },
                 [](const Choice& choice) { return quote(choice.names[choice.get()]); }},
      slot);
}

std::string to_toml(const Config& config, const Origins* origins) {
  Config copy = config;
  std::string out;
  std::string_view section;
  const std::vector<Field> all = fields(copy);
  for (const Field& field : all) {
    if (field.section() != section) {
      section = field.section();
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
    }
    std::string line = fmt::format("{} = {}", field.name(), field.value_as_toml());
    if (origins != nullptr) {
      const auto found = origins->find(field.key);
      line = fmt::format("{:<40} # {}", line, found == origins->end() ? "default" : found->second);
    }
    out += line + '\n';
  }
  return out;
}

std::string reference_markdown() {
  Config defaults;
  defaults.data.source.try_emplace(std::string(kSourcePlaceholder));
  const std::vector<Field> all = fields(defaults);
  std::string out;
  for (const Section& section : sections()) {
    out += fmt::format("{}## [{}]\n\n{}\n\n| key | type | default | meaning |\n|---|---|---|---|\n",
                       out.empty() ? "" : "\n", section.key, section.doc);
    for (const Field& field : all) {
      if (field.section() == section.key) {
        const std::string range = field.range.text();
        out += fmt::format("| `{}` | {}{}{} | `{}` | {} |\n", field.name(), field.type(),
                           range.empty() ? "" : ", ", range, field.value_as_toml(), field.doc);
      }
    }
  }
  return out;
}

}  // namespace wych::config
