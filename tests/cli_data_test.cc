// What `wych data` makes, what [data] names and what `wych eval` reads, end to end.
#include "cli_fixture.h"
#include "data/token_file.h"

namespace wych {
namespace {

using io::read_bytes;

// The folder's files named one by one, without its tokenizer: the same order, the same losses.
TEST_F(Cli, ListsOfFilesTrainLikeTheirFolder) {
  const auto lists = [](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"train", folder("tiny.toml"), "--run.dir=" + folder(name),
                                          "--data.paths=" + folder("data/*.train.npy")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  const Result result = run(lists("listed", {"--data.tokenizer=" + folder("data/tokenizer.json"),
                                             "--data.valid_paths=" + folder("data/*.valid.npy")}));
  ASSERT_EQ(result.code, 0) << result.errors;
  EXPECT_EQ(losses(folder("listed")), losses(finished()));
  expect_error(run(lists("bare", {"--data.eos_id=0"})), 2, {"log.sample_interval", "--data.tokenizer"});
  const Result bare = run(lists("bare", {"--data.eos_id=0", "--log.sample_interval=0"}));
  ASSERT_EQ(bare.code, 0) << bare.errors;
  EXPECT_TRUE(contains(bare.output, "no held-out text: the run is not evaluated")) << bare.output;
  EXPECT_TRUE(
      contains(run(lists("bare", {"--data.eos_id=0", "--log.sample_interval=0"})).output, "nothing to do"));
}

TEST_F(Cli, AMixtureSaysWhatItTook) {
  const auto mixture = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"train",
                                          folder("tiny.toml"),
                                          "--run.dir=" + folder("mixed"),
                                          "--data.tokenizer=" + folder("data/tokenizer.json"),
                                          "--data.source.text.paths=" + folder("data/text.train.npy"),
                                          "--data.source.text.weight=3",
                                          "--data.source.rest.paths=" + folder("data/text.valid.npy"),
                                          "--data.source.rest.valid_paths=" + folder("data/text.valid.npy")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  const Result result = run(mixture({}));
  ASSERT_EQ(result.code, 0) << result.errors;
  EXPECT_TRUE(contains(result.output, "source text: 36 of 48 sequences (75.00 %)")) << result.output;
  EXPECT_TRUE(contains(result.output, "source rest: 12 of 48 sequences (25.00 %)"));
  EXPECT_TRUE(contains(read_bytes(folder("mixed/events.jsonl")), "source text: 36 of 48"));
  // A longer run would be another mixture: refused, unless the mixture's size is said.
  expect_error(run(mixture({"--run.max_steps=16"})), 3, {"another order", "data.mixture_tokens"});
  const Result longer = run(mixture({"--run.max_steps=16", "--data.mixture_tokens=768"}));
  EXPECT_EQ(longer.code, 0) << longer.errors;
  expect_error(run(mixture({"--data.source.rest.weight=1000"})), 3,
               {"data.source.rest", "max_repetition", "hint:"});
}

TEST_F(Cli, TextBecomesAFolderToTrainOnAndFilesOfOtherFormats) {
  std::string text;
  for (const std::string& document : make_documents(5, 400)) {
    text += "{\"text\": \"" + document + "\"}\n";
  }
  io::write_bytes(folder("more.jsonl"), text);
  const std::string tokenizer = folder("data/tokenizer.json");
  const std::string out = folder("more");
  const Result made = run({"data", "tokenize", "--tokenizer", tokenizer, "--out", out, "--valid-fraction",
                           "0.1", folder("more.jsonl")});
  ASSERT_EQ(made.code, 0) << made.errors;
  EXPECT_TRUE(contains(made.output, "of 400 documents")) << made.output;
  EXPECT_EQ(run({"data", "inspect", out}).code, 0);
  const Result trained = run(train(folder("on_more"), {"--data.dir=" + out}));
  EXPECT_EQ(trained.code, 0) << trained.errors;

  const std::string raw = out + "/train-00000.npy";
  const std::string eos = std::to_string(data::load_dataset(out).value().eos_id);
  for (const char* format : {"raw", "numpy", "megatron", "llm.c"}) {
    const std::string file = folder("converted");
    const Result result =
        run({"data", "convert", raw, file, "--format", format, "--dtype", "u16", "--eos", eos});
    ASSERT_EQ(result.code, 0) << format << result.errors;
    const Result seen = run({"data", "inspect", file, "--tokenizer", tokenizer});
    EXPECT_EQ(seen.code, 0) << seen.output << seen.errors;
    EXPECT_TRUE(contains(seen.output, std::string("format     ") + format)) << seen.output;
    EXPECT_EQ(run({"eval", "--model", finished(), "--data", file, "--json"}).output,
              run({"eval", "--model", finished(), "--data", raw, "--json"}).output);
    std::filesystem::remove(file);
  }
  const Result wrong = run({"data", "inspect", raw, "--tokenizer", tokenizer, "--dtype", "u32"});
  EXPECT_EQ(wrong.code, 3);
  EXPECT_TRUE(contains(wrong.output, "fault: looks like u16 ids read as u32")) << wrong.output;
  expect_error(run({"data", "tokenize", "--tokenizer", tokenizer, "--out", out, folder("more.jsonl")}), 2,
               {out, "exists already", "hint:"});
}

TEST_F(Cli, RowsOfATwoDimensionalFileAreEvaluatedAsTheyAre) {
  const std::vector<i32> ids = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::string raw = folder("rows.raw");
  ASSERT_TRUE(data::write_token_file(raw, data::TokenType::kU16, ids).has_value());
  const std::string file = folder("rows.npy");
  io::write_bytes(file, data::numpy_header(data::TokenType::kU16, 12, 6) + read_bytes(raw));
  const Result rows = run({"eval", "--model", finished(), "--data", file, "--json"});
  const Result cut = run({"eval", "--model", finished(), "--data", raw, "--seq", "6", "--json"});
  EXPECT_EQ(rows.code, 0) << rows.errors;
  EXPECT_EQ(rows.output, cut.output);
  EXPECT_EQ(number_at(json_of(rows.output), "tokens"), 10);
  expect_error(run({"eval", "--model", finished(), "--data", file, "--seq", "4"}), 2,
               {"rows of 6 tokens", "leave --seq out"});
}

}  // namespace
}  // namespace wych
