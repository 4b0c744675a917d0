// What the machine does to a command: a disk that is full or read-only, streams that are closed, kills and
// signals at any moment. Whatever happens, the exit code says it, the message names the file, no half file
// has a final name, the last complete checkpoint is good, and the run goes on from it to the same bits.
#include <chrono>
#include <csignal>
#include <fstream>
#include <set>
#include <thread>

#include "cli_fixture.h"
#include "small_disk.h"

namespace wych {
namespace {

namespace fs = std::filesystem;
using io::read_bytes;

constexpr i64 kManySteps = 400;  // of a run that is stopped again and again
constexpr i64 kAmple = 8000;     // kilobytes, enough for everything here

class CliFault : public Cli {
 protected:
  static void SetUpTestSuite() {
    SmallDisk::is_permitted();  // before anything starts a thread
    Cli::SetUpTestSuite();
    ASSERT_EQ(run(train(whole(), every_step())).code, 0);
  }
  static std::string whole() { return folder("whole"); }
  // One thread: the same bits, and on a busy machine none that waits for the other's turn.
  static std::vector<std::string> every_step() {
    return {"--checkpoint.interval=1", "--checkpoint.keep=3", "--run.threads=1"};
  }

  static void expect_equals_whole(const std::string& run_dir) {
    EXPECT_EQ(losses(run_dir), losses(whole()));
    for (const char* file : {"model", "optimizer", "state"}) {
      const std::string name = fmt::format("/{}.safetensors", file);
      EXPECT_TRUE(read_bytes(latest(run_dir) + name) == read_bytes(latest(whole()) + name)) << name;
    }
  }

  // Fails unless `latest` names a checkpoint in which every byte is right, and every other one is right too.
  static void expect_sound(const std::string& run_dir) {
    for (const std::string& path : io::list_checkpoints(run_dir)) {
      const Result result = run({"inspect", path, "--verify"});
      EXPECT_EQ(result.code, 0) << result.errors;
    }
    if (fs::exists(run_dir + "/checkpoints/latest")) {
      EXPECT_TRUE(io::latest_checkpoint(run_dir).has_value()) << run_dir;
    }
  }

  // The entries under `dir` that are not finished.
  static std::vector<std::string> unfinished(const std::string& dir) {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(dir)) {
      const std::string name = entry.path().filename().string();
      if (contains(name, ".tmp") || contains(name, ".partial")) {
        found.push_back(entry.path().string());
      }
    }
    return found;
  }

  // Runs the command through a shell with a redirection.
  static Result redirected(const std::vector<std::string>& arguments, const std::string& redirection) {
    std::vector<std::string> command = {"/bin/sh", "-c", "\"$@\" " + redirection, "sh"};
    for (const std::string& word : command_line(arguments)) {
      command.push_back(word);
    }
    ChildProcess child(command);
    const int code = child.wait();
    return {code, child.output(), child.errors()};
  }
};

class CliDisk : public CliFault {
 protected:
  void SetUp() override {
    if (!SmallDisk::is_permitted()) {
      GTEST_SKIP() << "mounting is not permitted here";
    }
  }
};

TEST_F(CliDisk, AFullDiskDuringASaveKeepsTheLastCheckpointAndTheRunGoesOn) {
  SmallDisk disk(folder("full"), 800);
  const std::string dir = disk / "run";
  const Result result = run(train(dir, every_step()));
  expect_error(result, 4,
               {dir + "/checkpoints/step", "cannot write: No space left", "hint: free some space"});
  EXPECT_EQ(unfinished(dir), std::vector<std::string>());
  const std::string kept = latest(dir);
  ASSERT_NE(kept, "no checkpoint");
  expect_sound(dir);
  // Why it ended is in the folder too, and what the failed save took is free again.
  EXPECT_TRUE(contains(read_bytes(dir + "/run.log"), "error " + dir + "/checkpoints/step"));
  EXPECT_TRUE(contains(read_bytes(dir + "/events.jsonl"), "\"event\":\"error\""));
  EXPECT_TRUE(contains(read_bytes(dir + "/report.html"), "No space left"));
  disk.resize(kAmple);
  const Result again = run(train(dir, every_step()));
  EXPECT_EQ(again.code, 0) << again.errors;
  EXPECT_TRUE(contains(again.output, "from " + kept)) << again.output;
  expect_equals_whole(dir);
}

// Every place where the disk can become full: whatever fails, the same holds.
TEST_F(CliDisk, ADiskOfAnySizeLosesNothingThatWasSaved) {
  std::set<int> codes;
  std::set<std::string> files;
  for (i64 kilobytes = 4; kilobytes <= 1100; kilobytes += kilobytes < 60 ? 4 : 52) {
    SmallDisk disk(folder("any"), kilobytes);
    const std::string dir = disk / "run";
    const Result result = run(train(dir, every_step()));
    codes.insert(result.code);
    if (result.code != 0) {
      expect_error(result, result.code, {": cannot ", "No space left", "hint: free some space"});
      const std::size_t name = result.errors.find(dir);
      ASSERT_NE(name, std::string::npos) << result.errors;
      files.insert(fs::path(result.errors.substr(name, result.errors.find(": ", name) - name)).filename());
    }
    const bool is_checkpoint = contains(result.errors, "/checkpoints");
    EXPECT_EQ(result.code, result.errors.empty() ? 0 : is_checkpoint ? 4 : 3) << result.errors;
    if (fs::exists(dir)) {
      EXPECT_EQ(unfinished(dir), std::vector<std::string>()) << kilobytes;
      expect_sound(dir);
    }
    disk.resize(kAmple);
    const Result again = run(train(dir, every_step()));
    ASSERT_EQ(again.code, 0) << kilobytes << " KB: " << again.errors;
    expect_equals_whole(dir);
  }
  EXPECT_EQ(codes, (std::set<int>{0, 3, 4}));
  EXPECT_GT(files.size(), 4U);
}

TEST_F(CliDisk, AFullDiskForMetricsEndsTheRunAndNamesThem) {
  SmallDisk disk(folder("metrics"), 100);
  const std::string dir = disk / "run";
  const std::vector<std::string> options = {"--checkpoint.interval=0", "--run.max_steps=400"};
  const Result result = run(train(dir, options));
  expect_error(result, 3, {dir + "/", "cannot write: No space left", "hint: free some space"});
  EXPECT_TRUE(contains(result.errors, "metrics.jsonl") || contains(result.errors, "tfevents"))
      << result.errors;
  EXPECT_TRUE(contains(result.output, "no checkpoint: ")) << result.output;  // it was tried
  EXPECT_EQ(unfinished(dir), std::vector<std::string>());
  disk.resize(kAmple);
  EXPECT_EQ(run(train(dir, options)).code, 0);
  EXPECT_EQ(std::ssize(losses(dir)), 400);  // no line is torn, none is missing
}

TEST_F(CliDisk, WhatIsWrittenWholeIsNotThereByHalves) {
  SmallDisk disk(folder("whole_files"), 1000);
  const std::string dir = disk / "run";
  ASSERT_EQ(run(train(dir)).code, 0);
  const std::string report = read_bytes(dir + "/report.html");
  const std::vector<std::string> convert = {"convert", "--from",     finished(),
                                            "--to",    disk / "out", "--format"};
  const auto with = [&convert](const std::string& format) {
    std::vector<std::string> arguments = convert;
    arguments.push_back(format);
    return run(arguments);
  };
  std::ofstream filler(disk / "filler");
  while (filler << std::string(4096, 'x') << std::flush) {
  }
  const std::string no_space = "No space left";
  expect_error(run({"export", "report", dir}), 3, {dir + "/report.html", no_space, "hint: free some space"});
  EXPECT_EQ(read_bytes(dir + "/report.html"), report);
  expect_error(run({"export", "csv", dir, "--out", disk / "table.csv"}), 3, {disk / "table.csv", no_space});
  expect_error(with("wych"), 4, {disk / "out", no_space});
  expect_error(run({"convert", "--from", "tests/golden/olmoe", "--to", disk / "out", "--format", "hf"}), 3,
               {disk / "out", no_space});
  const Result tokenized = run({"data", "tokenize", "--tokenizer", folder("data/tokenizer.json"), "--out",
                                disk / "data", "docs/cli.md"});
  EXPECT_EQ(tokenized.code, 3);  // behind its progress
  EXPECT_TRUE(contains(tokenized.errors, "error: " + (disk / "data"))) << tokenized.errors;
  EXPECT_TRUE(contains(tokenized.errors, no_space)) << tokenized.errors;
  EXPECT_EQ(unfinished(disk / ""), std::vector<std::string>());
  EXPECT_FALSE(fs::exists(disk / "out"));
  EXPECT_FALSE(fs::exists(disk / "data"));
  EXPECT_FALSE(fs::exists(disk / "table.csv"));
}

TEST_F(CliDisk, AReadOnlyFolderIsNamedAndCanStillBeRead) {
  SmallDisk disk(folder("read_only"), kAmple);
  fs::copy(finished(), disk / "run", fs::copy_options::recursive);
  disk.make_read_only();
  const std::string dir = disk / "run";
  const std::string hint = "hint: that file system is read-only; write elsewhere";
  expect_error(run(train(dir, {"--run.max_steps=20"})), 3, {dir, "Read-only file system", hint});
  expect_error(run(train(disk / "new")), 3, {disk / "new", "Read-only file system", "--run.dir"});
  expect_error(run({"export", "report", dir}), 3, {dir + "/report.html", hint});
  expect_error(run({"convert", "--from", finished(), "--to", disk / "out", "--format", "wych"}), 3,
               {disk / "out", hint});
  const std::string data = folder("data/text.valid.npy");
  EXPECT_EQ(run({"eval", "--model", dir, "--data", data, "--json"}).output,
            run({"eval", "--model", finished(), "--data", data, "--json"}).output);
  EXPECT_EQ(run({"inspect", dir, "--verify"}).code, 0);
}

TEST_F(CliFault, OutputThatGoesNowhereIsAnErrorWhereItIsTheResult) {
  const std::vector<std::vector<std::string>> commands = {
      {"eval", "--model", finished(), "--data", folder("data/text.valid.npy")},
      {"generate", "--model", finished(), "--prompt", "the "},
      {"plan", folder("tiny.toml")},
      {"inspect", finished()},
      {"export", "csv", finished()},
      {"train", folder("tiny.toml"), "--data.dir=" + folder("data"), "--print-config"},
      {"--help"}};
  for (const std::vector<std::string>& command : commands) {
    expect_error(redirected(command, ">/dev/full"), 3, {"standard output: cannot write"});
    expect_error(redirected(command, ">&-"), 3, {"standard output: cannot write"});
  }
}

// A closed stream's number must not become that of a file of the run, which would then hold what is printed.
TEST_F(CliFault, ATrainingRunDoesNotDependOnWhoListens) {
  for (const char* redirection : {">/dev/full", ">&-", "2>&-", "<&- >&- 2>&-", "| head -1"}) {
    const std::string dir = folder("unheard");
    const Result result = redirected(train(dir, every_step()), redirection);
    EXPECT_EQ(result.code, 0) << redirection << result.errors;
    EXPECT_EQ(read_bytes(dir + "/lock"), "") << redirection;
    expect_equals_whole(dir);
    fs::remove_all(dir);
  }
  // Lines longer than the stream's buffer, which fail at once.
  const std::vector<std::string> many = {"--model.moe.experts=2048", "--log.style=json"};
  EXPECT_EQ(redirected(train(folder("long_lines"), many), ">/dev/full").code, 0);
}

// A run that saves at every step, killed twenty times at any moment of a step or a save: what it announced as
// saved is there, and the end is that of the run nobody killed.
class CliKill : public CliFault {
 protected:
  static void SetUpTestSuite() {
    CliFault::SetUpTestSuite();
    ASSERT_EQ(run(train(long_whole(), long_run())).code, 0);
  }
  static std::string long_whole() { return folder("long_whole"); }
  static std::vector<std::string> long_run() {
    std::vector<std::string> options = every_step();
    options.push_back(fmt::format("--run.max_steps={}", kManySteps));
    return options;
  }

  // Starts the run, reads until it has saved `step`, waits a moment, sends `signal`, and reads to the end.
  static Result stopped(const std::string& dir, i64 step, std::chrono::microseconds moment, int signal) {
    ChildProcess child(command_line(train(dir, long_run())));
    EXPECT_TRUE(child.read_until(fmt::format("saved {}/checkpoints/step{:06}", dir, step))) << child.output();
    std::this_thread::sleep_for(moment);
    child.send(signal);
    const int code = child.wait();
    return {code, child.output(), child.errors()};
  }

  // The last step of which `output` says that it is saved; 0 if of none.
  static i64 last_saved(const std::string& output, const std::string& dir) {
    const std::string text = fmt::format("saved {}/checkpoints/step", dir);
    const std::size_t at = output.rfind(text);
    return at == std::string::npos ? 0 : std::stoll(output.substr(at + text.size(), 6));
  }
  static i64 step_of(const std::string& checkpoint) {
    return std::stoll(fs::path(checkpoint).filename().string().substr(4));
  }

  static void expect_equals_long_whole(const std::string& dir) {
    EXPECT_EQ(losses(dir), losses(long_whole()));
    for (const char* file : {"/model.safetensors", "/optimizer.safetensors", "/state.safetensors"}) {
      EXPECT_TRUE(read_bytes(latest(dir) + file) == read_bytes(latest(long_whole()) + file)) << file;
    }
  }
};

TEST_F(CliKill, AKillAtAnyMomentLosesNoSavedStep) {
  const std::string dir = folder("killed");
  i64 step = 0;
  u32 state = 1;
  for (int round = 0; round < 20; ++round) {
    state = state * 1664525U + 1013904223U;
    const std::chrono::microseconds moment((state >> 8U) % 4000);
    const Result result = stopped(dir, step + 1 + round % 2, moment, SIGKILL);
    EXPECT_EQ(result.code, 128 + SIGKILL) << result.errors;
    const std::string checkpoint = latest(dir);
    ASSERT_GE(step_of(checkpoint), last_saved(result.output, dir));
    const Result sound = run({"inspect", checkpoint, "--verify"});
    ASSERT_EQ(sound.code, 0) << sound.errors;
    step = step_of(checkpoint);
    ASSERT_LT(step, kManySteps - 2) << "the run ended before it was killed often enough";
  }
  const Result end = run(train(dir, long_run()));
  ASSERT_EQ(end.code, 0) << end.errors;
  EXPECT_TRUE(contains(end.output, fmt::format("from {}/checkpoints/step{:06}", dir, step))) << end.output;
  EXPECT_EQ(unfinished(dir), std::vector<std::string>());
  expect_equals_long_whole(dir);
}

TEST_F(CliKill, ATerminationDuringASaveEndsWithItsStepSaved) {
  const std::string dir = folder("terminated");
  i64 step = 0;
  for (int round = 0; round < 8; ++round) {
    const Result result = stopped(dir, step + 1, std::chrono::microseconds(400 * round), SIGTERM);
    EXPECT_EQ(result.code, 0) << result.errors;
    EXPECT_TRUE(contains(result.output, "stopped at step")) << result.output;
    step = step_of(latest(dir));
    EXPECT_EQ(step, std::ssize(losses(dir)));
    ASSERT_LT(step, kManySteps - 1);
  }
  ASSERT_EQ(run(train(dir, long_run())).code, 0);
  expect_equals_long_whole(dir);
}

// The first asks, the second insists. Whether the second comes before the run has answered the first is up to
// the machine; what is saved is good either way.
TEST_F(CliKill, ASecondInterruptEndsAtOnce) {
  const std::string dir = folder("impatient");
  int at_once = 0;
  i64 step = 0;
  for (int round = 0; round < 8; ++round) {
    ChildProcess child(command_line(train(dir, long_run())));
    ASSERT_TRUE(child.read_until(fmt::format("[step={}/", step + 1)));
    child.send(SIGINT);
    child.wait_until_taken(SIGINT);  // or the two would be one
    child.send(SIGINT);
    const int code = child.wait();
    EXPECT_TRUE(code == 130 || code == 0) << code;
    at_once += code == 130 ? 1 : 0;
    expect_sound(dir);
    const std::string saved = latest(dir);  // none if the very first save was interrupted
    step = fs::exists(saved) ? step_of(saved) : 0;
    ASSERT_LT(step, kManySteps - 1);
  }
  EXPECT_GT(at_once, 0);
  ASSERT_EQ(run(train(dir, long_run())).code, 0);
  expect_equals_long_whole(dir);
}

}  // namespace
}  // namespace wych
