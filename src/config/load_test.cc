// Configuration from end to end: layers, overrides, provenance, errors, and every rule between keys.
#include "config/load.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "config/presets.h"

namespace wych::config {
namespace {

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "wych_config_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }

  std::filesystem::path folder_;
};
using Load = Folder;

constexpr const char* kRunnable = "extends = \"preset:laptop\"\nrun.max_steps = 100\ndata.dir = \"data\"\n";

Expected<Loaded> load_with(const std::string& source, std::vector<std::string> overrides,
                           LoadOptions options = {}) {
  return load(source, overrides, options);
}

// All messages of a load that must fail.
std::string errors(const std::string& source, std::vector<std::string> overrides = {},
                   LoadOptions options = {}) {
  const Expected<Loaded> loaded = load(source, overrides, options);
  EXPECT_FALSE(loaded.has_value()) << "expected an error";
  return loaded ? "" : loaded.error().text();
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in:\n" << text;
}

TEST_F(Load, LaterLayersReplaceEarlierOnesAndOriginsSaySo) {
  write("base.toml", "extends = \"preset:laptop\"\n[model]\nd_model = 256\nn_layers = 6\n");
  const std::string path = write("sub/a.toml",
                                 "extends = \"../base.toml\"\n[model]\nn_layers = 8\n[run]\nmax_steps = 5\n"
                                 "[data]\ndir = \"d\"\n");
  const Expected<Loaded> loaded =
      load_with(path, {"--model.moe.top_k=3", "optimizer.lr=1", "--run.name=007"});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().text();
  const Config& config = loaded->config;
  EXPECT_EQ(config.model.d_model, 256);
  EXPECT_EQ(config.model.n_layers, 8);
  EXPECT_EQ(config.model.moe.top_k, 3);
  EXPECT_EQ(config.optimizer.lr, 1.0);
  EXPECT_EQ(config.run.name, "007");
  EXPECT_EQ(config.run.dir, "runs/007");
  EXPECT_EQ(config.model.padded_vocab, 2048);
  const Origins& origins = loaded->origins;
  EXPECT_EQ(origins.at("model.vocab_size"), "preset laptop");
  EXPECT_TRUE(origins.at("model.d_model").ends_with("base.toml:3")) << origins.at("model.d_model");
  EXPECT_TRUE(origins.at("model.n_layers").ends_with("a.toml:3"));
  EXPECT_EQ(origins.at("model.moe.top_k"), "command line");
  EXPECT_EQ(origins.at("run.dir"), "derived");
  EXPECT_FALSE(origins.contains("optimizer.beta1"));
}

TEST_F(Load, PrintedConfigLoadsToAnEqualOne) {
  const Expected<Loaded> loaded =
      load_with(write("a.toml", kRunnable),
                {"--log.sample_prompt=\"a \\\"quoted\\\"\\n\\u0007 line\"", "--optimizer.eps=1e-300",
                 "--optimizer.lr=0.1", "--model.dense_layers=[1, 3]", "--model.dense_hidden=64",
                 "--data.batch_tokens=2048", "--model.attention.window_pattern=[4, 0]",
                 "--optimizer.skip_step.enabled=true"});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().text();
  EXPECT_EQ(loaded->config.data.batch_sequences, 16);
  const std::string text = to_toml(loaded->config, &loaded->origins);
  const Expected<Loaded> again = load_with(write("b.toml", text), {});
  ASSERT_TRUE(again.has_value()) << again.error().text();
  EXPECT_EQ(again->config, loaded->config);
  EXPECT_EQ(to_toml(again->config), to_toml(loaded->config));
  expect_contains(text, "# command line");
  expect_contains(text, "# preset laptop");
  expect_contains(text, "# default");
}

constexpr const char* kMixture =
    "extends = \"preset:laptop\"\nrun.max_steps = 100\ndata.eos_id = 5\n"
    "[data.source.web]\npaths = [\"web/*.npy\"]\nweight = 0.7\n"
    "[data.source.code-2]\npaths = \"code.bin\"\nvalid_paths = [\"a\", \"b\"]\nlabel = \"code\"\n";

TEST_F(Load, SourcesOfAMixtureAreNamedByTheUser) {
  const std::string path = write("a.toml", kMixture);
  const Expected<Loaded> loaded =
      load_with(path, {"--data.source.web.max_repetition=2", "--data.source.more.paths=[\"x\", \"y\"]"});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().text();
  const DataConfig& data = loaded->config.data;
  ASSERT_EQ(data.source.size(), 3U);
  EXPECT_EQ(data.source.at("web").weight, 0.7);
  EXPECT_EQ(data.source.at("web").max_repetition, 2.0);
  EXPECT_EQ(data.source.at("code-2").paths, std::vector<std::string>{"code.bin"});  // one string is a list
  EXPECT_EQ(data.source.at("code-2").valid_paths, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(data.source.at("more").paths, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(data.mixture_tokens, 100 * batch_tokens(loaded->config));  // the run's
  EXPECT_EQ(loaded->origins.at("data.mixture_tokens"), "derived");
  const Expected<Loaded> again = load_with(write("b.toml", to_toml(loaded->config)), {});
  ASSERT_TRUE(again.has_value()) << again.error().text();
  EXPECT_EQ(again->config, loaded->config);
}

TEST_F(Load, LayersAddToTheSourcesOfTheLayerBelow) {
  (void)write("base.toml", kMixture);
  const Expected<Loaded> loaded = load_with(
      write("a.toml",
            "extends = \"base.toml\"\n[data.source.web]\nweight = 2\n[data.source.wiki]\npaths = \"w\"\n"),
      {"--data.source.code-2.weight=0"});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().text();
  EXPECT_EQ(loaded->config.data.source.at("web").weight, 2.0);
  EXPECT_EQ(loaded->config.data.source.at("web").paths, std::vector<std::string>{"web/*.npy"});
  EXPECT_EQ(loaded->config.data.source.at("code-2").weight, 0.0);
  EXPECT_EQ(loaded->config.data.source.size(), 3U);
}

TEST_F(Load, RefusesSourcesThatCannotBeMeant) {
  const std::string path = write("a.toml", kMixture);
  expect_contains(errors(path, {"--data.source.web.weigth=1"}),
                  "command line: data.source.web.weigth: unknown key; did you mean data.source.web.weight?");
  expect_contains(errors(path, {"--data.source.web=1"}), "found the integer 1, but this is a section");
  expect_contains(errors(path, {"--data.source.\"a.b\".weight=1"}), "unknown");
  expect_contains(errors(path, {"--data.source.new.weight=1"}), "[data.source.new] has no paths");
  expect_contains(errors(path, {"--data.dir=d"}), "data.dir: is set beside [data.source.code-2]");
  expect_contains(errors(path, {"--data.source.web.weight=0", "--data.source.code-2.weight=0"}),
                  "every [data.source.NAME] has weight = 0");
  expect_contains(errors(path, {"--data.eos_id=-1"}), "data.tokenizer: must be given, or data.eos_id");
  expect_contains(errors(path, {"--data.source.web.max_repetition=0.5"}), "is 0.5, expected between 1 and");
  expect_contains(errors(path, {"--data.source.web.paths=[1]"}), "holds the integer 1, expected strings");
  expect_contains(errors(path, {"--data.source.web.paths=[\"\"]"}), "expected strings that are not empty");
}

TEST_F(Load, TheDataIsNamedInOneWay) {
  const std::string path = write("a.toml", kRunnable);
  const Expected<Loaded> loaded =
      load_with(path, {"--data.paths=a.npy", "--data.eos_id=5", "--data.valid_paths=[\"v*\"]"});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().text();  // replaces data.dir of the file
  EXPECT_EQ(loaded->config.data.dir, "");
  EXPECT_EQ(loaded->config.data.paths, std::vector<std::string>{"a.npy"});
  EXPECT_TRUE(load_with(path, {"--data.mix=m.txt", "--data.eos_id=5"}).has_value());
  expect_contains(errors(path, {"--data.paths=a", "--data.mix=b", "--data.eos_id=5"}),
                  "is set beside data.paths");
}

TEST_F(Load, ReportsAllErrorsInOnePassWithFileAndLine) {
  const std::string path =
      write("a.toml",
            "extends = \"preset:laptop\"\n[run]\nmax_steps = -1\n[model]\nd_modle = 64\n"
            "n_layers = \"four\"\nnorm = \"middle\"\n[modle.moe]\nx = 1\n[data]\ndir = \"d\"\n"
            "[optimizer]\nlr = nan\nbeta1 = 1.0\n");
  const std::string text = errors(path, {"--model.moe.topk=3", "--log.interval", "--model.moe.top_k=9"});
  expect_contains(text, "a.toml:3: run.max_steps: is -1, expected between 0 and 1000000000");
  expect_contains(text, "a.toml:5: model.d_modle: unknown key; did you mean model.d_model?");
  expect_contains(text, "a.toml:6: model.n_layers: found the string \"four\", expected an integer");
  expect_contains(text, "a.toml:7: model.norm: is \"middle\", expected one of \"pre\", \"post\", \"peri\"");
  expect_contains(text, "unknown section; did you mean model?");
  expect_contains(text, "a.toml:13: optimizer.lr: is nan");
  expect_contains(text, "a.toml:14: optimizer.beta1: is 1");
  expect_contains(text, "command line: model.moe.topk: unknown key; did you mean model.moe.top_k?");
  expect_contains(text, "command line: log.interval: has no value");
  expect_contains(text, "command line: model.moe.top_k: is 9, expected 1 to the number of experts, 8");
  EXPECT_EQ(text.find("modle.moe.x"), std::string::npos)
      << "content of an unknown section is not reported again";
  EXPECT_EQ(text.find("run.max_steps: must be given"), std::string::npos)
      << "no second error for a failed key";
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 9) << text;
}

TEST_F(Load, RefusesWrongTypesByKey) {
  const std::string path = write("a.toml", kRunnable);
  expect_contains(errors(path, {"--model.n_layers=4.0"}), "found the number 4, expected an integer");
  expect_contains(errors(path, {"--memory.poison=1"}), "found the integer 1, expected true or false");
  expect_contains(errors(path, {"--model.dense_layers=1"}),
                  "found the integer 1, expected a list of integers");
  expect_contains(errors(path, {"--model.dense_layers=[1, true]"}), "holds true, expected integers");
  expect_contains(errors(path, {"--model=3"}), "found the integer 3, but this is a section");
  expect_contains(errors(path, {"--run.seed={a = 1}"}), "found a table, expected an integer");
  expect_contains(errors(path, {"--model.moe={top_k = 3, topk = 3}"}), "model.moe.topk: unknown key");
  expect_contains(errors(path, {"--run.lr=1"}), "run.lr: unknown key; did you mean optimizer.lr?");
  expect_contains(errors(path, {"--extends=preset:laptop"}), "unknown key");
  expect_contains(errors(write("b.toml", "[run]\nname = 3\n")), "found the integer 3, expected a string");
  expect_contains(errors(write("c.toml", "run = 1999-01-01\n")), "found a date or time");
}

TEST_F(Load, RefusesBrokenFiles) {
  expect_contains(errors((folder_ / "none.toml").string()), "none.toml");
  expect_contains(errors(write("a.toml", "[run]\nseed = = 1\n")), "a.toml:2: malformed TOML");
  expect_contains(errors(write("b.toml", "[run]\nseed = 1\nseed = 2\n")), "b.toml:3: malformed TOML");
  expect_contains(errors(write("c.toml", "extends = 3\n")), "c.toml:1: extends: found the integer 3");
  expect_contains(errors("preset:tiny-64"), "preset:tiny-64: unknown preset; did you mean preset:tiny-64e?");
  write("x.toml", "extends = \"y.toml\"\n");
  expect_contains(errors(write("y.toml", "extends = \"./x.toml\"\n")), "extends itself in the end");
  std::string bytes(512, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i * 37);
  }
  expect_contains(errors(write("d.toml", bytes)), "malformed TOML");
}

TEST_F(Load, NoDamagedTextCrashesAndWhatLoadsIsValid) {
  const std::string text =
      std::string(find_preset("laptop").value()->toml) + "dir = \"d\"\n[run]\nmax_steps = 3\n";
  ASSERT_TRUE(load_with(write("a.toml", text), {}).has_value());
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    const Expected<Loaded> loaded = load_with(write("a.toml", damaged), {});
    EXPECT_TRUE(!loaded || validate(loaded->config, 1, Purpose::kTrain).empty());
    EXPECT_TRUE(loaded || !loaded.error().where.empty());
    EXPECT_FALSE(load_with(write("a.toml", text.substr(0, at)), {}).has_value() && at + 2 < text.size())
        << at;
  }
}

TEST_F(Load, KeysThatExcludeEachOtherReplaceLowerLayersButNotTheirOwn) {
  const std::string path = write("a.toml", std::string(kRunnable) + "data.batch_sequences = 8\n");
  const Expected<Loaded> loaded = load_with(path, {"--data.batch_tokens=512", "--run.max_tokens=1000"});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().text();
  EXPECT_EQ(loaded->config.data.batch_sequences, 4);
  EXPECT_EQ(loaded->config.run.max_steps, 0);
  EXPECT_EQ(total_steps(loaded->config), 2);
  expect_contains(errors(path, {"--run.max_tokens=1000", "--run.max_steps=5"}),
                  "run.max_steps: is set beside run.max_tokens");
}

struct Rule {
  std::vector<std::string> overrides;
  std::string message;
  LoadOptions options = {};
};

TEST_F(Load, EveryRuleBetweenKeysRefusesByName) {
  const std::string path = write("a.toml", kRunnable);
  ASSERT_TRUE(load_with(path, {}).has_value()) << load_with(path, {}).error().text();
  const std::vector<Rule> rules = {
      {{"--model.moe.top_k=9"}, "model.moe.top_k: is 9"},
      {{"--model.moe.top_k=0"}, "model.moe.top_k: is 0"},
      {{"--model.moe.expert_hidden=0"}, "model.moe.expert_hidden: must be given"},
      {{"--model.moe.experts=0"}, "model.dense_hidden: must be given: 4 of 4 layers are dense"},
      {{"--model.first_dense_layers=1"}, "model.dense_hidden: must be given: 1 of 4"},
      {{"--model.first_dense_layers=5"}, "model.first_dense_layers: is 5 of 4 layers"},
      {{"--model.first_dense_layers=4", "--model.dense_hidden=8"},
       "model.moe.experts: is 8, but every layer"},
      {{"--model.dense_layers=[4]", "--model.dense_hidden=8"}, "model.dense_layers: names layer 4"},
      {{"--model.attention.n_heads=5"}, "model.attention.n_kv_heads: is 2, which does not divide the 5"},
      {{"--model.attention.head_dim=31"}, "model.attention.head_dim: is 31"},
      {{"--model.attention.head_dim=0"}, "model.attention.head_dim: must be given"},
      {{"--model.padded_vocab=2000"}, "model.padded_vocab: is 2000, below"},
      {{"--model.attention.window_pattern=[1,2,3,4,5]"}, "model.attention.window_pattern: has 5 windows"},
      {{"--model.attention.yarn.factor=8"}, "model.attention.yarn.original_length: must be given"},
      {{"--model.attention.yarn.factor=0.5"}, "model.attention.yarn.factor: is 0.5, expected between 1"},
      {{"--model.attention.yarn.attention_factor=1.2"},
       "model.attention.yarn.factor: is 1, which leaves the other keys"},
      {{"--model.attention.yarn.factor=8", "--model.attention.yarn.original_length=64",
        "--model.attention.yarn.beta_slow=32"},
       "model.attention.yarn.beta_fast: is 32, expected above beta_slow, 32"},
      {{"--model.attention.yarn.factor=8", "--model.attention.yarn.original_length=64",
        "--model.attention.rope_theta=1"},
       "model.attention.rope_theta: is 1; YaRN needs one above 1"},
      {{"--model.attention.yarn.factor=8", "--model.attention.yarn.original_length=64",
        "--model.attention.window=16"},
       "model.attention.yarn.factor: has no effect: every layer has a window"},
      {{"--model.d_model=1000000000", "--model.vocab_size=1000000000"}, "makes a model of"},
      {{"--data.batch_tokens=100"}, "data.batch_tokens: is 100, not a multiple"},
      {{"--data.microbatch_sequences=5"}, "data.microbatch_sequences: is 5, which does not divide"},
      {{"--data.batch_sequences=0"}, "data.batch_sequences: must be given"},
      {{"--data.batch_sequences=16777216"},
       "data.microbatch_sequences: makes a microbatch of 16777216 sequences x 128 tokens, more"},
      {{"--data.batch_sequences=8388608"},
       "data.microbatch_sequences: makes a microbatch of 8388608 sequences x 128 tokens x top-2"},
      {{"--model.moe.experts=20000000"}, "with the padding of 20000000 experts more than 2^31 - 1 rows"},
      {{"--data.batch_sequences=16385", "--data.microbatch_sequences=1"},
       "data.microbatch_sequences: is 1: a rank's 16385 of data.batch_sequences = 16385 make 16385 "
       "microbatches"},
      {{"--data.dir="},
       "data.dir: must be given, or data.paths, data.mix or a [data.source.NAME]; make a folder "
       "with `wych data prepare --out DIR`"},
      {{"--data.paths=a"}, "data.tokenizer: must be given, or data.eos_id"},
      {{"--data.valid_paths=a"}, "data.valid_paths: belongs to data.paths or data.mix"},
      {{"--data.label_masks=a"}, "data.label_masks: belongs to data.paths"},
      {{"--data.mix_root=a"}, "data.mix_root: belongs to data.mix"},
      {{"--data.eos_id=3"}, "data.dir: says itself what"},
      {{"--data.packing=true", "--data.document_mask=false"},
       "data.packing: needs data.document_mask = true"},
      {{"--data.packing=true", "--data.document_mask=true", "--data.targets=t+1"},
       "data.packing: needs data.targets = \"olmo\""},
      {{"--data.mixture_tokens=3"}, "data.mixture_tokens: is the size of a mixture"},
      {{"--run.max_steps=0"}, "run.max_steps: must be given"},
      {{"--run.resume="}, "run.resume: is empty"},
      {{"--optimizer.skip_step.min_steps=129"}, "optimizer.skip_step.min_steps: is 129"},
      {{"--schedule.type=wsd"}, "schedule.decay_fraction: must be given"},
      {{"--schedule.decay_steps=5"}, "only \"wsd\" has a decay"},
      {{"--schedule.warmup_steps=101"}, "warm-up (101 steps) and decay (0) are longer than the run (100)"},
      {{"--parallel.ep=3"}, "parallel.ep: is 3, which does not divide the 8 experts", {.world = 3}},
      {{"--parallel.ep=2"}, "does not make 1 rank;", {}},
      {{"--parallel.pp=5"}, "parallel.pp: is 5 stages for 4 layers", {.world = 5}},
      {{}, "data.batch_sequences: is 16 sequences, which do not divide over dp x ep = 3", {.world = 3}},
      {{"--model.moe.experts=0", "--model.dense_hidden=8", "--parallel.ep=2"},
       "the model has no experts",
       {.world = 2}},
      {{"--model.moe.router.balance_loss.scope=global_exact", "--data.microbatch_sequences=4"},
       "\"global_exact\" needs"},
      {{"--model.moe.router.balance_loss.scope=hf_joint", "--parallel.pp=2"},
       "\"hf_joint\" joins",
       {.world = 2}},
      {{"--precision.compute=bf16", "--run.device=cpu"}, "\"bf16\" is not available on the CPU"},
      {{"--precision.compute=f64", "--run.device=cuda"}, "\"f64\" is for checks"},
      {{"--memory.alignment=8"}, "memory.alignment: is 8"},
      {{"--memory.recompute_layers=[1]"}, "memory.recompute is \"none\""},
      {{"--memory.recompute_layers=[9]", "--memory.recompute=block"}, "names layer 9"},
  };
  for (const Rule& rule : rules) {
    SCOPED_TRACE(rule.message);
    expect_contains(errors(path, rule.overrides, rule.options), rule.message);
  }
}

TEST_F(Load, MicrobatchesAndThreadsMayBeAsManyAsTheBound) {
  const std::string path = write("a.toml", kRunnable);
  const Expected<Loaded> loaded = load_with(
      path, {"--data.batch_sequences=16384", "--data.microbatch_sequences=1", "--run.threads=1024"});
  EXPECT_TRUE(loaded.has_value()) << loaded.error().text();
  EXPECT_TRUE(load_with(path, {"--data.batch_sequences=32768", "--data.microbatch_sequences=1"}, {.world = 2})
                  .has_value());
  expect_contains(errors(path, {"--run.threads=1025"}), "run.threads: is 1025, expected between 0 and 1024");
}

TEST_F(Load, WorldSetsDataParallelism) {
  const std::string path = write("a.toml", kRunnable);
  const Expected<Loaded> loaded = load_with(path, {"--parallel.ep=2"}, {.world = 8});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().text();
  EXPECT_EQ(loaded->config.parallel.dp, 4);
  const Expected<Loaded> as_written = load_with(path, {"--parallel.ep=4", "--parallel.dp=2"}, {.world = 0});
  EXPECT_TRUE(as_written.has_value()) << as_written.error().text();
}

TEST_F(Load, GlobalExactIsAllowedWithOneMicrobatch) {
  const std::string path = write("a.toml", kRunnable);
  const std::string scope = "--model.moe.router.balance_loss.scope=global_exact";
  EXPECT_TRUE(load_with(path, {scope}).has_value());
  EXPECT_TRUE(load_with(path, {scope, "--data.microbatch_sequences=8"}, {.world = 2}).has_value());
}

TEST(LaptopRecipe, IsValid) {
  const Expected<Loaded> loaded = load_with("configs/laptop.toml", {});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().text();
  EXPECT_EQ(loaded->config.run.dir, "runs/laptop");
  EXPECT_GT(decay_steps(loaded->config), 0);
}

}  // namespace
}  // namespace wych::config
