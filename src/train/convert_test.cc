// Conversion between Hugging Face folders and wych's: bitwise round trips of every reference model, shards,
// bf16, refusals, and that a failure leaves nothing behind.
#include "train/convert.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "config/schema.h"
#include "data/tokenizer.h"
#include "io/checkpoint.h"
#include "io/huggingface.h"
#include "io/safetensors.h"
#include "model/parameters.h"
#include "train/evaluate.h"

namespace wych::train {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kModels = {"olmoe",      "olmoe_tied", "olmo2",   "olmo2_documents", "olmo3",
                                          "olmo3_yarn", "flex_olmo",  "mixtral", "qwen3_moe"};

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in:\n" << text;
}

class Convert : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "wych_convert_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }

  Expected<Conversion> run(ConvertRequest request) { return convert(request, pool_); }
  void to_hf(const std::string& from, const std::string& to) {
    const Expected<Conversion> done = run({.from = from, .to = to, .verify = true});
    ASSERT_TRUE(done.has_value()) << done.error().text();
    EXPECT_EQ(done->verification->largest_difference, 0.0);
    EXPECT_GT(done->verification->largest_logit, 0.0);
  }
  void to_wych(const std::string& from, const std::string& to) {
    const Expected<Conversion> done =
        run({.from = from, .to = to, .format = ModelFormat::kWych, .verify = true});
    ASSERT_TRUE(done.has_value()) << done.error().text();
    EXPECT_EQ(done->verification->largest_difference, 0.0);
  }
  std::string error(ConvertRequest request) {
    const Expected<Conversion> done = run(std::move(request));
    return done ? "" : done.error().text();
  }
  // Every entry of the test's folder.
  [[nodiscard]] std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  // A run folder with a checkpoint of the given model, every weight `value`.
  std::string write_run(const std::string& name, const config::ModelConfig& model, float value = 0.5F) {
    config::Config config;
    config.model = model;
    config.data.batch_sequences = 1;
    std::vector<std::vector<float>> values;
    std::vector<io::NamedTensor> tensors;
    const std::vector<model::Parameter> parameters = model::parameters(model);
    values.reserve(parameters.size());
    for (const model::Parameter& parameter : parameters) {
      const std::span<const i64> shape = parameter.shape.dims();
      values.emplace_back(static_cast<std::size_t>(parameter.shape.elements()), value);
      tensors.push_back({io::TensorKind::kModel,
                         parameter.name,
                         DType::kF32,
                         {shape.begin(), shape.end()},
                         [bytes = std::as_bytes(std::span(values.back()))] { return bytes; }});
    }
    EXPECT_TRUE(
        io::save_checkpoint(path(name), {.step = 7}, tensors, config::to_toml(config), 0).has_value());
    return path(name);
  }

  std::string folder_;
  ThreadPool pool_{2};
};

io::SafetensorsFile open(const std::string& file) {
  return io::SafetensorsFile::open(file, ErrorKind::kData).value();
}

void expect_same_tensors(const std::string& a, const std::string& b) {
  const io::SafetensorsFile first = open(a);
  const io::SafetensorsFile second = open(b);
  ASSERT_EQ(first.tensors().size(), second.tensors().size());
  for (const io::TensorView& view : first.tensors()) {
    const io::TensorView* other = second.find(view.name);
    ASSERT_NE(other, nullptr) << view.name;
    EXPECT_EQ(view.type, other->type) << view.name;
    EXPECT_EQ(view.shape, other->shape) << view.name;
    ASSERT_EQ(view.bytes.size(), other->bytes.size()) << view.name;
    EXPECT_EQ(std::memcmp(view.bytes.data(), other->bytes.data(), view.bytes.size()), 0) << view.name;
  }
}

TEST_F(Convert, EveryReferenceModelComesBackWithItsBits) {
  for (const std::string& model : kModels) {
    SCOPED_TRACE(model);
    const std::string source = "tests/golden/" + model;
    to_wych(source, path(model + ".wych"));
    to_hf(path(model + ".wych"), path(model + ".hf"));
    to_wych(path(model + ".hf"), path(model + ".again"));
    expect_same_tensors(source + "/model.safetensors", path(model + ".hf/model.safetensors"));
    expect_same_tensors(path(model + ".wych/checkpoints/step000000/model.safetensors"),
                        path(model + ".again/checkpoints/step000000/model.safetensors"));
    EXPECT_EQ(read_model_config(path(model + ".hf"))->model, read_model_config(source)->model);
    EXPECT_EQ(open(path(model + ".hf/model.safetensors")).metadata().at("format"), "pt");
  }
}

TEST_F(Convert, ShardsCarryAnIndexAndReadBack) {
  const std::string source = "tests/golden/mixtral";
  const Expected<Conversion> done =
      run({.from = source, .to = path("out"), .verify = true, .shard_bytes = 100'000});
  ASSERT_TRUE(done.has_value()) << done.error().text();
  i64 files = 0;
  for (const auto& entry : fs::directory_iterator(path("out"))) {
    if (entry.path().extension() == ".safetensors") {
      ++files;
      EXPECT_LE(entry.file_size(), 110'000U) << entry.path();
    }
  }
  EXPECT_EQ(files, 8);
  EXPECT_TRUE(fs::exists(path("out/model-00001-of-00008.safetensors")));
  expect_contains(read_file(path("out/model.safetensors.index.json"), ErrorKind::kData).value(),
                  fmt::format("\"total_size\": {}", done->bytes));
  to_hf(path("out"), path("one"));
  expect_same_tensors(source + "/model.safetensors", path("one/model.safetensors"));
}

TEST_F(Convert, Bf16IsRoundedToNearestEvenAndComesBackWithItsBits) {
  ASSERT_EQ(error({.from = "tests/golden/olmo3", .to = path("half"), .dtype = DType::kBF16}), "");
  const io::SafetensorsFile exact = open("tests/golden/olmo3/model.safetensors");
  const io::SafetensorsFile half = open(path("half/model.safetensors"));
  for (const io::TensorView& view : exact.tensors()) {
    const std::vector<float> before = exact.read<float>(view.name).value();
    const std::vector<float> after = half.read<float>(view.name).value();
    EXPECT_EQ(half.find(view.name)->type, io::StoredType::kBF16);
    for (std::size_t i = 0; i < before.size(); ++i) {
      ASSERT_EQ(after[i], static_cast<float>(bf16(before[i]))) << view.name;
    }
  }
  to_wych(path("half"), path("wych"));
  const Expected<Conversion> back =
      run({.from = path("wych"), .to = path("back"), .dtype = DType::kBF16, .verify = true});
  ASSERT_TRUE(back.has_value()) << back.error().text();
  EXPECT_EQ(back->verification->largest_difference, 0.0);
  expect_same_tensors(path("half/model.safetensors"), path("back/model.safetensors"));
  expect_contains(read_file(path("half/config.json"), ErrorKind::kData).value(), "\"dtype\": \"bfloat16\"");
  const Expected<Conversion> rounded =
      run({.from = "tests/golden/olmo3", .to = path("again"), .dtype = DType::kBF16, .verify = true});
  ASSERT_TRUE(rounded.has_value()) << rounded.error().text();
  EXPECT_GT(rounded->verification->largest_difference, 0.0);
  EXPECT_LT(rounded->verification->largest_difference, 0.1);
  expect_contains(
      error({.from = path("wych"), .to = path("x"), .format = ModelFormat::kWych, .dtype = DType::kBF16}),
      "--dtype: is bf16; wych's checkpoints hold f32");
}

TEST_F(Convert, RefusesByKeyWhatNoClassHas) {
  const config::ModelConfig olmoe = read_model_config("tests/golden/olmoe")->model;
  const auto refuse = [&](const std::function<void(config::ModelConfig&)>& change,
                          const std::vector<std::string>& messages) {
    config::ModelConfig model = olmoe;
    change(model);
    const Expected<io::HfModel> type = io::hf_model(model);
    ASSERT_FALSE(type.has_value()) << messages.front();
    EXPECT_EQ(type.error().kind, ErrorKind::kUsage);
    for (const std::string& message : messages) {
      expect_contains(type.error().text(), message);
    }
  };
  refuse([](auto& model) { model.moe.shared_hidden = 48; }, {"model.moe.shared_hidden: is 48"});
  refuse(
      [](auto& model) {
        model.norm = config::NormPlacement::kPeri;
        model.embed_norm = true;
        model.embed_scale = 8;
      },
      {"model.norm: is \"peri\"", "model.embed_scale: is 8", "model.embed_norm: is true"});
  refuse([](auto& model) { model.attention.window = 4; },
         {"model.attention.window: is set; OlmoeForCausalLM"});
  refuse([](auto& model) { model.attention.head_dim = 8; }, {"model.attention.head_dim: is 8"});
  refuse([](auto& model) { model.first_dense_layers = 1; }, {"model.dense_layers: makes some layers dense"});
  refuse([](auto& model) { model.moe.experts = 0; }, {"model.attention.qk_norm: does not go with"});
  refuse([](auto& model) { model.attention.qk_norm = config::QkNorm::kNone; },
         {"model.moe.router.normalize_weights: is false; MixtralForCausalLM"});
  refuse(
      [](auto& model) {
        model.norm = config::NormPlacement::kPost;
        model.moe.experts = 0;
        model.attention.window_pattern = {4, 8};
        model.attention.clip_qkv = 2;
      },
      {"model.attention.window_pattern: has several windows", "model.attention.clip_qkv: is 2"});
  config::ModelConfig model = olmoe;
  model.moe.shared_hidden = 16;
  expect_contains(error({.from = write_run("run", model), .to = path("out")}), "model.moe.shared_hidden");
  EXPECT_EQ(entries(), std::vector<std::string>{"run"});
}

TEST_F(Convert, NeverOverwritesUnlessAsked) {
  const std::string source = "tests/golden/olmo2";
  to_hf(source, path("out"));
  expect_contains(error({.from = source, .to = path("out")}), "exists; give another folder, or --replace");
  std::ofstream(path("out/old")) << "old";
  EXPECT_EQ(error({.from = source, .to = path("out/"), .replace = true}), "");
  EXPECT_FALSE(fs::exists(path("out/old")));
  fs::create_directory(path("home"));
  expect_contains(error({.from = source, .to = path("home"), .replace = true}), "is not a model folder");
  for (const char* to : {"out", "out/inside", "."}) {
    expect_contains(error({.from = path("out"), .to = path(to), .replace = true}),
                    "is, contains or lies in the source");
  }
  expect_contains(error({.from = source, .to = path("none/out")}), "No such file or directory");
  EXPECT_EQ(entries(), (std::vector<std::string>{"home", "out"}));
}

TEST_F(Convert, AFullDiskIsAnErrorAndLeavesNothing) {
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 65536, .rlim_max = old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string hf = error({.from = "tests/golden/olmo2", .to = path("out")});
  const std::string wych =
      error({.from = "tests/golden/olmo2", .to = path("out"), .format = ModelFormat::kWych});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);
  expect_contains(hf, "model.safetensors: cannot write");
  expect_contains(wych, "model.safetensors: cannot write");
  EXPECT_EQ(entries(), std::vector<std::string>());
}

TEST_F(Convert, TheTokenizerAndItsEndOfTextComeAlong) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  tokens.emplace_back();
  config::ModelConfig model = read_model_config("tests/golden/olmoe")->model;
  const std::string run = write_run("run", model);
  std::ofstream(run + "/tokenizer.json") << data::Tokenizer(tokens, {}, 256).to_json();
  for (const std::string& from : {run, run + "/checkpoints/step000007"}) {
    to_hf(from, path("out"));
    const std::string config = read_file(path("out/config.json"), ErrorKind::kData).value();
    expect_contains(config, "\"eos_token_id\": 256");
    expect_contains(config, "\"pad_token_id\": null");
    expect_contains(read_file(path("out/generation_config.json"), ErrorKind::kData).value(),
                    "\"eos_token_id\":256");
    expect_contains(read_file(path("out/tokenizer_config.json"), ErrorKind::kData).value(),
                    "PreTrainedTokenizerFast");
    EXPECT_EQ(load_model_tokenizer(path("out"), 320)->eos_id(), 256);
    fs::remove_all(path("out"));
  }
  // Through a Hugging Face folder and back.
  to_hf(run, path("out"));
  to_wych(path("out"), path("wych"));
  EXPECT_EQ(load_model_tokenizer(path("wych"), 320)->eos_id(), 256);
  to_hf(path("wych"), path("again"));
  EXPECT_EQ(read_file(path("again/config.json"), ErrorKind::kData).value(),
            read_file(path("out/config.json"), ErrorKind::kData).value());
}

TEST_F(Convert, VerificationNamesAModelThatIsNotFinite) {
  const config::ModelConfig model = read_model_config("tests/golden/olmo2")->model;
  const std::string run = write_run("run", model, std::nanf(""));
  expect_contains(error({.from = run, .to = path("out"), .verify = true}), "logits differ");
  EXPECT_EQ(entries(), std::vector<std::string>{"run"});
}

}  // namespace
}  // namespace wych::train
