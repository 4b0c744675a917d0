// For tests of the command: the binary as a child process, a synthetic text as a data folder, a tiny
// configuration, and one finished run that all tests of a file share.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "child_process.h"
#include "data/bpe_trainer.h"
#include "data/dataset.h"
#include "io/checkpoint.h"
#include "io/json.h"
#include "io/scratch_folder.h"

namespace wych {

inline constexpr i64 kSteps = 12;
inline constexpr i64 kSequence = 16;
inline constexpr i64 kLongSteps = 120;  // several pipes full of lines, so a run can be caught in the middle
inline constexpr i64 kVocabulary = 320;

struct Result {
  int code = 0;
  std::string output;
  std::string errors;
};

inline std::vector<std::string> command_line(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {WYCH_BINARY};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

inline Result run(const std::vector<std::string>& arguments, const ChildOptions& options = {}) {
  ChildProcess child(command_line(arguments), options);
  const int code = child.wait();
  return {code, child.output(), child.errors()};
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

inline io::Json json_of(const std::string& text) {
  return io::parse_json(text, "output", ErrorKind::kInternal).value();
}

inline double number_at(const io::Json& json, std::string_view key) {
  double value = std::nan("");
  const io::Json* member = json.find(key);
  EXPECT_TRUE(member != nullptr && member->number(value)) << key;
  return value;
}

inline std::vector<io::Json> json_lines(const std::string& path) {
  std::vector<io::Json> lines;
  const std::string text = io::read_bytes(path);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(json_of(text.substr(at, end - at)));
    at = end + 1;
  }
  return lines;
}

// (step, loss) of every training step in metrics.jsonl.
inline std::vector<std::pair<double, double>> losses(const std::string& run_dir) {
  std::vector<std::pair<double, double>> out;
  for (const io::Json& line : json_lines(run_dir + "/metrics.jsonl")) {
    if (line.find("train/CE loss") != nullptr) {
      out.emplace_back(number_at(line, "step"), number_at(line, "train/CE loss"));
    }
  }
  return out;
}

inline i64 count(std::string_view text, std::string_view part) {
  i64 found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

inline std::string latest(const std::string& run_dir) {
  return io::latest_checkpoint(run_dir).value().value_or("no checkpoint");
}

// Documents of a few sentences from a small vocabulary of words; enough regularity to learn from.
inline std::vector<std::string> make_documents(u32 stream, int num_documents) {
  const std::vector<std::string> words = {"the ", "river ", "runs ", "under ", "old ", "stone ", "bridge ",
                                          "and ", "a ",     "bird ", "sings ", "of ",  "water ", "light. "};
  std::vector<std::string> documents;
  u32 state = stream;
  for (int i = 0; i < num_documents; ++i) {
    std::string& text = documents.emplace_back();
    for (int word = 0; word < 40; ++word) {
      state = state * 1664525U + 1013904223U;
      text += words[(state >> 16U) % words.size()];
    }
  }
  return documents;
}

inline void write_file(data::Dataset& dataset, const data::Tokenizer& tokenizer, const std::string& domain,
                       data::Split split, u32 stream, int num_documents) {
  data::DatasetFile file{
      .file = fmt::format("{}.{}.npy", domain, data::split_name(split)), .domain = domain, .split = split};
  std::vector<i32> ids;
  for (const std::string& document : make_documents(stream, num_documents)) {
    const std::vector<i32> encoded = tokenizer.encode(document);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
    ids.push_back(tokenizer.eos_id());
    file.text_bytes += std::ssize(document);
  }
  file.tokens = std::ssize(ids);
  file.documents = num_documents;
  file.xxh3 = data::write_token_file(dataset.folder + "/" + file.file, dataset.type, ids).value();
  dataset.files.push_back(file);
}

inline void write_data(const std::string& folder) {
  std::filesystem::create_directories(folder);
  const std::vector<std::string> documents = make_documents(1, 60);
  const std::vector<std::string_view> texts(documents.begin(), documents.end());
  const data::Tokenizer tokenizer = data::train_bpe(texts, kVocabulary);
  io::write_bytes(folder + "/tokenizer.json", tokenizer.to_json());
  data::Dataset dataset{.folder = folder,
                        .recipe = "synthetic",
                        .type = data::TokenType::kU16,
                        .vocab_size = tokenizer.vocab_size(),
                        .eos_id = tokenizer.eos_id(),
                        .tokenizer = "tokenizer.json",
                        .domains = {{"text", "public domain"}, {"verse", "public domain"}},
                        .files = {}};
  write_file(dataset, tokenizer, "text", data::Split::kTrain, 1, 60);
  write_file(dataset, tokenizer, "text", data::Split::kValid, 2, 10);
  write_file(dataset, tokenizer, "verse", data::Split::kValid, 3, 4);
  data::save_dataset(dataset).value();
}

inline constexpr const char* kConfig = R"([run]
name = "tiny"
max_steps = 12
seed = 3
threads = 2
[model]
vocab_size = 320
d_model = 16
n_layers = 1
sequence_length = 16
[model.attention]
n_heads = 2
head_dim = 8
[model.moe]
experts = 4
top_k = 2
expert_hidden = 16
[data]
batch_sequences = 4
microbatch_sequences = 2
[optimizer]
lr = 1e-2
[schedule]
type = "wsd"
warmup_steps = 2
decay_fraction = 0.25
[log]
eval_interval = 5
sample_interval = 6
sample_tokens = 8
sample_prompt = "the "
)";

// One data folder, one configuration and one finished run of kSteps for all tests.
class Cli : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // In memory if there is such a place: every file of a run is synced, and a busy disk takes its time.
    const bool in_memory = ::access("/dev/shm", W_OK) == 0;
    shared_.emplace(in_memory ? "/dev/shm" : std::filesystem::temp_directory_path());
    write_data(*shared_ / "data");
    io::write_bytes(*shared_ / "tiny.toml", kConfig);
    first_run_ = run(train(finished()));
    ASSERT_EQ(first_run_.code, 0) << first_run_.errors;
  }
  static void TearDownTestSuite() { shared_.reset(); }

  static std::string folder(const std::string& name) { return *shared_ / name; }
  static std::string finished() { return folder("finished"); }

  static std::string copy_of(const std::string& source, const std::string& name) {
    std::filesystem::remove_all(folder(name));
    std::filesystem::copy(source, folder(name), std::filesystem::copy_options::recursive);
    return folder(name);
  }

  static std::vector<std::string> train(const std::string& run_dir,
                                        const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"train", folder("tiny.toml"), "--data.dir=" + folder("data"),
                                          "--run.dir=" + run_dir};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  static std::vector<std::string> train_long(const std::string& run_dir,
                                             const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments =
        train(run_dir, {fmt::format("--run.max_steps={}", kLongSteps), "--checkpoint.interval=10"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  // Fails unless the command ended with `code` and said each of `parts` as an error.
  static void expect_error(const Result& result, int code, const std::vector<std::string>& parts) {
    EXPECT_EQ(result.code, code) << result.errors;
    EXPECT_TRUE(result.errors.starts_with("error: ")) << result.errors;
    for (const std::string& part : parts) {
      EXPECT_TRUE(contains(result.errors, part)) << part << " is not in: " << result.errors;
    }
  }

  static inline std::optional<io::ScratchFolder> shared_;
  static inline Result first_run_;
};

}  // namespace wych
