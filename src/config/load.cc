// Layers of assignments over the schema (load.h): presets and extended files first, the file, the command
// line.
#include "config/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/nearest.h"
#include "config/presets.h"
#include "config/toml_reader.h"

namespace wych::config {
namespace {

constexpr std::string_view kPresetPrefix = "preset:";

struct Assignment {
  std::string key;
  TomlValue value;
  std::string origin;  // "preset tiny-64e", "configs/a.toml:12", "command line"
  std::string bare;    // the override's text as typed; empty in files
};
using Layer = std::vector<Assignment>;

// Collects the layers of a source, what it extends first.
class Sources {
 public:
  Expected<void> add(const std::string& source) {
    const bool preset = source.starts_with(kPresetPrefix);
    const std::string identity = preset ? source : std::filesystem::weakly_canonical(source).string();
    if (std::find(chain_.begin(), chain_.end(), identity) != chain_.end()) {
      return Error{ErrorKind::kUsage,
                   source + ": extends",
                   "extends itself in the end",
                   "break the cycle of extends",
                   {}};
    }
    chain_.push_back(identity);
    std::string text;
    if (preset) {
      WYCH_TRY(const Preset* found, find_preset(source.substr(kPresetPrefix.size())));
      text = found->toml;
    } else {
      WYCH_TRY(text, read_file(source, ErrorKind::kUsage));
    }
    WYCH_TRY(std::vector<TomlEntry> entries, read_toml(text, source));
    Layer layer;
    for (TomlEntry& entry : entries) {
      if (entry.key == "extends") {
        WYCH_TRY_VOID(add_extended(source, entry));
        continue;
      }
      std::string origin =
          preset ? "preset " + source.substr(kPresetPrefix.size()) : fmt::format("{}:{}", source, entry.line);
      layer.push_back({std::move(entry.key), std::move(entry.value), std::move(origin), ""});
    }
    layers.push_back(std::move(layer));
    return {};
  }

  std::vector<Layer> layers;

 private:
  Expected<void> add_extended(const std::string& source, const TomlEntry& entry) {
    const auto* base = std::get_if<std::string>(&entry.value.data);
    if (base == nullptr) {
      return Error{
          ErrorKind::kUsage,
          fmt::format("{}:{}: extends", source, entry.line),
          fmt::format("found {}, expected a string: \"preset:NAME\" or a path", entry.value.describe()),
          "",
          {}};
    }
    if (base->starts_with(kPresetPrefix)) {
      return add(*base);
    }
    return add((std::filesystem::path(source).parent_path() / *base).string());
  }

  std::vector<std::string> chain_;
};

// Applies layers to a Config and collects errors.
class Applier {
 public:
  Applier() { list_fields(); }

  void apply(const Layer& layer) {
    declare_sources(layer);
    std::vector<std::string> skipped;  // tables that are errors already: their content is not looked at
    for (const Assignment& assignment : layer) {
      const auto inside = [&assignment](const std::string& table) {
        return assignment.key.starts_with(table + ".");
      };
      if (std::none_of(skipped.begin(), skipped.end(), inside) && !apply_one(assignment)) {
        skipped.push_back(assignment.key);
      }
    }
    settle_exclusive(layer);
  }

  void report(const Problem& problem) {
    for (const std::string_view key : problem.keys) {
      if (failed_.contains(key)) {
        return;
      }
    }
    const std::string_view key = problem.keys.front();
    const auto origin = origins.find(key);
    const bool placed = origin != origins.end() && origin->second != "derived";
    errors.push_back({ErrorKind::kUsage,
                      placed ? fmt::format("{}: {}", origin->second, key) : std::string(key),
                      problem.what,
                      problem.hint,
                      {}});
  }

  void fail(const Assignment& assignment, std::string what, std::string hint = "") {
    failed_.insert(assignment.key);
    errors.push_back({ErrorKind::kUsage,
                      fmt::format("{}: {}", assignment.origin, assignment.key),
                      std::move(what),
                      std::move(hint),
                      {}});
  }

  Config config;
  Origins origins;
  std::vector<Error> errors;

 private:
  void list_fields() {
    fields_ = fields(config);
    default_fields_ = fields(defaults_);
    index_.clear();
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      index_.emplace(fields_[i].key, i);
    }
  }

  // "web" of "data.source.web" and of keys inside; empty for other keys and names that cannot be printed as
  // they are.
  static std::string source_name(std::string_view key) {
    if (!key.starts_with(kSourcePrefix)) {
      return "";
    }
    const std::string_view name = key.substr(kSourcePrefix.size());
    const std::string_view first = name.substr(0, name.find('.'));
    const bool plain = std::all_of(first.begin(), first.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
             c == '-';
    });
    return plain ? std::string(first) : "";
  }

  // Sources come into being by being named.
  void declare_sources(const Layer& layer) {
    bool added = false;
    for (const Assignment& assignment : layer) {
      if (const std::string name = source_name(assignment.key); !name.empty()) {
        added = config.data.source.try_emplace(name).second || added;
        defaults_.data.source.try_emplace(name);
      }
    }
    if (added) {
      list_fields();
    }
  }

  static bool is_section(std::string_view key) {
    return key == kSourcePrefix.substr(0, kSourcePrefix.size() - 1) ||
           (!source_name(key).empty() && key.find('.', kSourcePrefix.size()) == std::string_view::npos) ||
           std::any_of(sections().begin(), sections().end(),
                       [key](const Section& s) { return s.key == key; });
  }

  bool apply_one(const Assignment& assignment) {
    const bool table = std::holds_alternative<TomlValue::Table>(assignment.value.data);
    const auto found = index_.find(assignment.key);
    if (found != index_.end()) {
      const std::size_t before = errors.size();
      assign(fields_[found->second], assignment);
      return errors.size() == before;
    }
    if (is_section(assignment.key)) {
      if (!table) {
        fail(assignment, fmt::format("found {}, but this is a section", assignment.value.describe()));
      }
      return table;
    }
    fail(assignment, table ? "unknown section" : "unknown key", suggestion(assignment.key, table));
    return false;
  }

  // "did you mean ...?", or nothing: the key of the same name in another section, else the nearest spelling.
  [[nodiscard]] std::string suggestion(std::string_view key, bool table) const {
    std::vector<std::string> known;
    for (const Section& section : sections()) {
      known.emplace_back(section.key);
    }
    if (!table) {
      known.clear();
      for (const Field& field : fields_) {
        if (field.name() == key.substr(key.rfind('.') + 1)) {
          return fmt::format("did you mean {}?", field.key);
        }
        known.push_back(field.key);
      }
    }
    const std::optional<std::string> near = nearest_name(key, known);
    return near ? fmt::format("did you mean {}?", *near) : "--print-config lists all keys";
  }

  void assign(const Field& field, const Assignment& assignment) {
    const std::string expected_type = field.type();
    const auto wrong_type = [&] {
      fail(assignment,
           fmt::format("found {}, expected {}{}", assignment.value.describe(),
                       expected_type.starts_with("one of") ? "" : article(expected_type), expected_type));
    };
    const bool stored = std::visit([&](auto slot) { return store(slot, field, assignment); }, field.slot);
    if (!stored) {
      wrong_type();
    } else {
      origins[field.key] = assignment.origin;
    }
  }

  static std::string article(std::string_view type) {
    return type == "true or false" ? "" : type == "integer" ? "an " : "a ";
  }

  // Each store() returns false on a wrong type and reports other faults itself.
  static bool store(bool* slot, const Field&, const Assignment& assignment) {
    const auto* value = std::get_if<bool>(&assignment.value.data);
    if (value != nullptr) {
      *slot = *value;
    }
    return value != nullptr;
  }

  bool store(i64* slot, const Field& field, const Assignment& assignment) {
    const auto* value = std::get_if<i64>(&assignment.value.data);
    if (value == nullptr) {
      return false;
    }
    if (in_range(static_cast<double>(*value), fmt::format("{}", *value), field, assignment)) {
      *slot = *value;
    }
    return true;
  }

  bool store(double* slot, const Field& field, const Assignment& assignment) {
    double value = 0.0;
    if (const auto* real = std::get_if<double>(&assignment.value.data)) {
      value = *real;
    } else if (const auto* integer = std::get_if<i64>(&assignment.value.data)) {
      value = static_cast<double>(*integer);
    } else {
      return false;
    }
    if (!std::isfinite(value)) {
      fail(assignment, fmt::format("is {}, expected a finite number", value));
    } else if (in_range(value, fmt::format("{}", value), field, assignment)) {
      *slot = value;
    }
    return true;
  }

  static bool store(std::string* slot, const Field&, const Assignment& assignment) {
    const std::string* value = text(assignment);
    if (value != nullptr) {
      *slot = *value;
    }
    return value != nullptr;
  }

  bool store(std::vector<i64>* slot, const Field& field, const Assignment& assignment) {
    const auto* values = std::get_if<std::vector<TomlValue>>(&assignment.value.data);
    if (values == nullptr) {
      return false;
    }
    std::vector<i64> result;
    for (const TomlValue& element : *values) {
      const auto* value = std::get_if<i64>(&element.data);
      if (value == nullptr) {
        fail(assignment, fmt::format("holds {}, expected integers", element.describe()));
        return true;
      }
      if (!in_range(static_cast<double>(*value), fmt::format("{}", *value), field, assignment)) {
        return true;
      }
      result.push_back(*value);
    }
    *slot = std::move(result);
    return true;
  }

  // One string counts as a list of one.
  bool store(std::vector<std::string>* slot, const Field&, const Assignment& assignment) {
    const auto* values = std::get_if<std::vector<TomlValue>>(&assignment.value.data);
    if (values == nullptr) {
      const std::string* value = text(assignment);
      if (value != nullptr) {
        slot->assign(1, *value);
      }
      return value != nullptr;
    }
    std::vector<std::string> result;
    for (const TomlValue& element : *values) {
      const auto* value = std::get_if<std::string>(&element.data);
      if (value == nullptr || value->empty()) {
        fail(assignment, fmt::format("holds {}, expected {}", element.describe(),
                                     value == nullptr ? "strings" : "strings that are not empty"));
        return true;
      }
      result.push_back(*value);
    }
    *slot = std::move(result);
    return true;
  }

  bool store(const Choice& slot, const Field& field, const Assignment& assignment) {
    const std::string* value = text(assignment);
    if (value == nullptr) {
      return false;
    }
    const auto found = std::find(slot.names.begin(), slot.names.end(), *value);
    if (found == slot.names.end()) {
      fail(assignment, fmt::format("is \"{}\", expected {}", *value, field.type()));
    } else {
      slot.set(static_cast<std::size_t>(found - slot.names.begin()));
    }
    return true;
  }

  // A string value; an override's bare text counts as one whatever literal it looks like.
  static const std::string* text(const Assignment& assignment) {
    if (const auto* value = std::get_if<std::string>(&assignment.value.data)) {
      return value;
    }
    return assignment.bare.empty() ? nullptr : &assignment.bare;
  }

  bool in_range(double value, const std::string& printed, const Field& field, const Assignment& assignment) {
    const bool inside = field.range.contains(value);
    if (!inside) {
      fail(assignment, fmt::format("is {}, expected {}", printed, field.range.text()));
    }
    return inside;
  }

  // Of keys that exclude each other, the one set in this layer replaces those of the layers below it.
  void settle_exclusive(const Layer& layer) {
    for (const std::vector<std::string_view>& group : exclusive_keys()) {
      std::vector<const Assignment*> set;
      for (const Assignment& assignment : layer) {
        const bool member = std::find(group.begin(), group.end(), assignment.key) != group.end();
        const bool again = !set.empty() && set.back()->key == assignment.key;
        if (member && !again && !is_default(assignment.key)) {
          set.push_back(&assignment);
        }
      }
      if (set.size() > 1) {
        fail(*set.back(), fmt::format("is set beside {} ({})", set.front()->key, set.front()->origin),
             "give one of them");
      }
      if (set.size() != 1) {
        continue;
      }
      for (const std::string_view key : group) {
        if (key != set.front()->key && !is_default(key)) {
          restore_default(key);
        }
      }
    }
  }

  bool is_default(std::string_view key) const {
    const std::size_t i = index_.find(key)->second;
    return fields_[i].value_as_toml() == default_fields_[i].value_as_toml();
  }

  void restore_default(std::string_view key) {
    const std::size_t i = index_.find(key)->second;
    std::visit(
        [&](auto slot) {
          using SlotType = decltype(slot);
          if constexpr (std::is_same_v<SlotType, Choice>) {
            slot.set(std::get<Choice>(default_fields_[i].slot).get());
          } else {
            *slot = *std::get<SlotType>(default_fields_[i].slot);
          }
        },
        fields_[i].slot);
    origins.erase(std::string(key));
  }

  Config defaults_;
  std::vector<Field> fields_;
  std::vector<Field> default_fields_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::set<std::string, std::less<>> failed_;  // keys that have an error of their own
};

// The assignments of one override; several for an inline table. Malformed ones are reported and skipped.
void add_override(const std::string& argument, Layer& layer, Applier& applier) {
  const std::string_view stripped = std::string_view(argument).substr(argument.starts_with("--") ? 2 : 0);
  const std::size_t equals = stripped.find('=');
  const std::string key(stripped.substr(0, equals));
  if (equals == std::string_view::npos) {
    applier.fail({key, {}, "command line", ""}, "has no value", "write --key=value");
    return;
  }
  const std::string bare(stripped.substr(equals + 1));
  Expected<std::vector<TomlEntry>> literal = read_toml("value = " + bare, key);
  if (!literal || bare.find('\n') != std::string::npos) {
    layer.push_back({key, TomlValue{bare}, "command line", bare});
    return;
  }
  for (TomlEntry& entry : *literal) {
    const bool whole = entry.key == "value";
    layer.push_back({key + entry.key.substr(std::string_view("value").size()), std::move(entry.value),
                     "command line", whole ? bare : ""});
  }
}

}  // namespace

Expected<Loaded> load(const std::string& source, std::span<const std::string> overrides,
                      LoadOptions options) {
  Sources sources;
  WYCH_TRY_VOID(sources.add(source));
  Applier applier;
  for (const Layer& layer : sources.layers) {
    applier.apply(layer);
  }
  Layer command_line;
  for (const std::string& argument : overrides) {
    add_override(argument, command_line, applier);
  }
  applier.apply(command_line);
  resolve(applier.config, options.world, applier.origins);
  for (const Problem& problem : validate(applier.config, options.world, options.purpose)) {
    applier.report(problem);
  }
  if (!applier.errors.empty()) {
    Error first = std::move(applier.errors.front());
    first.more.assign(std::make_move_iterator(applier.errors.begin() + 1),
                      std::make_move_iterator(applier.errors.end()));
    return first;
  }
  return Loaded{applier.config, applier.origins};
}

}  // namespace wych::config
