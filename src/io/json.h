// JSON in and out. Reading is strict (UTF-8, no duplicate keys) into a small tree; writing is by hand: text
// helpers and one flat object builder. The only place that knows the JSON library.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/expected.h"
#include "base/types.h"

namespace wych::io {

struct JsonMember;

struct Json {
  using Array = std::vector<Json>;
  using Object = std::vector<JsonMember>;  // in the order of the text, keys unique
  std::variant<std::monostate, bool, i64, double, std::string, Array, Object> data;  // monostate: null

  [[nodiscard]] bool is_null() const { return std::holds_alternative<std::monostate>(data); }
  // The content if it has that type, else nullptr. T: bool, i64, double, std::string, Array, Object.
  template <class T>
  [[nodiscard]] const T* get() const {
    return std::get_if<T>(&data);
  }
  // Sets `out` if this is an integer or a real number; returns whether it is.
  [[nodiscard]] bool number(double& out) const;
  // The member of an object; nullptr if absent or if this is no object.
  [[nodiscard]] const Json* find(std::string_view key) const;
  // "null", "true", "the integer 3", "the string \"a\"", "a list", "an object": for messages.
  [[nodiscard]] std::string describe() const;
};

// A member of an object.
struct JsonMember {
  std::string key;
  Json value;
};

// Errors: malformed text, invalid UTF-8, a key twice in one object; nothing but white space may follow the
// value. Integers beyond i64 become doubles.
[[nodiscard]] Expected<Json> parse_json(std::string_view text, const std::string& where, ErrorKind kind);

// A quoted string; invalid UTF-8 becomes U+FFFD.
[[nodiscard]] std::string json_string(std::string_view text);
// The shortest text that reads back to the same double; null if it is not finite.
[[nodiscard]] std::string json_number(double value);
[[nodiscard]] std::string json_list(std::span<const i64> values);

// A flat object, member by member in the order of the calls.
class JsonObject {
 public:
  JsonObject& add(std::string_view key, double value) { return add_raw(key, json_number(value)); }
  JsonObject& add(std::string_view key, i64 value);
  JsonObject& add(std::string_view key, int value) { return add(key, static_cast<i64>(value)); }
  JsonObject& add(std::string_view key, bool value) { return add_raw(key, value ? "true" : "false"); }
  JsonObject& add(std::string_view key, std::string_view value) { return add_raw(key, json_string(value)); }
  JsonObject& add(std::string_view key, const char* value) { return add(key, std::string_view(value)); }
  JsonObject& add(std::string_view key, std::span<const double> values);
  // `json` is a complete JSON value.
  JsonObject& add_raw(std::string_view key, std::string_view json);

  // "{...}" on one line, no newline.
  [[nodiscard]] std::string text() const { return text_ + "}"; }

 private:
  std::string text_ = "{";
};

}  // namespace wych::io
