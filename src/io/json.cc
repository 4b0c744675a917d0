// Tree from simdjson's parser, and the writer (json.h).
#include "io/json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <cmath>
#include <unordered_set>

namespace wych::io {
namespace {

using simdjson::dom::element_type;

// Fills `out`; returns the first key that stands twice in one object, else an empty string.
std::string convert(simdjson::dom::element element, Json& out) {
  switch (element.type()) {
    case element_type::NULL_VALUE:
      return "";
    case element_type::BOOL:
      out.data = element.get_bool().value_unsafe();
      return "";
    case element_type::INT64:
      out.data = static_cast<i64>(element.get_int64().value_unsafe());
      return "";
    case element_type::UINT64:
      out.data = static_cast<double>(element.get_uint64().value_unsafe());
      return "";
    case element_type::DOUBLE:
      out.data = element.get_double().value_unsafe();
      return "";
    case element_type::STRING:
      out.data = std::string(element.get_string().value_unsafe());
      return "";
    case element_type::ARRAY: {
      Json::Array array;
      const simdjson::dom::array items = element.get_array().value_unsafe();
      for (const simdjson::dom::element item : items) {
        if (std::string twice = convert(item, array.emplace_back()); !twice.empty()) {
          return twice;
        }
      }
      out.data = std::move(array);
      return "";
    }
    case element_type::OBJECT: {
      Json::Object object;
      std::unordered_set<std::string_view> seen;
      const simdjson::dom::object members = element.get_object().value_unsafe();
      for (const simdjson::dom::key_value_pair field : members) {
        if (!seen.insert(field.key).second) {
          return field.key.empty() ? "\"\"" : std::string(field.key);
        }
        Json value;
        if (std::string twice = convert(field.value, value); !twice.empty()) {
          return twice;
        }
        object.push_back({std::string(field.key), std::move(value)});
      }
      out.data = std::move(object);
      return "";
    }
  }
  return "";
}

// Bytes of the UTF-8 character that starts at text[at]; 0 if there is no valid one.
std::size_t character_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(i < text.size() ? text[i] : 0); };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xc0U) == 0x80U; };
  const unsigned char lead = byte(at);
  const unsigned char second = byte(at + 1);
  if (lead < 0x80) {
    return 1;
  }
  if (lead >= 0xc2 && lead <= 0xdf) {
    return tail(at + 1) ? 2 : 0;
  }
  if (lead >= 0xe0 && lead <= 0xef) {
    const bool overlong = lead == 0xe0 && second < 0xa0;
    const bool surrogate = lead == 0xed && second >= 0xa0;
    return tail(at + 1) && tail(at + 2) && !overlong && !surrogate ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const bool outside = (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second >= 0x90);
    return tail(at + 1) && tail(at + 2) && tail(at + 3) && !outside ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool Json::number(double& out) const {
  if (const i64* integer = get<i64>()) {
    out = static_cast<double>(*integer);
    return true;
  }
  if (const double* real = get<double>()) {
    out = *real;
    return true;
  }
  return false;
}

const Json* Json::find(std::string_view key) const {
  if (const Object* object = get<Object>()) {
    for (const auto& [name, value] : *object) {
      if (name == key) {
        return &value;
      }
    }
  }
  return nullptr;
}

std::string Json::describe() const {
  if (const bool* value = get<bool>()) {
    return *value ? "true" : "false";
  }
  if (const i64* value = get<i64>()) {
    return fmt::format("the integer {}", *value);
  }
  if (const double* value = get<double>()) {
    return fmt::format("the number {}", *value);
  }
  if (const std::string* value = get<std::string>()) {
    return "the string " + json_string(*value);
  }
  return is_null() ? "null" : get<Array>() != nullptr ? "a list" : "an object";
}

Expected<Json> parse_json(std::string_view text, const std::string& where, ErrorKind kind) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (const simdjson::error_code code = parser.parse(text.data(), text.size()).get(root)) {
    return Error{kind, where, fmt::format("malformed JSON: {}", simdjson::error_message(code)), "", {}};
  }
  Json tree;
  if (const std::string twice = convert(root, tree); !twice.empty()) {
    return Error{
        kind, where, fmt::format("malformed JSON: the key \"{}\" stands twice in one object", twice), "", {}};
  }
  return tree;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_length(text, at);
    const char c = text[at];
    if (length == 0) {
      out += "\xef\xbf\xbd";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += text.substr(at, length);
    }
    at += length == 0 ? 1 : length;
  }
  return out + '"';
}

std::string json_number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

std::string json_list(std::span<const i64> values) { return fmt::format("[{}]", fmt::join(values, ",")); }

JsonObject& JsonObject::add(std::string_view key, i64 value) {
  return add_raw(key, fmt::format("{}", value));
}

JsonObject& JsonObject::add(std::string_view key, std::span<const double> values) {
  std::string list = "[";
  for (const double value : values) {
    list += (list.size() > 1 ? "," : "") + json_number(value);
  }
  return add_raw(key, list + "]");
}

JsonObject& JsonObject::add_raw(std::string_view key, std::string_view json) {
  text_ += (text_.size() > 1 ? "," : "") + json_string(key) + ":";
  text_ += json;
  return *this;
}

}  // namespace wych::io
