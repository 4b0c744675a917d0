// The documentation against the code: lines of the program that life-of-a-step.md quotes, the reference of
// configuration keys, tables of memory, ops, presets and layers, and links. For quotes and keys a failing
// test writes the page's new form to the tests' temporary folder and prints the command that takes it over.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>

#include "base/file.h"
#include "config/load.h"
#include "config/model_size.h"
#include "config/presets.h"
#include "config/schema.h"
#include "ir/registry.h"
#include "plan/report.h"
#include "train/run_request.h"
#include "train/run_text.h"

#include "all_ops.inc"  // needs the registry's declaration

namespace wych {
namespace {

std::string read(const std::string& path) { return read_file(path, ErrorKind::kInternal).value(); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += line + "\n";
  }
  return text;
}

// Writes what `page` should be; returns the command that makes it so.
std::string take_over(const std::string& page, const std::string& content) {
  const std::string path = testing::TempDir() + "wych_" + std::filesystem::path(page).filename().string();
  write_file_atomic(path, content, ErrorKind::kInternal).value();
  return fmt::format("if the new form is right: cp {} {}", path, page);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

train::Programs laptop_programs(const std::vector<std::string>& overrides) {
  const Expected<config::Loaded> loaded =
      config::load("configs/laptop.toml", overrides, {.purpose = config::Purpose::kPlan});
  return train::build_programs(loaded.value().config, train::run_request(loaded.value().config)).value();
}

// What `wych plan configs/laptop.toml OVERRIDES --dump program` prints.
std::vector<std::string> program_dump(const std::vector<std::string>& overrides) {
  const train::Programs programs = laptop_programs(overrides);
  std::string text;
  for (const plan::Program* program : train::planned(programs)) {
    text += fmt::format("program {}\n{}\n", program->name, plan::program_text(*program));
  }
  return lines_of(text);
}

// A line without the numbers of values and addresses: what stays when something else in the program changes.
std::string form(const std::string& line) {
  static const std::regex kNumber("([%+])[0-9]+");
  return std::regex_replace(line, kNumber, "$1#");
}

// A dump and how far it was quoted.
class Quoted {
 public:
  explicit Quoted(std::vector<std::string> dump) : dump_(std::move(dump)) {}

  // Goes on behind `line`; whether it is there. If not, `line` becomes the next one of the same form.
  bool find(std::string& line) {
    const auto from = dump_.begin() + next_;
    auto found = std::find(from, dump_.end(), line);
    const bool exact = found != dump_.end();
    if (!exact) {
      const std::string wanted = form(line);
      found =
          std::find_if(from, dump_.end(), [&](const std::string& other) { return form(other) == wanted; });
    }
    if (found != dump_.end()) {
      line = *found;
      next_ = found - dump_.begin() + 1;
    }
    return exact;
  }

 private:
  std::vector<std::string> dump_;
  std::ptrdiff_t next_ = 0;
};

// Blocks ```program, with the overrides of the laptop recipe if there are any.
TEST(LifeOfAStep, QuotesTheProgramInOrder) {
  const std::string page = "docs/life-of-a-step.md";
  const std::string fence = "```program";
  std::map<std::string, Quoted> dumps;
  std::vector<std::string> lines = lines_of(read(page));
  std::string wrong;
  Quoted* block = nullptr;
  int quoted = 0;
  for (std::string& line : lines) {
    if (line.starts_with(fence)) {
      const std::string override_text = line.substr(std::min(line.size(), fence.size() + 1));
      const std::vector<std::string> overrides(override_text.empty() ? 0 : 1, override_text);
      if (!dumps.contains(override_text)) {
        dumps.emplace(override_text, program_dump(overrides));
      }
      block = &dumps.at(override_text);
    } else if (line.starts_with("```")) {
      block = nullptr;
    } else if (block != nullptr) {
      ++quoted;
      const std::string original = line;
      if (!block->find(line)) {
        wrong += original + "\n";
      }
    }
  }
  EXPECT_GE(quoted, 50);
  EXPECT_EQ(dumps.size(), 2U) << "the recipe, and the recipe with two microbatches";
  EXPECT_TRUE(wrong.empty()) << "not in the program, or not behind the line before:\n"
                             << wrong << take_over(page, join(lines));
}

// The memory table of the laptop recipe, and what the levers do to it.
TEST(PlanPage, ShowsWhatThePlannerSays) {
  const std::string page = read("docs/plan.md");
  const train::Programs programs = laptop_programs({});
  std::string table;
  for (const std::string& line : lines_of(plan::memory_table(programs.layout, train::planned(programs)))) {
    table += "    " + line + "\n";
  }
  EXPECT_TRUE(contains(page, table)) << table;
  for (const char* lever :
       {"", "--data.microbatch_sequences=8", "--memory.recompute=selective", "--memory.recompute=block"}) {
    const std::string option = lever;
    const train::Programs changed =
        laptop_programs(option.empty() ? std::vector<std::string>() : std::vector<std::string>{option});
    const plan::Layout& layout = changed.layout;
    const std::string row = fmt::format(
        "| {} | {} | {} | {} |", option.empty() ? "(as it is)" : "`" + option + "`",
        plan::bytes_text(layout.bytes(ir::Category::kStash)),
        plan::bytes_text(layout.bytes(ir::Category::kScratch)), plan::bytes_text(layout.total_bytes()));
    EXPECT_TRUE(contains(page, row)) << row;
  }
}

TEST(ConfigKeys, AreTheSchemas) {
  const std::string page = "docs/config-keys.md";
  const std::string wanted =
      "# Configuration keys\n\nWritten by `config::reference_markdown()` from the table in "
      "`src/config/schema_table.cc`; `tests/docs_test.cc` holds this page to it. How files, presets and the "
      "command line combine: [config.md](config.md).\n\n" +
      config::reference_markdown();
  if (read(page) != wanted) {
    ADD_FAILURE() << page << " is not what the schema says; " << take_over(page, wanted);
  }
}

TEST(OpsPage, NamesEveryOp) {
  const std::string page = read("docs/ops.md");
  ir::Registry registry;
  ops::register_all_ops(registry);
  for (const ir::RegistryEntry& entry : registry.entries()) {
    EXPECT_TRUE(contains(page, "`" + entry.name + "`")) << entry.name;
  }
}

TEST(ModelPage, HasEveryPresetWithItsParameters) {
  const std::string page = read("docs/model.md");
  for (const config::Preset& preset : config::presets()) {
    const Expected<config::Loaded> loaded =
        config::load(fmt::format("preset:{}", preset.name), {}, {.purpose = config::Purpose::kPlan});
    const config::ParameterCounts counts = config::count_parameters(loaded.value().config.model);
    const std::string row =
        fmt::format("| `{}` | {} | {} |", preset.name, train::grouped_digits(counts.total),
                    train::grouped_digits(counts.active));
    EXPECT_TRUE(contains(page, row)) << row;
  }
}

// scripts/check_layers.py enforces its own copy of the table.
TEST(LayersPage, HasTheTableThatIsEnforced) {
  const std::vector<std::string> page = lines_of(read("docs/layers.md"));
  const std::regex row(R"re(    "(\w+)": \[(.*)\],)re");
  int rows = 0;
  for (const std::string& line : lines_of(read("scripts/check_layers.py"))) {
    std::smatch match;
    if (!std::regex_match(line, match, row)) {
      continue;
    }
    ++rows;
    const std::string folder = match[1];
    std::string allowed = std::regex_replace(match[2].str(), std::regex("\""), "");
    allowed = allowed == "*" ? "all above" : allowed.empty() ? "-" : allowed;
    const std::regex wanted(fmt::format(R"(\| \d+ \| `{}` \| .* \| {} \|)", folder, allowed));
    EXPECT_TRUE(std::any_of(page.begin(), page.end(),
                            [&](const std::string& other) { return std::regex_match(other, wanted); }))
        << folder << " may include: " << allowed;
  }
  EXPECT_GT(rows, 10);
}

TEST(Links, LeadToFiles) {
  std::vector<std::filesystem::path> pages = {"README.md"};
  for (const auto& entry : std::filesystem::directory_iterator("docs")) {
    if (entry.path().extension() == ".md") {
      pages.push_back(entry.path());
    }
  }
  const std::regex link(R"re(\]\(([^)#:]+)(#[^)]*)?\))re");
  int links = 0;
  for (const std::filesystem::path& page : pages) {
    const std::string text = read(page.string());
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it) {
      ++links;
      EXPECT_TRUE(std::filesystem::exists(page.parent_path() / (*it)[1].str()))
          << page.string() << ": " << (*it)[0];
    }
  }
  EXPECT_GT(links, 20);
}

}  // namespace
}  // namespace wych
