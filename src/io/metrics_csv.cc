// Two passes over the file (metrics_csv.h): the first finds the columns and which lines count, the second
// writes the rows.
#include "io/metrics_csv.h"

#include <fmt/format.h>

#include <fstream>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file.h"
#include "io/json.h"

namespace wych::io {
namespace {

// `text` as a field: quoted if it holds a comma, a quote or a line break.
std::string field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
    return std::string(text);
  }
  std::string out = "\"";
  for (const char c : text) {
    out += c == '"' ? "\"\"" : std::string(1, c);
  }
  return out + '"';
}

struct CellText {
  std::string operator()(std::monostate) const { return "nan"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(i64 value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return fmt::format("{}", value); }
  std::string operator()(const std::string& value) const { return field(value); }
  std::string operator()(const Json::Array& /*value*/) const { return ""; }
  std::string operator()(const Json::Object& /*value*/) const { return ""; }
};

bool is_nested(const Json& value) {
  return value.get<Json::Array>() != nullptr || value.get<Json::Object>() != nullptr;
}

// Calls use(column name, value) for every cell of a line.
void for_each_cell(const Json& line, FunctionRef<void(const std::string&, const Json&)> use) {
  for (const auto& [key, value] : *line.get<Json::Object>()) {
    if (key == "step") {
      continue;
    }
    if (const Json::Array* array = value.get<Json::Array>()) {
      for (std::size_t i = 0; i < array->size(); ++i) {
        if (!is_nested((*array)[i])) {
          use(fmt::format("{}[{}]", key, i), (*array)[i]);
        }
      }
    } else if (!is_nested(value)) {
      use(key, value);
    }
  }
}

class Table {
 public:
  explicit Table(std::string path) : path_(std::move(path)), in_(path_, std::ios::binary) {}

  Expected<void> scan() {
    if (!in_) {
      return file_error(ErrorKind::kData, path_, "read", errno);
    }
    i64 number = 0;
    i64 last_step = 0;
    std::streamoff at = 0;
    for (std::string text; std::getline(in_, text); at += static_cast<std::streamoff>(text.size()) + 1) {
      ++number;
      if (in_.eof()) {
        break;  // no line end: torn
      }
      WYCH_TRY(const Json line, parse_json(text, fmt::format("{}:{}", path_, number), ErrorKind::kData));
      const Json* member = line.find("step");
      const i64* step = member == nullptr ? nullptr : member->get<i64>();
      if (step == nullptr) {
        return Error{.kind = ErrorKind::kData,
                     .where = fmt::format("{}:{}", path_, number),
                     .what = "has no integer \"step\"",
                     .hint = "is it a file of another program?",
                     .more = {}};
      }
      if (*step < last_step) {
        lines_.erase(lines_.lower_bound(*step), lines_.end());
      }
      last_step = *step;
      lines_[*step].push_back(at);
      for_each_cell(line, [this](const std::string& name, const Json& /*value*/) {
        if (columns_.try_emplace(name, names_.size()).second) {
          names_.push_back(name);
        }
      });
    }
    return {};
  }

  [[nodiscard]] std::string header() const {
    std::string out = "step";
    for (const std::string& name : names_) {
      out += "," + field(name);
    }
    return out + "\r\n";
  }

  Expected<void> write_rows(FunctionRef<Expected<void>(std::string_view)> write) {
    std::vector<std::string> cells(names_.size());
    for (const auto& [step, places] : lines_) {
      cells.assign(names_.size(), "");
      for (const std::streamoff place : places) {
        WYCH_TRY(const Json line, line_at(place));
        for_each_cell(line, [&](const std::string& name, const Json& value) {
          cells[columns_.at(name)] = std::visit(CellText(), value.data);
        });
      }
      std::string row = fmt::format("{}", step);
      for (const std::string& cell : cells) {
        row += "," + cell;
      }
      WYCH_TRY_VOID(write(row + "\r\n"));
    }
    return {};
  }

 private:
  Expected<Json> line_at(std::streamoff place) {
    in_.clear();
    in_.seekg(place);
    std::string text;
    std::getline(in_, text);
    return parse_json(text, path_, ErrorKind::kData);
  }

  std::string path_;
  std::ifstream in_;
  std::map<i64, std::vector<std::streamoff>> lines_;  // by step, where its lines begin
  std::vector<std::string> names_;                    // of the columns behind "step"
  std::unordered_map<std::string, std::size_t> columns_;
};

}  // namespace

Expected<void> metrics_to_csv(const std::string& run_dir,
                              FunctionRef<Expected<void>(std::string_view)> write) {
  Table table(run_dir + "/metrics.jsonl");
  WYCH_TRY_VOID(table.scan());
  WYCH_TRY_VOID(write(table.header()));
  return table.write_rows(write);
}

}  // namespace wych::io
