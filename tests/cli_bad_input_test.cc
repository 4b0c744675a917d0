// What a user can give the command that cannot be used: configurations, models of other programs, damaged
// checkpoints, runs of other settings, weights that are not numbers. Each is an error with its exit
// code that names the file or key, what was found, what was expected and what to do; it comes soon, and
// nothing that was there is lost.
#include <cstring>
#include <functional>
#include <limits>

#include "cli_fixture.h"

namespace wych {
namespace {

namespace fs = std::filesystem;
using io::read_bytes;
using io::write_bytes;
using Parts = std::vector<std::string>;

constexpr const char* kReference = "tests/golden/olmoe";  // 2 layers, 8 experts, vocabulary 320

void replace(std::string& text, std::string_view old, std::string_view with) {
  const std::size_t at = text.find(old);
  ASSERT_NE(at, std::string::npos) << old;
  text.replace(at, old.size(), with);
}

void edit(const std::string& path, std::string_view old, std::string_view with) {
  std::string text = read_bytes(path);
  replace(text, old, with);
  write_bytes(path, text);
}

class BadInput : public Cli {
 protected:
  static void SetUpTestSuite() {
    Cli::SetUpTestSuite();
    ASSERT_EQ(run(train(saved(), {"--checkpoint.interval=4", "--checkpoint.keep=3"})).code, 0);
  }
  // A finished run with checkpoints of steps 4, 8 and 12.
  static std::string saved() { return folder("saved"); }

  static Result go_on(const std::string& run_dir, const std::vector<std::string>& more = {}) {
    std::vector<std::string> options = {"--run.max_steps=16"};
    options.insert(options.end(), more.begin(), more.end());
    return run(train(run_dir, options));
  }

  static std::vector<std::vector<std::string>> uses_of(const std::string& model, const std::string& data) {
    return {{"eval", "--model", model, "--data", data, "--seq", "16"},
            {"generate", "--model", model, "--prompt", "the "},
            {"convert", "--from", model, "--to", folder("converted"), "--format", "wych"}};
  }
};

// --- configurations

TEST_F(BadInput, EveryFaultOfAConfigurationIsSaidAtOnce) {
  write_bytes(folder("bad.toml"),
              "[run]\nmax_stepz = 3\n[model]\nd_model = \"wide\"\nn_layers = 1.5\n[modle]\na = 1\n"
              "[model.moe]\nexperts = 4\ntop_k = 5\n");
  const std::string file = folder("bad.toml");
  const Result result = run({"train", file, "--run.dir=" + folder("none"), "--optimizer.lr=fast"});
  expect_error(result, 2,
               {file + ":2: run.max_stepz: unknown key", "did you mean run.max_steps?",
                file + ":4: model.d_model: found the string \"wide\", expected an integer",
                file + ":5: model.n_layers: found the number 1.5, expected an integer",
                file + ":6: modle: unknown section", file + ":10: model.moe.top_k: is 5, expected 1 to",
                "command line: optimizer.lr: found the string \"fast\", expected a number",
                "model.vocab_size: must be given", "hint: set it, or start from a preset",
                "data.dir: must be", "wych data prepare"});
  EXPECT_FALSE(contains(result.errors, "n_kv_heads")) << "follows from what is said: " << result.errors;
  EXPECT_FALSE(fs::exists(folder("none")));
}

TEST_F(BadInput, SizesThatDoNotFitTogetherAreNamed) {
  const std::vector<std::pair<std::vector<std::string>, Parts>> cases = {
      {{"--model.moe.top_k=8"}, {"model.moe.top_k: is 8, expected 1 to the number of experts, 4"}},
      {{"--model.attention.n_kv_heads=3"}, {"model.attention.n_kv_heads: is 3", "the 2 query heads"}},
      {{"--model.attention.head_dim=7"}, {"model.attention.head_dim: is 7", "even"}},
      {{"--data.batch_sequences=5"}, {"data.microbatch_sequences: is 2", "5"}},
      {{"--data.batch_tokens=100"}, {"data.batch_tokens"}},
      {{"--run.max_steps=-5"}, {"run.max_steps: is -5, expected between 0 and"}},
      {{"--run.max_steps=0"}, {"run.max_steps: must be given"}},
      {{"--model.vocab_size=2000000000"}, {"model.vocab_size: is 2000000000, expected between 1 and"}},
      {{"--model.d_model=100000000", "--model.vocab_size=1000000000"}, {"makes a model of", "parameters"}}};
  for (const auto& [options, parts] : cases) {
    expect_error(run(train(folder("none"), options)), 2, parts);
  }
  EXPECT_FALSE(fs::exists(folder("none")));
}

TEST_F(BadInput, AModelBeyondMemoryEndsWithItsCodeBeforeAFolderIsThere) {
  const Result result = run(train(folder("none"), {"--model.d_model=100000000"}));
  expect_error(result, 6, {"cannot get", "bytes", "hint: see `wych plan`"});
  EXPECT_FALSE(fs::exists(folder("none")));
}

TEST_F(BadInput, WhatIsNoConfigurationIsNamed) {
  write_bytes(folder("broken.toml"), "[run]\nname = \"x\n");
  write_bytes(folder("latin1.toml"), "[run]\nname = \"\xfc\"\n");
  const std::vector<std::pair<std::string, Parts>> cases = {
      {folder("nothing.toml"), {folder("nothing.toml"), "cannot open: No such file", "hint: check the path"}},
      {folder("data"), {folder("data"), "Is a directory", "hint: give a file"}},
      {folder("broken.toml"), {folder("broken.toml") + ":2", "malformed TOML"}},
      {folder("latin1.toml"), {folder("latin1.toml"), "malformed TOML"}},
      {"preset:lapdog", {"preset:lapdog: unknown preset", "laptop"}}};
  for (const auto& [file, parts] : cases) {
    expect_error(run({"train", file, "--run.dir=" + folder("none")}), 2, parts);
    expect_error(run({"plan", file}), 2, parts);
  }
}

TEST_F(BadInput, ARunFolderThatCannotBeIsNamed) {
  for (const std::string& dir : {folder("tiny.toml"), folder("tiny.toml/below")}) {
    expect_error(run(train(dir)), 3, {dir + ": cannot create the run folder", "hint: choose another"});
  }
}

// Each kind of failed start, on a folder that is not there and on one that holds a run.
TEST_F(BadInput, AFailedStartLeavesEverythingAsItWas) {
  write_bytes(folder("hole.npy"), "");
  const std::vector<std::vector<std::string>> starts = {
      {"--data.dir=" + folder("nowhere")},
      {"--data.dir=", "--data.paths=" + folder("hole.npy"), "--data.eos_id=0", "--log.sample_interval=0"},
      {"--log.sample_prompt=" + std::string(400, 'x')},
      {"--model.d_model=100000000"},
      {"--model.sequence_length=100000"},
      {"--resume=" + folder("nowhere")}};
  const std::string dir = copy_of(saved(), "kept");
  const std::string metrics = read_bytes(dir + "/metrics.jsonl");
  const std::string config = read_bytes(dir + "/config.toml");
  for (const std::vector<std::string>& start : starts) {
    EXPECT_NE(run(train(folder("none"), start)).code, 0) << start.front();
    EXPECT_FALSE(fs::exists(folder("none"))) << start.front();
    EXPECT_NE(go_on(dir, start).code, 0) << start.front();
    EXPECT_EQ(read_bytes(dir + "/metrics.jsonl"), metrics) << start.front();
    EXPECT_EQ(read_bytes(dir + "/config.toml"), config) << start.front();
  }
  EXPECT_EQ(go_on(dir).code, 0);
}

// --- runs and checkpoints

TEST_F(BadInput, AFolderWithAnotherRunIsRefusedByTheSettingsThatDiffer) {
  const std::vector<std::tuple<std::vector<std::string>, int, Parts>> cases = {
      {{"--model.d_model=32"}, 4, {"expected f32 [32, 16]", "model.d_model 16 -> 32", "--run.dir"}},
      {{"--model.n_layers=2"}, 4, {"blocks.1.", "model.n_layers 1 -> 2"}},
      {{"--model.moe.experts=8"}, 4, {"router.weight", "model.moe.experts 4 -> 8"}},
      {{"--precision.compute=f64"}, 4, {"precision.compute"}},
      {{"--model.moe.experts=0", "--model.moe.top_k=0", "--model.dense_hidden=32"},
       4,
       {"is not part of this model", "model.moe.experts 4 -> 0"}},
      {{"--data.seed=9"}, 3, {"data.seed", "--run.dir"}},
      {{"--model.sequence_length=32"}, 3, {"model.sequence_length"}},
      {{"--optimizer.skip_step.enabled=true"}, 2, {"optimizer.skip_step", "hint: resume with the same"}}};
  const std::string dir = copy_of(saved(), "other");
  const std::string metrics = read_bytes(dir + "/metrics.jsonl");
  for (const auto& [options, code, parts] : cases) {
    const Result result = go_on(dir, options);
    expect_error(result, code, parts);
    EXPECT_TRUE(contains(result.errors, dir + "/checkpoints/step000012")) << result.errors;
    EXPECT_EQ(read_bytes(dir + "/metrics.jsonl"), metrics);
  }
  EXPECT_EQ(go_on(dir).code, 0);
  const std::string fresh = folder("unbroken");
  fs::remove_all(fresh);
  ASSERT_EQ(go_on(fresh, {"--schedule.type=wsd"}).code, 0);
}

// One checkpoint damaged in every way: the file is named, nothing is changed, and the one before goes on.
TEST_F(BadInput, ADamagedCheckpointIsNamedAndTheOneBeforeGoesOn) {
  const auto cut = [](const std::string& path) { fs::resize_file(path, fs::file_size(path) / 2); };
  const auto flip = [](const std::string& path) {
    std::string bytes = read_bytes(path);
    bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 1);
    write_bytes(path, bytes);
  };
  const auto remove = [](const std::string& path) { fs::remove(path); };
  const auto empty = [](const std::string& path) { write_bytes(path, ""); };
  const std::vector<std::function<void(const std::string&)>> damages = {cut, flip, remove, empty};
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.safetensors", "index.json"}) {
    for (const auto& damage : damages) {
      const std::string dir = copy_of(saved(), "damaged");
      const std::string newest = dir + "/checkpoints/step000012";
      const std::string before = dir + "/checkpoints/step000008";
      damage(newest + "/" + file);
      const Result result = go_on(dir);
      const bool is_gone = !fs::exists(newest + "/index.json");  // then it is none
      expect_error(result, 4,
                   {is_gone ? dir + "/checkpoints/latest: names step000012" : newest + "/" + file, "hint: "});
      EXPECT_TRUE(is_gone || contains(result.errors, "--resume=" + before)) << result.errors;
      expect_error(run({"inspect", newest, "--verify"}), 4, {newest});
      EXPECT_EQ(fs::path(io::list_checkpoints(dir).front()).filename(), "step000004");
      const Result from = go_on(dir, {"--resume=" + before});
      EXPECT_EQ(from.code, 0) << from.errors;
      EXPECT_EQ(std::ssize(losses(dir)), 16);
      EXPECT_EQ(fs::path(latest(dir)).filename(), "step000016");
    }
  }
}

TEST_F(BadInput, WithoutAPointerTheNewestCheckpointCounts) {
  const std::string dir = copy_of(saved(), "pointerless");
  for (const char* junk : {"", "junk", "step9", "../saved"}) {
    write_bytes(dir + "/checkpoints/latest", junk);
    expect_error(go_on(dir), 4,
                 {dir + "/checkpoints/latest: holds", "expected the name of a checkpoint", "hint:"});
  }
  fs::remove(dir + "/checkpoints/latest");
  fs::create_directories(dir + "/checkpoints/step000099");  // no index: never complete
  const Result result = go_on(dir);
  EXPECT_EQ(result.code, 0) << result.errors;
  EXPECT_TRUE(contains(result.output, "from " + dir + "/checkpoints/step000012")) << result.output;
}

TEST_F(BadInput, ACheckpointsChangedConfigurationIsNotBelieved) {
  const std::string dir = copy_of(saved(), "edited");
  const std::string config = dir + "/checkpoints/step000012/config.toml";
  edit(config, "top_k = 2", "top_k = 1");  // would fit every tensor
  for (const std::vector<std::string>& use : uses_of(dir, folder("data/text.valid.npy"))) {
    expect_error(run(use), 4, {config, "was changed after the checkpoint was saved", "hint: put it back"});
  }
  expect_error(run({"inspect", dir}), 4, {config});
  expect_error(go_on(dir), 4, {config});
}

TEST_F(BadInput, ForeignMetricsAreNamedByLineAndNotCut) {
  const std::string dir = copy_of(saved(), "foreign");
  for (const char* line : {"{\"loss\": 3}\n", "garbage\n"}) {
    const std::string text = line + read_bytes(saved() + "/metrics.jsonl");
    write_bytes(dir + "/metrics.jsonl", text);
    expect_error(go_on(dir), 3, {dir + "/metrics.jsonl:1", "hint: move the file away"});
    EXPECT_EQ(read_bytes(dir + "/metrics.jsonl"), text);
  }
  fs::remove(dir + "/metrics.jsonl");
  EXPECT_EQ(go_on(dir).code, 0);
}

TEST_F(BadInput, WhatIsNoModelIsNamed) {
  for (const std::string& dir : {folder("nowhere"), folder("data"), folder("tiny.toml")}) {
    for (const std::vector<std::string>& use : uses_of(dir, folder("data/text.valid.npy"))) {
      expect_error(run(use), 4, {dir + ": is neither a checkpoint nor a run folder with one"});
    }
  }
  expect_error(run({"inspect", folder("data")}), 2, {"is a data folder", "hint: wych data inspect"});
}

// --- folders of Hugging Face

// The header of a safetensors file and what is behind it.
struct Safetensors {
  std::string header;
  std::string data;

  static Safetensors read(const std::string& path) {
    const std::string bytes = read_bytes(path);
    u64 length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    return {bytes.substr(sizeof length, length), bytes.substr(sizeof length + length)};
  }
  void write(const std::string& path) const {
    const u64 length = header.size();
    std::string prefix(sizeof length, '\0');
    std::memcpy(prefix.data(), &length, sizeof length);
    write_bytes(path, prefix + header + data);
  }
};

TEST_F(BadInput, WeightsThatLieAreNamedByFileAndTensor) {
  const std::string first = R"("lm_head.weight":{"dtype":"F32","shape":[320,64],"data_offsets":[0,81920]})";
  const std::string norm = "model.norm.weight";
  const std::vector<std::pair<std::function<void(Safetensors&)>, Parts>> cases = {
      {[&](Safetensors& f) { replace(f.header, "[0,81920]", "[81920,163840]"); },
       {"the end of the tensor before it"}},
      {[&](Safetensors& f) { replace(f.header, "[320,64]", "[4611686018427387904,4]"); }, {"is too large"}},
      {[&](Safetensors& f) { replace(f.header, "[320,64]", "[-320,-64]"); }, {"extent"}},
      {[&](Safetensors& f) { replace(f.header, "[320,64]", "[64,320]"); },
       {"lm_head.weight", "has shape [64, 320], the config expects [320, 64]"}},
      {[&](Safetensors& f) { replace(f.header, first, first + "," + first); }, {"stands twice"}},
      {[&](Safetensors& f) { replace(f.header, "lm_head", "lm_haed"); },
       {"lm_haed.weight: is not a tensor of this model", "lm_head.weight: is missing"}},
      {[&](Safetensors& f) { replace(f.header, "\"F32\"", "\"F4\""); }, {"unknown dtype"}},
      {[&](Safetensors& f) { replace(f.header, "\"F32\"", "\"I32\""); }, {"dtype I32, expected F32"}},
      {[&](Safetensors& f) { f.header.resize(f.header.size() / 2); }, {"header: malformed JSON"}},
      {[&](Safetensors& f) { f.data.resize(f.data.size() - 1000); }, {"lie outside the"}},
      {[&](Safetensors& f) { f.data += "more"; }, {"4 bytes behind the last tensor"}}};
  for (const auto& [change, parts] : cases) {
    const std::string dir = copy_of(kReference, "lies");
    fs::copy_file(folder("data/tokenizer.json"), dir + "/tokenizer.json");
    Safetensors file = Safetensors::read(dir + "/model.safetensors");
    // The stored header's spaces are of no concern to the cases.
    std::erase(file.header, ' ');
    change(file);
    file.write(dir + "/model.safetensors");
    for (const std::vector<std::string>& use : uses_of(dir, folder("data/text.valid.npy"))) {
      Parts all = parts;
      all.push_back(dir + "/model.safetensors");
      expect_error(run(use), 3, all);
    }
    EXPECT_FALSE(fs::exists(folder("converted")));
  }
}

TEST_F(BadInput, FilesThatAreNotSafetensorsAreNamed) {
  std::string beyond(8, '\0');
  const u64 length = u64{1} << 60U;
  std::memcpy(beyond.data(), &length, sizeof length);
  const std::vector<std::pair<std::string, Parts>> cases = {
      {"", {"has 0 bytes, too few for a safetensors file"}},
      {"PK", {"has 2 bytes, too few"}},
      {beyond + "{}", {"announces a header of 1152921504606846976 bytes, but has 10 in all"}},
      {std::string(8000, 'x'), {"announces a header of"}},
      {std::string("\x02\0\0\0\0\0\0\0[]", 10), {"expected an object"}}};
  for (const auto& [bytes, parts] : cases) {
    const std::string dir = copy_of(kReference, "not_safetensors");
    write_bytes(dir + "/model.safetensors", bytes);
    Parts all = parts;
    all.insert(all.end(),
               {dir + "/model.safetensors", "hint: the file is incomplete, damaged or of another"});
    expect_error(run({"eval", "--model", dir, "--data", folder("data/text.valid.npy")}), 3, all);
    expect_error(run({"inspect", dir}), 3, all);
  }
  const std::string dir = copy_of(kReference, "not_safetensors");
  fs::remove(dir + "/model.safetensors");
  expect_error(run({"eval", "--model", dir, "--data", folder("data/text.valid.npy")}), 3,
               {dir + "/model.safetensors", "No such file", "hint:"});
}

// A config that is not that of the weights: said by name, soon, before memory is asked for, and not in
// thousands of lines.
TEST_F(BadInput, ConfigsThatLieAreNamedByKey) {
  const std::vector<std::tuple<std::string, std::string, Parts>> cases = {
      {"\"model_type\": \"olmoe\"",
       "\"model_type\": \"llama\"",
       {"model_type", "llama", "hint: supported are"}},
      {"\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 9", {"top_k", "is 9", "8"}},
      {"\"num_experts\": 8", "\"num_experts\": 8.5", {"num_experts: found the number 8.5", "an integer"}},
      {"\"vocab_size\": 320",
       "\"vocab_size\": 1000000000",
       {"model.embed_tokens.weight", "[1000000000, 64]"}},
      {"\"hidden_size\": 64", "\"hidden_size\": 128", {"has shape [64], the config expects [128]", "more"}},
      {"\"num_experts\": 8",
       "\"num_experts\": 1000000",
       {"/config.json: describes 2 layers of 1000000 experts"}},
      {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", {"layers.2.", "is missing", "more"}},
      {"{", "", {"malformed JSON"}}};
  for (const auto& [old, with, parts] : cases) {
    const std::string dir = copy_of(kReference, "lying_config");
    edit(dir + "/config.json", old, with);
    fs::copy_file(folder("data/tokenizer.json"), dir + "/tokenizer.json");
    Parts all = parts;
    all.push_back(dir);
    for (const std::vector<std::string>& use : uses_of(dir, "")) {
      if (use.front() != "eval") {  // which looks at its data first
        const Result result = run(use);
        expect_error(result, 3, all);
        EXPECT_LT(count(result.errors, "\n"), 42) << result.errors;
      }
    }
  }
}

// --- numbers that are none

// A copy of the saved run whose checkpoint of step 12 has its tensor `name` begin with a value that is not
// finite: written as a checkpoint is, so every hash is right.
void poison(const std::string& run_dir, const std::string& name) {
  const io::CheckpointReader reader = io::CheckpointReader::open(latest(run_dir)).value();
  std::vector<std::vector<std::byte>> bytes;
  std::vector<io::NamedTensor> tensors;
  for (const io::CheckpointReader::Entry& entry : reader.list()) {
    const auto size = static_cast<std::size_t>(entry.slices.back().end * dtype_bytes(entry.dtype));
    bytes.emplace_back(size);
    reader.read(entry.name, entry.dtype, entry.shape, bytes.back()).value();
    if (entry.name == name) {
      const float value = std::numeric_limits<float>::quiet_NaN();
      std::memcpy(bytes.back().data(), &value, sizeof value);
    }
    const std::string& file = entry.slices.front().file;
    const io::TensorKind kind = file.starts_with("model")       ? io::TensorKind::kModel
                                : file.starts_with("optimizer") ? io::TensorKind::kOptimizer
                                                                : io::TensorKind::kState;
    tensors.push_back({kind, entry.name, entry.dtype, entry.shape, {}});
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].content = [&bytes, i] { return std::span<const std::byte>(bytes[i]); };
  }
  ASSERT_TRUE(
      io::save_checkpoint(run_dir, reader.meta(), tensors, reader.config_text().value(), 0).has_value());
}

// The weights and moments of a step, as they are in its checkpoint.
std::string weights_at(const std::string& run_dir, i64 step) {
  const std::string dir = fmt::format("{}/checkpoints/step{:06}", run_dir, step);
  return read_bytes(dir + "/model.safetensors") + read_bytes(dir + "/optimizer.safetensors");
}

TEST_F(BadInput, WeightsThatAreNotFiniteEndWithTheirCodeAndAreNotTouched) {
  const std::string dir = copy_of(saved(), "poisoned");
  poison(dir, "final_norm.weight");
  for (const std::vector<std::string>& use : uses_of(dir, folder("data/text.valid.npy"))) {
    if (use.front() != "convert") {  // which carries the bits over, whatever they are
      expect_error(run(use), 5, {"finite", "hint: "});
    }
  }
  const std::vector<std::string> options = {"--optimizer.max_consecutive_non_finite=3",
                                            "--checkpoint.interval=1", "--checkpoint.keep=9",
                                            "--log.sample_interval=0"};
  const Result result = go_on(dir, options);
  expect_error(result, 5, {"step 15", "not finite, 3 step(s) in a row", "hint: the weights are those of"});
  EXPECT_EQ(count(result.output, "the update was not applied"), 2);
  EXPECT_EQ(weights_at(dir, 13), weights_at(dir, 12));
  EXPECT_EQ(weights_at(dir, 14), weights_at(dir, 12));
  EXPECT_FALSE(fs::exists(dir + "/checkpoints/step000015"));
  EXPECT_TRUE(contains(read_bytes(dir + "/events.jsonl"), "\"event\":\"error\""));
  const std::string halted = copy_of(saved(), "halted");
  poison(halted, "final_norm.weight");
  expect_error(go_on(halted, {"--optimizer.non_finite=halt", "--log.sample_interval=0"}), 5,
               {"step 13", "1 step(s) in a row"});
}

TEST_F(BadInput, ALearningRateThatIsTooLargeNeverReachesTheWeightsTwice) {
  const std::string dir = folder("too_fast");
  const Result result = run(train(dir, {"--optimizer.lr=1e30", "--optimizer.max_consecutive_non_finite=3",
                                        "--checkpoint.interval=1", "--checkpoint.keep=9"}));
  expect_error(result, 5, {"not finite, 3 step(s) in a row", "hint: ", "--optimizer.lr"});
  EXPECT_EQ(weights_at(dir, 2), weights_at(dir, 1));
  EXPECT_EQ(weights_at(dir, 3), weights_at(dir, 1));
}

}  // namespace
}  // namespace wych
