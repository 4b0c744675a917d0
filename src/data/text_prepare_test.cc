// Preparation on small texts: content, determinism, reuse, replacement, and that failure leaves nothing.
#include "data/text_prepare.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "data/inspect.h"
#include "data/test_folder.h"
#include "data/tokenizer.h"

namespace wych::data {
namespace {

namespace fs = std::filesystem;

// A project of 40 small files and a jargon file of 30 entries stand in for the real texts.
class TextPrepareTest : public testing::Test {
 protected:
  TextPrepareTest() {
    (void)folder_.write("project/CMakeLists.txt", "project(wych)\n");
    for (int i = 0; i < 39; ++i) {
      (void)folder_.write(
          fmt::format("project/f{:02}.md", i),
          fmt::format("# File {}\n\nThe quick brown fox jumps over {} lazy dogs.\n", i, i * i));
    }
    std::string jargon;
    for (int i = 0; i < 30; ++i) {
      jargon += fmt::format("   :entry {}: n.\n\n   The hacker's term number {}.\n\n", i, i);
    }
    options_.places.project_root = folder_.path("project");
    options_.places.jargon_file = folder_.write("jargon.txt", jargon);
    options_.domains = {"jargon", "sources"};
    options_.vocab_size = 300;
    options_.folder = folder_.path("set");
  }

  Expected<PrepareReport> prepare() {
    ThreadPool pool(2);
    return prepare_laptop_data(options_, pool, [this](std::string_view line) { lines_.emplace_back(line); });
  }
  std::string content(const std::string& name) const {
    return read_file(options_.folder + "/" + name, ErrorKind::kData).value();
  }
  // Names in the folder that holds the results.
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path(""))) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  const TestFolder folder_;
  PrepareOptions options_;
  std::vector<std::string> lines_;
};

TEST_F(TextPrepareTest, WritesADatasetThatDecodesToItsTexts) {
  const PrepareReport report = prepare().value();
  EXPECT_FALSE(report.reused);
  const Dataset dataset = load_dataset(options_.folder).value();
  EXPECT_EQ(dataset.vocab_size, 300);
  ASSERT_EQ(dataset.files.size(), 4U);
  const Tokenizer tokenizer = Tokenizer::load(options_.folder + "/" + dataset.tokenizer).value();
  i64 documents = 0;
  i64 bytes = 0;
  for (const DatasetFile& entry : dataset.files) {
    const auto files = open_split(dataset, entry.split, entry.domain, true).value();
    std::vector<i32> tokens(static_cast<std::size_t>(entry.tokens));
    files.front().tokens.read(0, dataset.vocab_size, tokens).value();
    EXPECT_EQ(tokens.back(), dataset.eos_id);
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), dataset.eos_id), entry.documents);
    EXPECT_EQ(static_cast<i64>(tokenizer.decode(tokens).size()), entry.text_bytes);
    documents += entry.documents;
    bytes += entry.text_bytes;
  }
  EXPECT_EQ(documents, 70);
  EXPECT_EQ(dataset.files[1].file, "jargon.valid.npy");
  EXPECT_EQ(dataset.files[1].documents, 2);  // 5 % of 30, rounded
  EXPECT_EQ(dataset.files[3].documents, 2);
  EXPECT_FALSE(lines_.empty());
  EXPECT_EQ(entries(), (std::vector<std::string>{"jargon.txt", "project", "set"}));
}

TEST_F(TextPrepareTest, GivesTheSameBytesEachTime) {
  (void)prepare().value();
  std::vector<std::string> first;
  const std::vector<std::string> names = {"dataset.json", "tokenizer.json", "jargon.train.npy",
                                          "sources.valid.npy"};
  for (const std::string& name : names) {
    first.push_back(content(name));
  }
  options_.folder = folder_.path("again");
  (void)prepare().value();
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(content(names[i]), first[i]) << names[i];
  }
}

TEST_F(TextPrepareTest, KeepsAFinishedFolderEvenIfTheTextsChange) {
  (void)prepare().value();
  const std::string before = content("dataset.json");
  (void)folder_.write("project/new.md", "# New\n");
  options_.folder += "/";  // the same folder
  EXPECT_TRUE(prepare().value().reused);
  EXPECT_EQ(content("dataset.json"), before);
}

TEST_F(TextPrepareTest, ReplacesAnotherRecipeOrADamagedFolderOnlyIfAllowed) {
  (void)prepare().value();
  options_.vocab_size = 280;
  const auto refused = prepare();
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().text().find("vocabulary 300"), std::string::npos) << refused.error().text();
  options_.replace = true;
  EXPECT_FALSE(prepare().value().reused);
  EXPECT_EQ(load_dataset(options_.folder).value().vocab_size, 280);
  EXPECT_TRUE(prepare().value().reused);

  fs::remove(options_.folder + "/sources.train.npy");
  options_.replace = false;
  const auto damaged = prepare();
  ASSERT_FALSE(damaged.has_value());
  EXPECT_NE(damaged.error().text().find("sources.train.npy"), std::string::npos);
  options_.replace = true;
  EXPECT_FALSE(prepare().value().reused);
  EXPECT_EQ(entries(), (std::vector<std::string>{"jargon.txt", "project", "set"}));
}

TEST_F(TextPrepareTest, NeverTouchesAFolderThatIsNoDataset) {
  options_.folder = folder_.path("project");
  options_.replace = true;
  const auto result = prepare();
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().kind, ErrorKind::kUsage);
  EXPECT_TRUE(fs::exists(folder_.path("project/f00.md")));
}

TEST_F(TextPrepareTest, LeavesNothingBehindWhenATextIsMissing) {
  options_.places.jargon_file = "/nonexistent/jargon.txt.gz";
  const auto result = prepare();
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().text().find("apt-get install jargon-text"), std::string::npos);
  EXPECT_EQ(entries(), (std::vector<std::string>{"jargon.txt", "project"}));
}

TEST_F(TextPrepareTest, RefusesOptionsThatMakeNoSense) {
  const PrepareOptions good = options_;
  const auto fails_with = [&](const char* message) {
    const auto result = prepare();
    options_ = good;
    return !result && result.error().kind == ErrorKind::kUsage &&
           result.error().text().find(message) != std::string::npos;
  };
  options_.vocab_size = 256;
  EXPECT_TRUE(fails_with("vocabulary"));
  options_.domains = {"jargon", "sources", "jargon"};
  EXPECT_TRUE(fails_with("\"jargon\" is named twice"));
  options_.domains = {};
  EXPECT_TRUE(fails_with("none is named"));
  options_.domains = {"talmud"};
  EXPECT_TRUE(fails_with("\"talmud\": is not known"));
  options_.folder = "";
  EXPECT_TRUE(fails_with("no folder"));
}

TEST_F(TextPrepareTest, ShowsWhatAFolderHolds) {
  (void)prepare().value();
  const std::string text = inspect_dataset(options_.folder).value();
  EXPECT_NE(text.find("bytes/token"), std::string::npos) << text;
  EXPECT_NE(text.find("jargon (train):\n    :entry 0: n.\n    \n    The hacker's term number 0."),
            std::string::npos)
      << text;
  std::string damaged = content("sources.train.npy");
  damaged[0] = static_cast<char>(damaged[0] ^ 1);
  (void)folder_.write("set/sources.train.npy", damaged);
  EXPECT_FALSE(inspect_dataset(options_.folder).has_value());
}

}  // namespace
}  // namespace wych::data
