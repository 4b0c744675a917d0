// The command end to end: the real binary as a child process, on a tiny model and a synthetic text. What a
// user or a scheduler relies on: exit codes, messages, signals, the run folder, and resuming to the bit.
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <optional>

#include "base/philox.h"
#include "cli_fixture.h"
#include "data/dataset.h"
#include "io/checkpoint.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/scratch_folder.h"

namespace wych {
namespace {

using io::read_bytes;

constexpr char kEscape = '\x1b';

TEST_F(Cli, TrainingFillsTheRunFolder) {
  for (const char* name :
       {"config.toml", "metrics.jsonl", "events.jsonl", "run.log", "env.json", "plan.json", "report.html",
        "routing.json", "metrics.json", "tokenizer.json", "checkpoints/latest"}) {
    EXPECT_TRUE(std::filesystem::exists(finished() + "/" + name)) << name;
  }
  int event_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(finished())) {
    event_files += entry.path().filename().string().starts_with("events.out.tfevents.") ? 1 : 0;
  }
  EXPECT_EQ(event_files, 1);
  const std::vector<std::pair<double, double>> steps = losses(finished());
  ASSERT_EQ(std::ssize(steps), kSteps);
  EXPECT_LT(steps.back().second, steps.front().second);
  i64 evaluations = 0;
  for (const io::Json& line : json_lines(finished() + "/metrics.jsonl")) {
    evaluations += line.find("eval/lm/valid/CE loss") != nullptr ? 1 : 0;
  }
  EXPECT_EQ(evaluations, 3);  // at 5 and 10, and of everything at the end
  const io::Json last = json_of(read_bytes(finished() + "/metrics.json"));
  EXPECT_EQ(number_at(last, "step"), kSteps);
  EXPECT_EQ(number_at(last, "train/CE loss"), steps.back().second);
  EXPECT_EQ(latest(finished()), finished() + "/checkpoints/step000012");
  EXPECT_TRUE(contains(read_bytes(finished() + "/report.html"), "finished"));
  EXPECT_TRUE(contains(first_run_.output, "[step=12/12,epoch=1,eta=0:00:00]"));
  EXPECT_TRUE(contains(first_run_.output, "bigram"));
}

TEST_F(Cli, ExportCsvHasARowAStep) {
  const Result result = run({"export", "csv", finished()});
  EXPECT_EQ(result.code, 0) << result.errors;
  EXPECT_TRUE(result.output.starts_with("step,train/CE loss,")) << result.output.substr(0, 100);
  EXPECT_TRUE(contains(result.output, ",moe/block 0/assigned tokens[0],"));
  EXPECT_EQ(count(result.output, "\r\n"), kSteps + 1);
  const std::string file = folder("table.csv");
  EXPECT_EQ(run({"export", "csv", finished(), "--out", file}).output, "");
  EXPECT_EQ(read_bytes(file), result.output);
  expect_error(run({"export", "csv", folder("nowhere")}), 3, {"metrics.jsonl"});
}

TEST_F(Cli, ExportReportWritesItAnew) {
  const std::string dir = folder("killed before its report");
  std::filesystem::copy(finished(), dir);
  std::filesystem::remove(dir + "/report.html");
  const Result result = run({"export", "report", dir});
  EXPECT_EQ(result.code, 0) << result.errors;
  EXPECT_EQ(result.output, dir + "/report.html\n");
  EXPECT_TRUE(contains(read_bytes(dir + "/report.html"), "Tokens and their experts"));
  expect_error(run({"export", "report", folder("nowhere")}), 3, {"metrics.jsonl"});
}

// The parts of the final evaluation against its whole, and the routes against the tokens.
TEST_F(Cli, FinalEvaluationCountsEachDomainOnce) {
  std::optional<io::Json> final;
  for (io::Json& event : json_lines(finished() + "/events.jsonl")) {
    if (*event.find("event")->get<std::string>() == "final_evaluation") {
      final = std::move(event);
    }
  }
  ASSERT_TRUE(final.has_value());
  const io::Json::Array& domains = *final->find("domains")->get<io::Json::Array>();
  ASSERT_EQ(domains.size(), 2U);
  double sum = 0;
  double bigram_sum = 0;
  double targets = 0;
  for (const io::Json& domain : domains) {
    targets += number_at(domain, "targets");
    sum += number_at(domain, "targets") * number_at(domain, "ce");
    bigram_sum += number_at(domain, "targets") * number_at(domain, "bigram_ce");
  }
  EXPECT_NEAR(sum / targets, number_at(*final, "ce"), 1e-12);
  EXPECT_NEAR(bigram_sum / targets, number_at(*final, "bigram_ce"), 1e-12);
  const io::Json routing = json_of(read_bytes(finished() + "/routing.json"));
  const io::Json::Array& layers = *routing.find("counts")->get<io::Json::Array>();
  ASSERT_FALSE(layers.empty());
  for (const io::Json& layer : layers) {
    const io::Json::Array& rows = *layer.get<io::Json::Array>();
    ASSERT_EQ(rows.size(), domains.size());
    for (std::size_t domain = 0; domain < rows.size(); ++domain) {
      i64 routes = 0;
      for (const io::Json& count : *rows[domain].get<io::Json::Array>()) {
        routes += *count.get<i64>();
      }
      // A sequence of S tokens has S - 1 targets and S k routes.
      const double sequences = number_at(domains[domain], "targets") / (kSequence - 1);
      EXPECT_EQ(static_cast<double>(routes), sequences * kSequence * number_at(routing, "top_k"));
    }
  }
}

TEST_F(Cli, AStartThatFailsLeavesNoFolder) {
  const std::string dir = folder("unstarted");
  expect_error(run(train(dir, {"--data.dir=" + folder("no data")})), 3, {"no data"});
  EXPECT_FALSE(std::filesystem::exists(dir));
}

TEST_F(Cli, OutputThatIsNoTerminalIsPlain) { EXPECT_FALSE(contains(first_run_.output, {&kEscape, 1})); }

TEST_F(Cli, TerminalGetsALiveViewAndNoColorIsRespected) {
  const auto on_terminal = [](const std::string& name, std::vector<std::string> environment) {
    const Result result =
        run(train(folder(name)), {.environment = std::move(environment), .on_terminal = true});
    EXPECT_EQ(result.code, 0) << result.output;
    return result.output;
  };
  const std::string colored = on_terminal("colored", {"TERM=xterm"});
  EXPECT_TRUE(contains(colored, "\x1b[0;3"));
  const std::string colorless = on_terminal("colorless", {"TERM=xterm", "NO_COLOR=1"});
  EXPECT_TRUE(contains(colorless, {&kEscape, 1}));
  EXPECT_FALSE(contains(colorless, "\x1b[0;"));
  EXPECT_GT(colorless.rfind("\x1b[?25h"), colorless.rfind("\x1b[?25l")) << "the cursor stays hidden";
  EXPECT_FALSE(contains(on_terminal("dumb", {"TERM=dumb"}), {&kEscape, 1}));
}

TEST_F(Cli, FinishedRunHasNothingToDo) {
  const std::string metrics = read_bytes(finished() + "/metrics.jsonl");
  const Result again = run(train(finished()));
  EXPECT_EQ(again.code, 0) << again.errors;
  EXPECT_TRUE(contains(again.output, "nothing to do")) << again.output;
  EXPECT_EQ(read_bytes(finished() + "/metrics.jsonl"), metrics);
}

TEST_F(Cli, ResumeNeverRefusesAnExistingRun) {
  expect_error(run(train(finished(), {"--resume=never"})), 2,
               {"run.resume", finished(), "hint:", "--run.dir"});
}

TEST_F(Cli, UnknownKeyNamesTheNearest) {
  expect_error(run(train(folder("unused"), {"--model.moe.expert=8"})), 2,
               {"model.moe.expert", "model.moe.experts"});
  EXPECT_FALSE(std::filesystem::exists(folder("unused")));
}

TEST_F(Cli, MissingDataSaysHowToGetIt) {
  expect_error(run(train(folder("none"), {"--data.dir=" + folder("nowhere")})), 3,
               {folder("nowhere"), "hint:", "wych data prepare --out " + folder("nowhere")});
}

TEST_F(Cli, VocabularyMustHoldTheData) {
  expect_error(run(train(folder("none"), {"--model.vocab_size=100"})), 2,
               {"model.vocab_size", "100", "hint:", "--model.vocab_size="});
}

TEST_F(Cli, CorruptCheckpointIsNamed) {
  const std::string dir = folder("corrupt");
  ASSERT_EQ(run(train(dir)).code, 0);
  const std::string path = latest(dir) + "/model.safetensors";
  std::string bytes = read_bytes(path);
  bytes[bytes.size() - 100] = static_cast<char>(bytes[bytes.size() - 100] ^ 1);
  io::write_bytes(path, bytes);
  expect_error(run(train(dir, {"--run.max_steps=20"})), 4, {path});
  expect_error(run({"inspect", dir, "--verify"}), 4, {path});
}

TEST_F(Cli, DivergenceEndsTheRunWithItsCode) {
  const std::string dir = folder("diverged");
  const Result result = run(train(dir, {"--optimizer.lr=1e30", "--optimizer.max_consecutive_non_finite=3"}));
  expect_error(result, 5, {"not finite", "hint:", "--optimizer.lr"});
  EXPECT_TRUE(contains(read_bytes(dir + "/events.jsonl"), "non_finite"));
  EXPECT_TRUE(std::filesystem::exists(dir + "/report.html"));
}

TEST_F(Cli, PrintConfigShowsWhereValuesComeFrom) {
  const Result result = run(train(folder("unused"), {"--print-config"}));
  EXPECT_EQ(result.code, 0) << result.errors;
  EXPECT_TRUE(contains(result.output, "tiny.toml:3")) << result.output;
  EXPECT_TRUE(contains(result.output, "command line"));
  EXPECT_TRUE(contains(result.output, "experts = 4"));
  EXPECT_FALSE(std::filesystem::exists(folder("unused")));
}

TEST_F(Cli, PlanPrintsNumbersForPrograms) {
  const Result result = run({"plan", folder("tiny.toml"), "--json"});
  ASSERT_EQ(result.code, 0) << result.errors;
  const io::Json plan = json_of(result.output);
  EXPECT_GT(number_at(plan, "parameters"), number_at(plan, "active_parameters"));
  EXPECT_GT(number_at(plan, "step_seconds"), 0);
  ASSERT_NE(plan.find("fits"), nullptr);
  EXPECT_TRUE(*plan.find("fits")->get<bool>());
  ASSERT_NE(plan.find("ranks"), nullptr);
  ASSERT_EQ(plan.find("ranks")->get<io::Json::Array>()->size(), 1U);
  const io::Json run_plan = json_of(read_bytes(finished() + "/plan.json"));
  EXPECT_GT(number_at(run_plan, "total_bytes"), 0);
}

TEST_F(Cli, InspectListsTensors) {
  const Result result = run({"inspect", finished(), "--verify"});
  EXPECT_EQ(result.code, 0) << result.errors;
  for (const char* part : {"blocks.0.moe.w13", "[4, 32, 16]", "head.weight", "every byte agrees"}) {
    EXPECT_TRUE(contains(result.output, part)) << part << " is not in: " << result.output;
  }
}

TEST_F(Cli, EvaluationOfARunAgreesWithItsOwn) {
  const Result result =
      run({"eval", "--model", finished(), "--data", folder("data/text.valid.npy"), "--json"});
  ASSERT_EQ(result.code, 0) << result.errors;
  const io::Json measured = json_of(result.output);
  const io::Json logged = json_lines(finished() + "/metrics.jsonl").back();
  EXPECT_NEAR(number_at(measured, "CE loss"), number_at(logged, "eval/lm/text/CE loss"), 1e-5);
  EXPECT_GT(number_at(measured, "tokens"), 100);
}

TEST_F(Cli, EvaluationOfAHuggingFaceFolderMatchesItsLogits) {
  const std::string model = "tests/golden/olmoe";
  const io::SafetensorsFile expected =
      io::SafetensorsFile::open(model + "/expected.safetensors", ErrorKind::kData).value();
  const std::vector<i32> ids = expected.read<i32>("input_ids").value();  // [2, 40]
  const std::vector<float> logits = expected.read<float>("logits").value();
  const std::size_t length = ids.size() / 2;
  const std::size_t width = logits.size() / ids.size();
  double sum = 0;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    if ((t + 1) % length != 0) {
      double total = 0;
      for (std::size_t v = 0; v < width; ++v) {
        total += std::exp(static_cast<double>(logits[t * width + v]));
      }
      sum += std::log(total) - static_cast<double>(logits[t * width + static_cast<std::size_t>(ids[t + 1])]);
    }
  }
  const std::string file = folder("golden.npy");
  ASSERT_TRUE(data::write_token_file(file, data::TokenType::kU16, ids).has_value());
  const Result result =
      run({"eval", "--model", model, "--data", file, "--seq", std::to_string(length), "--json"});
  ASSERT_EQ(result.code, 0) << result.errors;
  const io::Json measured = json_of(result.output);
  EXPECT_EQ(number_at(measured, "tokens"), static_cast<double>(ids.size() - 2));
  EXPECT_NEAR(number_at(measured, "CE loss"), sum / static_cast<double>(ids.size() - 2), 1e-5);
}

TEST_F(Cli, SameSeedGeneratesTheSameText) {
  const auto generate = [](const std::string& seed) {
    const Result result = run({"generate", "--model", finished(), "--prompt", "the river ",
                               "--max-new-tokens", "8", "--seed", seed});
    EXPECT_EQ(result.code, 0) << result.errors;
    return result.output;
  };
  const std::string text = generate("1");
  EXPECT_TRUE(text.starts_with("the river ")) << text;
  EXPECT_EQ(generate("1"), text);
  EXPECT_NE(generate("2"), text);
}

// Runs that are stopped in the middle, beside one of the same length that was not.
TEST_F(Cli, TrainsUsesAndInspectsATokenizer) {
  const io::ScratchFolder scratch;
  const std::string text = scratch.path() + "/text.txt";
  const std::string file = scratch.path() + "/tokenizer.json";
  io::write_bytes(text, "the river and the bridge\nthe river and the water\n");
  const Result trained = run({"tokenizer", "train", "--out", file, "--vocab", "262", "--lines", text});
  EXPECT_EQ(trained.code, 0) << trained.errors;
  EXPECT_TRUE(contains(trained.errors, "MB/s")) << trained.errors;
  EXPECT_TRUE(contains(trained.output, "262 tokens")) << trained.output;
  const Result encoded = run({"tokenizer", "encode", file, "--lines", text, "--threads", "1"});
  EXPECT_EQ(encoded.code, 0) << encoded.errors;
  EXPECT_TRUE(contains(encoded.errors, "MB/s, 1 thread")) << encoded.errors;
  const data::Tokenizer tokenizer = data::Tokenizer::load(file).value();
  EXPECT_EQ(encoded.output,
            fmt::format("[{}]\n[{}]\n", fmt::join(tokenizer.encode("the river and the bridge"), ","),
                        fmt::join(tokenizer.encode("the river and the water"), ",")));
  const Result inspected = run({"tokenizer", "inspect", file});
  EXPECT_EQ(inspected.code, 0) << inspected.errors;
  EXPECT_TRUE(contains(inspected.output, "262 ids, 5 merges")) << inspected.output;
  EXPECT_TRUE(contains(inspected.output, "llama3")) << inspected.output;
}

TEST_F(Cli, SaysWhatIsWrongWithATokenizer) {
  expect_error(run({"tokenizer", "inspect", "none.json"}), 3, {"none.json"});
  expect_error(run({"tokenizer", "inspect", "byte", "--special", "x"}), 2, {"--special x", "CONTENT=ID"});
  expect_error(run({"tokenizer", "train", "--out", "x", "--vocab", "12", "y"}), 2, {"--vocab"});
  expect_error(run({"tokenizer", "train", "--out", "x", "--vocab", "300", "none.txt"}), 3, {"none.txt"});
}

class CliResume : public Cli {
 protected:
  static void SetUpTestSuite() {
    Cli::SetUpTestSuite();
    ASSERT_EQ(run(train_long(whole())).code, 0);
  }
  static std::string whole() { return folder("whole"); }

  // Starts a run and sends it a signal once it has printed step `step`; its exit code and output.
  static Result stopped_at(i64 step, int signal, const std::vector<std::string>& arguments) {
    ChildProcess child(command_line(arguments));
    EXPECT_TRUE(child.read_until(fmt::format("[step={}/", step)));
    child.send(signal);
    const int code = child.wait();
    return {code, child.output(), child.errors()};
  }

  static void expect_equals_whole(const std::string& run_dir) {
    EXPECT_EQ(losses(run_dir), losses(whole()));
    ASSERT_EQ(std::filesystem::path(latest(run_dir)).filename(), "step000120");
    for (const char* file : {"model", "optimizer", "state"}) {
      const std::string name = fmt::format("/{}.safetensors", file);
      EXPECT_TRUE(read_bytes(latest(run_dir) + name) == read_bytes(latest(whole()) + name)) << name;
    }
  }
};

TEST_F(CliResume, AnInterruptedRunGoesOnToTheBit) {
  const std::string dir = folder("interrupted");
  const Result first = stopped_at(3, SIGINT, train_long(dir));
  EXPECT_EQ(first.code, 0) << first.errors;
  EXPECT_TRUE(contains(first.output, "stopped at step")) << first.output;
  EXPECT_TRUE(contains(read_bytes(dir + "/report.html"), "of 120"));
  ASSERT_LT(std::ssize(losses(dir)), kLongSteps);
  const Result second = run(train_long(dir, {"--resume=auto"}));
  EXPECT_EQ(second.code, 0) << second.errors;
  EXPECT_EQ(count(second.output, "resumed"), 1) << second.output;
  EXPECT_TRUE(contains(second.output, "from " + dir)) << second.output;
  expect_equals_whole(dir);
}

TEST_F(CliResume, AKilledRunGoesOnToTheBit) {
  const std::string dir = folder("killed");
  const Result first = stopped_at(23, SIGKILL, train_long(dir));
  EXPECT_EQ(first.code, 128 + SIGKILL);
  const std::string checkpoint = latest(dir);
  ASSERT_NE(checkpoint, "no checkpoint");
  ASSERT_NE(std::filesystem::path(checkpoint).filename(), "step000120");
  const Result second = run(train_long(dir));
  EXPECT_EQ(second.code, 0) << second.errors;
  EXPECT_TRUE(contains(second.output, "from " + checkpoint + " after step")) << second.output;
  expect_equals_whole(dir);
}

TEST_F(CliResume, TwoProcessesDoNotShareAFolder) {
  const std::string dir = folder("shared");
  ChildProcess first(command_line(train_long(dir)));
  ASSERT_TRUE(first.read_until("[step=3/"));
  expect_error(run(train_long(dir)), 2, {dir});
  EXPECT_EQ(first.wait(), 0);
  expect_equals_whole(dir);
}

TEST_F(CliResume, RequeueSignalSavesAndExitsForTheScheduler) {
  const std::string dir = folder("requeued");
  const Result first = stopped_at(3, SIGUSR1, train_long(dir));
  EXPECT_EQ(first.code, 75) << first.errors;
  const i64 done = std::ssize(losses(dir));
  EXPECT_LT(done, kLongSteps);
  EXPECT_EQ(latest(dir), fmt::format("{}/checkpoints/step{:06}", dir, done));
  EXPECT_EQ(run(train_long(dir)).code, 0);
  expect_equals_whole(dir);
}

TEST_F(CliResume, CheckpointSignalSavesAndGoesOn) {
  const std::string dir = folder("saved");
  const Result result = stopped_at(3, SIGUSR2, train_long(dir, {"--checkpoint.interval=0"}));
  EXPECT_EQ(result.code, 0) << result.errors;
  i64 checkpoints = 0;
  for (const io::Json& event : json_lines(dir + "/events.jsonl")) {
    checkpoints += *event.find("event")->get<std::string>() == "checkpoint" ? 1 : 0;
  }
  EXPECT_EQ(checkpoints, 2);
  expect_equals_whole(dir);
}

// A dense model with windows, YaRN and norms after its sublayers through every command, and into Hugging
// Face's format and back.
TEST_F(Cli, ADenseModelTrainsAndConverts) {
  const std::string run_dir = folder("dense");
  const std::vector<std::string> model = {"--model.moe.experts=0",
                                          "--model.moe.top_k=0",
                                          "--model.dense_hidden=32",
                                          "--model.n_layers=2",
                                          "--model.norm=post",
                                          "--model.attention.qk_norm=full",
                                          "--model.attention.window_pattern=[8, 0]",
                                          "--model.attention.yarn.factor=4",
                                          "--model.attention.yarn.original_length=4"};
  const Result trained = run(train(run_dir, model));
  ASSERT_EQ(trained.code, 0) << trained.errors;
  EXPECT_TRUE(contains(trained.output, "2 layers, d_model 16, 2 heads of 8, 2 dense of 32, sequence 16"))
      << trained.output;
  EXPECT_FALSE(contains(trained.output, "experts")) << trained.output;
  EXPECT_LT(losses(run_dir).back().second, losses(run_dir).front().second);
  std::vector<std::string> plan = {"plan", folder("tiny.toml"), "--json"};
  plan.insert(plan.end(), model.begin(), model.end());
  const io::Json planned = json_of(run(plan).output);
  EXPECT_EQ(number_at(planned, "parameters"), number_at(planned, "active_parameters"));

  const std::string exported = folder("dense_hf");
  const Result converted =
      run({"convert", "--from", run_dir, "--to", exported, "--format", "hf", "--verify"});
  ASSERT_EQ(converted.code, 0) << converted.errors;
  EXPECT_TRUE(contains(converted.output, "Olmo3ForCausalLM")) << converted.output;
  EXPECT_TRUE(contains(converted.output, "differ by at most 0,")) << converted.output;
  const Result back = run({"convert", "--from", exported, "--to", folder("dense_back"), "--format", "wych"});
  ASSERT_EQ(back.code, 0) << back.errors;
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"eval", "--data", folder("data") + "/text.valid.npy"},
        std::vector<std::string>{"generate", "--prompt", "the ", "--max-new-tokens", "8"}}) {
    std::vector<std::string> outputs;
    for (const std::string& dir : {run_dir, exported, folder("dense_back")}) {
      std::vector<std::string> whole = command;
      whole.insert(whole.end(), {"--model", dir});
      const Result result = run(whole);
      ASSERT_EQ(result.code, 0) << result.errors;
      outputs.push_back(result.output);
    }
    EXPECT_EQ(outputs[0], outputs[1]);
    EXPECT_EQ(outputs[0], outputs[2]);
  }
  EXPECT_EQ(run({"inspect", exported}).code, 0);
  EXPECT_EQ(run({"inspect", folder("dense_back"), "--verify"}).code, 0);
}

TEST_F(Cli, ConvertRefusesByName) {
  const std::vector<std::string> convert = {"convert", "--to", folder("refused"), "--from"};
  const auto with = [&convert](std::vector<std::string> more) {
    std::vector<std::string> arguments = convert;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  expect_error(with({finished(), "--format", "hf"}), 2,
               {"model.moe.router.normalize_weights: is false; MixtralForCausalLM", "kept as wych's"});
  expect_error(with({finished(), "--format", "wych", "--dtype", "bf16"}), 2, {"--dtype: is bf16"});
  expect_error(with({folder("data"), "--format", "hf"}), 4, {"is neither a checkpoint nor a run folder"});
  expect_error(with({finished(), "--format", "gguf"}), 2, {"--format"});
  EXPECT_FALSE(std::filesystem::exists(folder("refused")));
}

}  // namespace
}  // namespace wych
