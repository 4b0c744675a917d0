// Data that cannot be trained on, through the command: files that are missing, cut, of another type or
// tokenizer, text that is no text, and batches without a target. Each is an error with exit code 3 (2 where a
// setting is at fault) that names the file and place, and costs no step that was done.
#include <functional>

#include "cli_fixture.h"
#include "data/token_file.h"

namespace wych {
namespace {

namespace fs = std::filesystem;
using io::write_bytes;
using Parts = std::vector<std::string>;

class BadData : public Cli {
 protected:
  static std::string token_file(const std::string& name, const std::function<i64(i64)>& id) {
    std::vector<i32> ids;
    for (i64 i = 0; i < 1600; ++i) {
      ids.push_back(static_cast<i32>(id(i)));
    }
    EXPECT_TRUE(data::write_token_file(folder(name), data::TokenType::kU16, ids).has_value());
    return folder(name);
  }
  static Result train_on(const std::string& run_dir, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"train", folder("tiny.toml"), "--run.dir=" + run_dir,
                                          "--data.tokenizer=" + folder("data/tokenizer.json")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  static i64 eos() { return data::load_dataset(folder("data")).value().eos_id; }
};

TEST_F(BadData, WithoutOneTargetThereIsNoMeanToTrainOn) {
  const std::string nothing = token_file("separators.raw", [](i64) { return eos(); });
  const std::string text = token_file("ids.raw", [](i64 i) { return i % 300; });
  const std::string masked = "--data.targets_cross_documents=false";
  expect_error(train_on(folder("no_targets"), {"--data.paths=" + nothing, masked}), 3,
               {"step 1: no token of the batch has a target", "hint: ", "wych data inspect"});
  EXPECT_FALSE(fs::exists(folder("no_targets/checkpoints")));  // other data can start there
  // Batches with targets and then one without: the steps before are kept.
  const std::string tail = token_file("tail.raw", [](i64 i) { return i < 1200 ? i % 300 : eos(); });
  const std::string late = folder("late_targets");
  const Result result =
      train_on(late, {"--data.paths=" + tail, masked, "--data.batch_sequences=2", "--run.max_steps=100"});
  expect_error(result, 3, {"no token of the batch has a target"});
  const i64 done = std::stoll(result.errors.substr(result.errors.find("step ") + 5)) - 1;
  EXPECT_GT(done, 0);
  EXPECT_EQ(latest(late), fmt::format("{}/checkpoints/step{:06}", late, done));
  const std::string dir = folder("no_held_out");
  expect_error(train_on(dir, {"--data.paths=" + text, "--data.valid_paths=" + nothing, masked}), 3,
               {"no token of the held-out text has a target", "hint: "});
  // A label mask that leaves nothing.
  write_bytes(folder("nothing.mask"), std::string(1600, '\0'));
  expect_error(train_on(folder("no_targets"),
                        {"--data.paths=" + text, "--data.label_masks=" + folder("nothing.mask")}),
               3, {"step 1: no token of the batch has a target", "label masks", "hint: "});
  EXPECT_EQ(fs::path(latest(dir)).filename(), "step000005");  // where the first evaluation is
  EXPECT_EQ(train_on(dir, {"--data.paths=" + text, masked}).code, 0);
}

// Found only when it is read: the steps until then are kept.
TEST_F(BadData, AnIdBeyondTheVocabularyLosesNoStep) {
  const std::string late = token_file("late.raw", [](i64 i) { return i == 1500 ? 4000 : i % 300; });
  const std::string dir = folder("late");
  const Result result = train_on(dir, {"--data.paths=" + late, "--run.max_steps=30"});
  expect_error(result, 3, {late, "token 1500 is 4000, outside the vocabulary of 320", "hint: "});
  const i64 done = std::ssize(losses(dir));
  EXPECT_EQ(fs::path(latest(dir)).filename(), fmt::format("step{:06}", done));
  expect_error(run({"eval", "--model", finished(), "--data", late}), 3, {late, "token 1500 is 4000"});
}

TEST_F(BadData, FilesThatHoldNoTokensAreNamed) {
  write_bytes(folder("empty.raw"), "");
  write_bytes(folder("odd.raw"), std::string(1001, '\1'));
  write_bytes(folder("short.raw"), std::string(8, '\1'));
  write_bytes(folder("claims.npy"), data::numpy_header(data::TokenType::kU16, 1000, 0) + "short");
  const std::vector<std::pair<std::string, Parts>> cases = {
      {folder("empty.raw"), {"is empty", "hint: "}},
      {folder("odd.raw"), {"1001 bytes", "hint: "}},
      {folder("short.raw"), {"4 tokens", "16", "hint: "}},
      {folder("claims.npy"), {"1000", "hint: "}},
      {folder("missing.raw"), {"No such file", "hint: check the path"}},
      {folder("data"), {"Is a directory", "hint: "}}};
  for (const auto& [file, parts] : cases) {
    Parts all = parts;
    all.push_back(file);
    expect_error(run({"eval", "--model", finished(), "--data", file}), 3, all);
    expect_error(train_on(folder("none"), {"--data.paths=" + file}), 3, all);
    EXPECT_FALSE(fs::exists(folder("none")));
  }
}

TEST_F(BadData, ADataFolderThatWasChangedIsNamed) {
  const auto start = [](const std::string& dir) { return run(train(folder("none"), {"--data.dir=" + dir})); };
  std::string dir = copy_of(folder("data"), "cut_data");
  fs::resize_file(dir + "/text.train.npy", 1000);
  expect_error(start(dir), 3, {dir + "/text.train.npy", "hint: "});
  dir = copy_of(folder("data"), "cut_data");
  fs::remove(dir + "/text.train.npy");
  expect_error(start(dir), 3, {dir + "/text.train.npy", "No such file"});
  dir = copy_of(folder("data"), "cut_data");
  write_bytes(dir + "/dataset.json", "{}");
  expect_error(start(dir), 3, {dir + "/dataset.json", "hint: "});
  dir = copy_of(folder("data"), "cut_data");
  write_bytes(dir + "/tokenizer.json", "{\"model\": {}}");
  expect_error(start(dir), 3, {dir + "/tokenizer.json"});
  EXPECT_FALSE(fs::exists(folder("none")));
}

TEST_F(BadData, IdsOfAnotherTypeOrTokenizerAreFoundByInspection) {
  const std::string tokenizer = folder("data/tokenizer.json");
  const auto inspect = [&tokenizer](const std::string& file, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"data", "inspect", file, "--tokenizer", tokenizer};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  const std::vector<std::pair<Result, std::string>> cases = {
      {inspect(token_file("unended.raw", [](i64 i) { return i % 300; })), "end-of-text id"},
      {inspect(token_file("foreign.raw", [](i64 i) { return i % 400; })), "ids are outside the vocabulary"},
      {inspect(folder("data/text.train.npy"), {"--dtype", "u32"}), "looks like u16 ids read as u32"}};
  for (const auto& [result, fault] : cases) {
    EXPECT_EQ(result.code, 3) << result.output << result.errors;
    EXPECT_TRUE(contains(result.output, "fault: ")) << result.output;
    EXPECT_TRUE(contains(result.output, fault)) << result.output;
  }
  const std::vector<std::string> bare = {"train", folder("tiny.toml"), "--run.dir=" + folder("none"),
                                         "--data.paths=" + folder("unended.raw"), "--log.sample_interval=0"};
  expect_error(run(bare), 2, {"data.tokenizer: must be given, or data.eos_id"});
  std::vector<std::string> beyond = bare;
  beyond.emplace_back("--data.eos_id=999");
  expect_error(run(beyond), 2, {"data.eos_id: is 999, outside the vocabulary of 320", "hint: "});
  EXPECT_FALSE(fs::exists(folder("none")));
}

TEST_F(BadData, TextThatCannotBeReadIsNamedByPlaceAndNothingIsWritten) {
  const std::vector<std::tuple<std::string, std::string, Parts>> cases = {
      {"latin1.txt", "caf\xe9 au lait\n", {"is not UTF-8: byte 3", "hint: convert it, or", "--keep-invalid"}},
      {"latin1.jsonl", "{\"text\": \"a\xff\"}\n", {"is not UTF-8: byte 11"}},
      {"broken.jsonl", "{\"text\": \"a\"}\n{\"text\": \n", {"broken.jsonl:2"}},
      {"numbers.jsonl", "{\"text\": \"a\"}\n{\"text\": 3}\n", {"numbers.jsonl:2"}},
      {"cut.jsonl.gz", "\x1f\x8bjunk", {"is damaged or cut short", "hint: copy or write the file again"}}};
  for (const auto& [name, text, parts] : cases) {
    write_bytes(folder(name), text);
    const Result result = run({"data", "tokenize", "--tokenizer", folder("data/tokenizer.json"), "--out",
                               folder("tokens"), folder(name)});
    EXPECT_EQ(result.code, 3) << name << result.errors;
    EXPECT_TRUE(contains(result.errors, "error: " + folder(name))) << result.errors;
    for (const std::string& part : parts) {
      EXPECT_TRUE(contains(result.errors, part)) << part << " is not in: " << result.errors;
    }
    for (const auto& entry : fs::directory_iterator(folder(""))) {
      EXPECT_FALSE(entry.path().filename().string().starts_with("tokens")) << entry.path();
    }
  }
}

}  // namespace
}  // namespace wych
