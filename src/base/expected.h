// Expected<T>: a value or an Error. Errors are a user's fault (config, files, shapes, capacity) and travel
// by value up to the command line, which prints them and maps the kind to the exit code.
// Every Error names where (file, key, tensor, rank), what was found and expected, and what to do.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"

namespace wych {

// The numeric value is the exit code of the process (docs/cli.md).
enum class ErrorKind {
  kInternal = 1,
  kUsage = 2,  // command line or configuration
  kData = 3,
  kCheckpoint = 4,
  kNonFinite = 5,
  kMemory = 6,
  kCommunication = 7,
};

struct Error {
  ErrorKind kind = ErrorKind::kInternal;
  std::string where;  // "configs/a.toml: model.moe.top_k", "model.safetensors: blocks.0.wo"; may be empty
  std::string what;   // what was found and what was expected
  std::string hint;   // what to do; may be empty
  std::vector<Error> more;  // further errors found in the same pass (configuration)

  // "where: what; hint", one line per error, no trailing newline.
  [[nodiscard]] std::string text() const;
};

// A value or an Error. T must not be Error or a reference.
template <class T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit by design
  Expected(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit by design

  [[nodiscard]] bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  // The value; CHECK-fails with the error's text if there is none.
  [[nodiscard]] T& value() & {
    require();
    return *std::get_if<0>(&state_);
  }
  [[nodiscard]] const T& value() const& {
    require();
    return *std::get_if<0>(&state_);
  }
  // By value: the result of a call is often a temporary that dies at the end of the line.
  [[nodiscard]] T value() && {
    require();
    return std::move(*std::get_if<0>(&state_));
  }
  [[nodiscard]] T& operator*() & { return value(); }
  [[nodiscard]] const T& operator*() const& { return value(); }
  [[nodiscard]] T operator*() && { return std::move(*this).value(); }
  [[nodiscard]] T* operator->() { return &value(); }
  [[nodiscard]] const T* operator->() const { return &value(); }

  // The error; only when !has_value().
  [[nodiscard]] const Error& error() const& {
    WYCH_CHECK(!has_value(), "error() of an Expected that holds a value");
    return *std::get_if<1>(&state_);
  }
  [[nodiscard]] Error&& error() && {
    WYCH_CHECK(!has_value(), "error() of an Expected that holds a value");
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  void require() const {
    if (!has_value()) [[unlikely]] {
      check_failed(__FILE__, __LINE__, "has_value()", std::get_if<1>(&state_)->text());
    }
  }
  std::variant<T, Error> state_;
};

// Success or an Error.
template <>
class [[nodiscard]] Expected<void> {
 public:
  Expected() = default;
  Expected(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by design
  [[nodiscard]] bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  [[nodiscard]] const Error& error() const& {
    WYCH_CHECK(error_.has_value(), "error() of a success");
    return *error_;
  }
  [[nodiscard]] Error&& error() && {
    WYCH_CHECK(error_.has_value(), "error() of a success");
    return std::move(*error_);
  }
  // CHECK-fails with the error's text on failure; for tests and for what cannot fail.
  void value() const {
    if (error_) [[unlikely]] {
      check_failed(__FILE__, __LINE__, "has_value()", error_->text());
    }
  }

 private:
  std::optional<Error> error_;
};

}  // namespace wych

#define WYCH_CONCAT_INNER(a, b) a##b
#define WYCH_CONCAT(a, b) WYCH_CONCAT_INNER(a, b)

// WYCH_TRY(auto x, call()): x = value, or return the error from the enclosing function.
#define WYCH_TRY(declaration, expression)                  \
  auto WYCH_CONCAT(try_, __LINE__) = (expression);         \
  if (!WYCH_CONCAT(try_, __LINE__)) {                      \
    return std::move(WYCH_CONCAT(try_, __LINE__)).error(); \
  }                                                        \
  declaration = *std::move(WYCH_CONCAT(try_, __LINE__))  // NOLINT(bugprone-macro-parentheses)

// The same for Expected<void>.
#define WYCH_TRY_VOID(expression)                  \
  do {                                             \
    if (auto try_void = (expression); !try_void) { \
      return std::move(try_void).error();          \
    }                                              \
  } while (false)
