// One function per command declares its options. The only file that knows the command line library.
#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <span>

#include "base/nearest.h"
#include "io/build_info.h"

namespace wych::cli {
namespace {

constexpr const char* kWelcome = R"(wych trains mixture-of-experts language models. To see it work:

  wych data prepare --out data/laptop     text from this machine's packages, as tokens
  wych train configs/laptop.toml          a small model, trained on the processor in about two minutes

`wych --help` lists all commands, `wych COMMAND --help` says more about one.
)";

constexpr const char* kExitCodes = R"(Exit codes:
  0 done   1 unexpected   2 command line or configuration   3 data   4 checkpoint   5 non-finite loss
  6 out of memory   7 communication   75 stopped for requeue with a good checkpoint   130 killed by a second ^C)";

constexpr const char* kOverrideHelp =
    R"(Any key of the configuration can be changed: --section.key=value, for instance
  --model.moe.experts=16 --optimizer.lr=1e-3 --log.style=plain
CONFIG is a TOML file or preset:NAME.)";

// "wych 0.1.0 (94ad5b20c1d2)"
std::string version_text() {
  const std::string_view commit = io::build_commit();
  return fmt::format("wych {}{}", io::build_version(), commit.empty() ? "" : fmt::format(" ({})", commit));
}

// Everything CLI11 writes into; lives as long as the parser.
struct Options {
  TrainOptions train;
  EvalOptions eval;
  GenerateOptions generate;
  PlanOptions plan;
  InspectOptions inspect;
  ConvertOptions convert;
  DataPrepareOptions data_prepare;
  DataInspectOptions data_inspect;
  DataTokenizeOptions data_tokenize;
  DataConvertOptions data_convert;
  TokenizerTrainOptions tokenizer_train;
  TokenizerEncodeOptions tokenizer_encode;
  TokenizerInspectOptions tokenizer_inspect;
  ProfileOptions profile;
  BenchStepOptions bench_step;
  BenchGemmOptions bench_gemm;
  ExportCsvOptions export_csv;
  ExportReportOptions export_report;
  BenchGroupedOptions bench_grouped;
  BenchAttentionOptions bench_attention;
  BenchElementwiseOptions bench_elementwise;
  BenchHeadOptions bench_head;
};

// A command with what to hand back when it was chosen.
struct Entry {
  CLI::App* app;
  ConfigOptions* config;  // where extra arguments go, or nullptr if it takes none
  std::function<Command()> command;
};

Entry add_train(CLI::App& app, TrainOptions& options) {
  CLI::App* command = app.add_subcommand("train", "train a model into its run folder");
  command->add_option("CONFIG", options.config.source, "configuration")->required();
  command->add_option("--device", options.device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  command->add_option("--ranks", options.ranks, "processes of the mesh")->check(CLI::PositiveNumber);
  command->add_option("--simulate", options.simulate, "ranks as threads of this process")
      ->check(CLI::PositiveNumber);
  command->add_option("--resume", options.resume,
                      "auto (the run's latest checkpoint, if any), never, or a folder");
  command->add_flag("--eager", options.eager, "CUDA: one instruction at a time, checked for NaN (slow)");
  command->add_flag("--print-config", options.print_config,
                    "print every key, its value and where it came from, and stop");
  command->footer(fmt::format(R"({}

Signals: ^C or SIGTERM saves and stops (a second ^C stops at once), SIGUSR1 saves and exits with 75, SIGUSR2
saves and goes on. The same command resumes.

Examples:
  wych train configs/laptop.toml
  wych train configs/laptop.toml --run.max_steps=100 --run.dir=runs/short
  wych train configs/laptop.toml --print-config)",
                              kOverrideHelp));
  return {command, &options.config, [&options] { return options; }};
}

void add_dtype(CLI::App* command, std::string& dtype) {
  command
      ->add_option("--dtype", dtype,
                   "type of the ids of a file without a header (default: by the vocabulary)")
      ->check(CLI::IsMember({"u8", "u16", "u32", "u64"}));
}

Entry add_eval(CLI::App& app, EvalOptions& options) {
  CLI::App* command = app.add_subcommand("eval", "the loss of a model on a token file");
  command->add_option("--model", options.model, "run, checkpoint or Hugging Face folder")->required();
  command->add_option("--data", options.data, "token file of any format `wych data inspect` knows")
      ->required();
  command
      ->add_option(
          "--seq", options.sequence,
          "tokens of a sequence (default: the model's); not for files with rows, which are sequences")
      ->check(CLI::Range(i64{2}, i64{1} << 24));
  add_dtype(command, options.dtype);
  command->add_flag("--json", options.json, "print {\"CE loss\": ..., \"tokens\": ...}");
  command->footer(R"(Examples:
  wych eval --model runs/laptop --data data/laptop/bible.valid.npy
  wych eval --model runs/laptop/checkpoints/step000200 --data data/laptop/devil.valid.npy --json)");
  return {command, nullptr, [&options] { return options; }};
}

Entry add_generate(CLI::App& app, GenerateOptions& options) {
  CLI::App* command = app.add_subcommand("generate", "continue a prompt");
  command->add_option("--model", options.model, "run, checkpoint or Hugging Face folder")->required();
  command->add_option("--prompt", options.prompt, "text to continue; may be empty")->required();
  command->add_option("--max-new-tokens", options.max_new_tokens, "at most this many")
      ->capture_default_str()
      ->check(CLI::Range(i64{0}, i64{1} << 20));
  command->add_option("--temperature", options.temperature, "0: always the most likely token")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  command->add_option("--seed", options.seed, "the same seed gives the same text")->capture_default_str();
  command->footer(R"(Examples:
  wych generate --model runs/laptop --prompt "In the beginning"
  wych generate --model runs/laptop --prompt "HACKER, n. " --temperature 0.7 --seed 3)");
  return {command, nullptr, [&options] { return options; }};
}

Entry add_plan(CLI::App& app, PlanOptions& options) {
  CLI::App* command = app.add_subcommand("plan", "memory and time of a run, before it starts");
  command->add_option("CONFIG", options.config.source, "configuration")->required();
  command->add_option("--world", options.world, "ranks")->check(CLI::PositiveNumber);
  CLI::Option* json = command->add_flag("--json", options.json, "numbers for programs");
  command->add_option("--dump", options.dump, "print the microbatch's graph or the programs instead")
      ->check(CLI::IsMember({"graph", "program"}))
      ->excludes(json);
  command->footer(fmt::format(R"({}

Examples:
  wych plan configs/laptop.toml
  wych plan preset:olmoe-1b-7b --json
  wych plan configs/laptop.toml --dump program)",
                              kOverrideHelp));
  return {command, &options.config, [&options] { return options; }};
}

Entry add_inspect(CLI::App& app, InspectOptions& options) {
  CLI::App* command = app.add_subcommand("inspect", "what is in a run, a checkpoint or a model folder");
  command->add_option("DIR", options.dir, "run, checkpoint or Hugging Face folder")->required();
  command->add_flag("--verify", options.verify, "check the hash of every tensor");
  command->footer(R"(Examples:
  wych inspect runs/laptop
  wych inspect runs/laptop/checkpoints/step000200 --verify)");
  return {command, nullptr, [&options] { return options; }};
}

Entry add_convert(CLI::App& app, ConvertOptions& options) {
  CLI::App* command = app.add_subcommand("convert", "a model in another format");
  command->add_option("--from", options.from, "run, checkpoint or Hugging Face folder")->required();
  command->add_option("--to", options.to, "folder to write")->required();
  command->add_option("--format", options.format, "hf (Hugging Face) or wych")
      ->required()
      ->check(CLI::IsMember({"hf", "wych"}));
  command->add_option("--dtype", options.dtype, "of a Hugging Face folder's weights: f32 or bf16")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "bf16"}));
  command->add_flag("--verify", options.verify, "compare the logits of both before the folder appears");
  command->add_flag("--replace", options.replace, "replace a model folder of that name");
  command->footer(
      R"(The folder appears complete or not at all. Weights alone are converted: not the optimizer.

Examples:
  wych convert --from runs/olmoe --to exports/olmoe --format hf --verify
  wych convert --from exports/olmoe --to runs/again --format wych)");
  return {command, nullptr, [&options] { return options; }};
}

Entry add_data_prepare(CLI::App& data, DataPrepareOptions& options) {
  CLI::App* command = data.add_subcommand("prepare", "tokens from text that this machine has");
  command->add_option("--out", options.out, "folder to write")->required();
  command->add_option("--vocab", options.vocab_size, "tokens of the vocabulary")
      ->capture_default_str()
      ->check(CLI::Range(i64{257}, i64{1} << 20));
  command->add_option("--domains", options.domains, "some of bible,jargon,devil,sources (default: all)")
      ->delimiter(',');
  command->add_flag("--replace", options.replace, "prepare anew what was prepared differently");
  command->footer(
      R"(The texts come from the packages bible-kjv, jargon-text and dict-devil and from the project's sources.

Examples:
  wych data prepare --out data/laptop
  wych data prepare --out data/books --domains bible,devil --vocab 4096)");
  return {command, nullptr, [&options] { return options; }};
}

Entry add_data_inspect(CLI::App& data, DataInspectOptions& options) {
  CLI::App* command =
      data.add_subcommand("inspect", "what is in a data folder or token file, and what is wrong");
  command->add_option("PATH", options.path, "data folder or token file")->required();
  command->add_option("--tokenizer", options.tokenizer, "tokenizer.json a file was made with");
  add_dtype(command, options.dtype);
  command->add_option("--vocab", options.vocab_size, "ids are below this (default: the tokenizer's)")
      ->check(CLI::Range(i64{1}, i64{1} << 31));
  command->add_option("--eos", options.eos_id, "id that ends a document (default: the tokenizer's)")
      ->check(CLI::Range(i64{0}, i64{1} << 31));
  command->footer(R"(Reads everything. Exit code 3 where a fault was found.
Files: OLMo-core's and nanoGPT's raw ids, NumPy, Megatron .idx + .bin, llm.c, LLMQ.

Examples:
  wych data inspect data/laptop
  wych data inspect tokens.npy --tokenizer tokenizer.json
  wych data inspect train.bin --vocab 50257 --eos 50256)");
  return {command, nullptr, [&options] { return options; }};
}

Entry add_data_tokenize(CLI::App& data, DataTokenizeOptions& options) {
  CLI::App* command = data.add_subcommand("tokenize", "text files to a folder to train on");
  command->add_option("--tokenizer", options.tokenizer, "tokenizer.json")->required();
  command->add_option("--out", options.out, "folder to write; must not exist")->required();
  command->add_option("FILES", options.files, "text or JSON lines, also .gz or .zst; patterns in quotes")
      ->required();
  command->add_option("--format", options.format, "of the files; auto: .jsonl, .json, .ndjson are JSON lines")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "text", "jsonl"}));
  command->add_option("--text-key", options.text_key, "field of the JSON objects that holds the text")
      ->capture_default_str();
  command->add_option("--domain", options.domain, "name of this text in reports")->capture_default_str();
  command->add_option("--eos", options.eos_id, "id put behind every document (default: the tokenizer's)")
      ->check(CLI::Range(i64{0}, i64{1} << 31));
  command
      ->add_option("--dtype", options.dtype,
                   "type of the ids (default: the smaller of u16 and u32 that fits)")
      ->check(CLI::IsMember({"u8", "u16", "u32", "u64"}));
  command->add_option("--valid-fraction", options.valid_fraction, "share of the documents held out")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 0.5));
  command->add_flag("--keep-invalid", options.keep_invalid,
                    "bytes that are not UTF-8 stay (in JSON: the line is left out) and are counted");
  command->add_option("--threads", options.threads, "0: one per core")
      ->capture_default_str()
      ->check(CLI::Range(i64{0}, i64{1024}));
  command->footer(
      R"(A line of JSON is a document; so is a whole text file. Runs in bounded memory; the folder appears at the end.

Examples:
  wych data tokenize --tokenizer tokenizer.json --out data/web --valid-fraction 0.01 'web/*.jsonl.zst'
  wych data tokenize --tokenizer data/laptop/tokenizer.json --out data/books book.txt.gz)");
  return {command, nullptr, [&options] { return options; }};
}

Entry add_data_convert(CLI::App& data, DataConvertOptions& options) {
  CLI::App* command = data.add_subcommand("convert", "a token file in another format");
  command->add_option("FROM", options.from, "token file of any format `wych data inspect` knows")->required();
  command->add_option("TO", options.to, "file to write; for megatron what .bin and .idx are put behind")
      ->required();
  command->add_option("--format", options.format, "raw (OLMo-core, nanoGPT), numpy, megatron or llm.c")
      ->required()
      ->check(CLI::IsMember({"raw", "numpy", "megatron", "llm.c"}));
  add_dtype(command, options.dtype);
  command->add_option("--to-dtype", options.to_dtype, "type of the ids written (default: as read)")
      ->check(CLI::IsMember({"u8", "u16", "u32", "u64", "i32", "i64"}));
  command->add_option("--vocab", options.vocab_size, "ids at or above are refused")
      ->check(CLI::Range(i64{1}, i64{1} << 31));
  command->add_option("--eos", options.eos_id, "id that ends a document, for megatron's index")
      ->check(CLI::Range(i64{0}, (i64{1} << 31) - 1));
  command->footer(R"(Examples:
  wych data convert train.bin train.npy --format raw
  wych data convert tokens.npy mega/tokens --format megatron --dtype u32 --to-dtype i32 --eos 100257)");
  return {command, nullptr, [&options] { return options; }};
}

void add_tokenizer_source(CLI::App& command, TokenizerSource& source) {
  command
      .add_option("TOKENIZER", source.source,
                  "byte, a tokenizer.json, a folder with one, or a tiktoken rank file")
      ->required();
  command.add_option("--eos", source.end_of_text,
                     "the token that ends a document (default: found by its name)");
  command.add_option("--pattern", source.pattern,
                     "of a rank file: its encoding (o200k_base, ...) or a pattern: "
                     "gpt2, cl100k, llama3, qwen2, o200k, tekken");
  command.add_option("--special", source.special_tokens,
                     "of a rank file: CONTENT=ID, once per special token");
}

Entry add_tokenizer_train(CLI::App& tokenizer, TokenizerTrainOptions& options) {
  CLI::App* command = tokenizer.add_subcommand("train", "learn a byte-level BPE tokenizer from text");
  command->add_option("FILES", options.files, "text files, a document each")->required();
  command->add_option("--out", options.out, "tokenizer.json to write")->required();
  command->add_option("--vocab", options.vocab_size, "tokens of the vocabulary")
      ->required()
      ->check(CLI::Range(i64{257}, i64{1} << 20));
  command->add_flag("--lines", options.lines, "each line is a document");
  command->add_option("--pattern", options.pattern, "how text is cut")
      ->capture_default_str()
      ->check(CLI::IsMember({"gpt2", "cl100k", "llama3", "qwen2", "o200k", "tekken"}));
  command->footer(R"(The same texts give the same tokenizer, on any number of cores.

Example:
  wych tokenizer train --out tokenizer.json --vocab 32768 books/*.txt)");
  return {command, nullptr, [&options] { return options; }};
}

Entry add_tokenizer_encode(CLI::App& tokenizer, TokenizerEncodeOptions& options) {
  CLI::App* command = tokenizer.add_subcommand("encode", "ids of text files, a line [id,...] per document");
  add_tokenizer_source(*command, options.tokenizer);
  command->add_option("FILES", options.files, "text files, a document each")->required();
  command->add_flag("--lines", options.lines, "each line is a document");
  command->add_flag("--special-tokens", options.special_tokens,
                    "special tokens in the text become themselves, not text");
  command->add_option("--threads", options.threads, "default: all cores")->check(CLI::PositiveNumber);
  command->footer(R"(Prints the rate to standard error.

Examples:
  wych tokenizer encode data/laptop/tokenizer.json README.md
  wych tokenizer encode o200k_base.tiktoken --lines lines.txt > ids.jsonl)");
  return {command, nullptr, [&options] { return options; }};
}

Entry add_tokenizer_inspect(CLI::App& tokenizer, TokenizerInspectOptions& options) {
  CLI::App* command = tokenizer.add_subcommand("inspect", "what a tokenizer is made of");
  add_tokenizer_source(*command, options.tokenizer);
  command->footer(R"(Example:
  wych tokenizer inspect multilingual.tiktoken --pattern gpt2 --special "<|endoftext|>=50257")");
  return {command, nullptr, [&options] { return options; }};
}

Entry add_profile(CLI::App& app, ProfileOptions& options) {
  CLI::App* command = app.add_subcommand("profile", "time per op of a training step");
  command->add_option("CONFIG", options.config.source, "configuration")->required();
  command->add_flag("--forward-backward", options.forward_backward, "gradients alone, no optimizer");
  command->add_option("--trace", options.trace, "write Chrome trace events to this file");
  command->add_option("--steps", options.steps, "steps to measure")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->footer(fmt::format(R"(Trains on random tokens and writes nothing.
{}

Examples:
  wych profile configs/laptop.toml
  wych profile preset:laptop --memory.recompute=block --trace trace.json)",
                              kOverrideHelp));
  return {command, &options.config, [&options] { return options; }};
}

Entry add_bench_step(CLI::App& bench, BenchStepOptions& options) {
  CLI::App* command = bench.add_subcommand("step", "whole training steps");
  command->add_option("CONFIG", options.config.source, "configuration")->required();
  command->add_flag("--forward-backward", options.forward_backward,
                    "gradients alone: no optimizer, neither its moments nor a second copy of the weights");
  command->add_option("--steps", options.steps, "steps to measure")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", options.json, "numbers for programs");
  command->footer(fmt::format(R"(Trains on random tokens and writes nothing.
{}

Examples:
  wych bench step configs/laptop.toml
  wych bench step preset:laptop --run.threads=1 --json)",
                              kOverrideHelp));
  return {command, &options.config, [&options] { return options; }};
}

Entry add_bench_gemm(CLI::App& bench, BenchGemmOptions& options) {
  CLI::App* command = bench.add_subcommand("gemm", "matrix products of training");
  command->add_option("--threads", options.threads, "threads (default: one a core)")
      ->check(CLI::Range(i64{1}, i64{1024}));
  command->add_option("--repeats", options.repeats, "products to take the median of")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", options.json, "numbers for programs");
  return {command, nullptr, [&options] { return options; }};
}

Entry add_export_csv(CLI::App& exports, ExportCsvOptions& options) {
  CLI::App* command = exports.add_subcommand("csv", "the metrics of a run as a table");
  command->add_option("RUN", options.run_dir, "run folder")->required();
  command->add_option("--out", options.out, "file to write (default: standard output)");
  command->footer(
      R"(A row a step, a column a metric; an array has a column an element. A value that was not finite is nan, one that
was not taken at that step is empty.

Examples:
  wych export csv runs/laptop --out laptop.csv
  wych export csv runs/laptop | head -n 3)");
  return {command, nullptr, [&options] { return options; }};
}

Entry add_export_report(CLI::App& exports, ExportReportOptions& options) {
  CLI::App* command = exports.add_subcommand("report", "the report of a run, written anew");
  command->add_option("RUN", options.run_dir, "run folder")->required();
  command->footer(
      R"(Writes RUN/report.html, as every run does when it ends: for a run that was killed, or is still going on.

Example:
  wych export report runs/laptop)");
  return {command, nullptr, [&options] { return options; }};
}

// A benchmark of a CUDA device without other options.
template <class BenchOptions>
Entry add_cuda_bench(CLI::App& bench, const char* name, const char* text, BenchOptions& options) {
  CLI::App* command = bench.add_subcommand(name, text);
  command->add_option("--repeats", options.repeats, "runs to take the median of")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", options.json, "numbers for programs");
  return {command, nullptr, [&options] { return options; }};
}

Entry add_bench_attention(CLI::App& bench, BenchAttentionOptions& options) {
  CLI::App* command = bench.add_subcommand("attention", "causal attention on a CUDA device");
  command->add_option("--repeats", options.repeats, "passes to take the median of")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", options.json, "numbers for programs");
  command->footer(
      R"(Forward and gradient in bfloat16 without documents: by cuDNN, its gradient in one order of sums
(what training uses) and in any order (precision.deterministic = false), and by wych's own kernels,
which take what cuDNN does not. Beside the rate of one large product. FLOPs are those of the pairs
that see each other: 4 head_dim a pair and head forward, 10 head_dim backward.

Example:
  wych bench attention --json)");
  return {command, nullptr, [&options] { return options; }};
}

std::vector<Entry> add_commands(CLI::App& app, Options& options) {
  std::vector<Entry> entries = {add_train(app, options.train),       add_eval(app, options.eval),
                                add_generate(app, options.generate), add_plan(app, options.plan),
                                add_inspect(app, options.inspect),   add_convert(app, options.convert)};
  CLI::App* data = app.add_subcommand("data", "make, inspect and convert token files");
  data->require_subcommand(1);
  entries.push_back(add_data_prepare(*data, options.data_prepare));
  entries.push_back(add_data_inspect(*data, options.data_inspect));
  entries.push_back(add_data_tokenize(*data, options.data_tokenize));
  entries.push_back(add_data_convert(*data, options.data_convert));
  CLI::App* tokenizer = app.add_subcommand("tokenizer", "train, use and inspect tokenizers");
  tokenizer->require_subcommand(1);
  entries.push_back(add_tokenizer_train(*tokenizer, options.tokenizer_train));
  entries.push_back(add_tokenizer_encode(*tokenizer, options.tokenizer_encode));
  entries.push_back(add_tokenizer_inspect(*tokenizer, options.tokenizer_inspect));
  entries.push_back(add_profile(app, options.profile));
  CLI::App* bench = app.add_subcommand("bench", "measure against this machine's ceilings");
  bench->require_subcommand(1);
  entries.push_back(add_bench_step(*bench, options.bench_step));
  entries.push_back(add_bench_gemm(*bench, options.bench_gemm));
  entries.push_back(
      add_cuda_bench(*bench, "grouped", "expert products on a CUDA device", options.bench_grouped));
  entries.push_back(add_cuda_bench(*bench, "elementwise",
                                   "what moves memory and computes little, on a CUDA device",
                                   options.bench_elementwise));
  entries.push_back(add_cuda_bench(
      *bench, "head", "the head with its loss, both ways, beside its products alone", options.bench_head));
  entries.push_back(add_bench_attention(*bench, options.bench_attention));
  bench->group("Commands");
  CLI::App* exports = app.add_subcommand("export", "what a run recorded, for other programs");
  exports->require_subcommand(1);
  entries.push_back(add_export_csv(*exports, options.export_csv));
  entries.push_back(add_export_report(*exports, options.export_report));
  data->group("Commands");
  exports->group("Commands");
  tokenizer->group("Commands");
  for (const Entry& entry : entries) {
    entry.app->group("Commands");
    if (entry.config != nullptr) {
      entry.app->allow_extras();
    }
  }
  return entries;
}

Error usage_error(std::string where, std::string what, std::string hint) {
  return {.kind = ErrorKind::kUsage,
          .where = std::move(where),
          .what = std::move(what),
          .hint = std::move(hint),
          .more = {}};
}

// "wych data prepare": the deepest command that was recognised.
std::string command_path(const CLI::App& app) {
  std::string path = app.get_name();
  for (std::vector<CLI::App*> chosen = app.get_subcommands(); !chosen.empty();
       chosen = chosen.back()->get_subcommands()) {
    path += " " + chosen.back()->get_name();
  }
  return path;
}

// The library would call an unknown command an unexpected argument. `argv` starts behind `app`'s name.
Expected<void> check_command_name(const CLI::App& app, std::span<const char* const> argv) {
  const std::string name = argv.empty() ? "" : argv.front();
  const std::vector<const CLI::App*> commands = app.get_subcommands([](const CLI::App*) { return true; });
  if (commands.empty() || name.empty() || name.front() == '-') {
    return {};
  }
  std::vector<std::string> known;
  for (const CLI::App* command : commands) {
    known.push_back(command->get_name());
  }
  const auto found = std::find(known.begin(), known.end(), name);
  if (found != known.end()) {
    return check_command_name(*commands[static_cast<std::size_t>(found - known.begin())], argv.subspan(1));
  }
  const std::optional<std::string> nearest = nearest_name(name, known);
  return usage_error(
      name, "is not a command",
      fmt::format("{}the commands are {}", nearest ? fmt::format("did you mean {}? ", *nearest) : "",
                  fmt::join(known, ", ")));
}

// What the library did not recognise must be an override.
Expected<std::vector<std::string>> take_overrides(const CLI::App& command) {
  const std::string help = fmt::format("`wych {} --help` shows the options", command.get_name());
  std::vector<std::string> overrides;
  for (const std::string& argument : command.remaining()) {
    const std::string key = argument.substr(0, argument.find('='));
    const bool is_key = key.rfind("--", 0) == 0 && key.find('.') != std::string::npos;
    if (is_key && key.size() == argument.size()) {
      return usage_error(argument, "has no value", fmt::format("write {}=VALUE", argument));
    }
    if (is_key) {
      overrides.push_back(argument);
      continue;
    }
    std::vector<std::string> known;
    for (const CLI::Option* option : command.get_options()) {
      known.push_back(option->get_name());
    }
    const std::optional<std::string> nearest = nearest_name(key, known);
    return usage_error(argument, "is neither an option nor a key of the configuration",
                       nearest ? fmt::format("did you mean {}?", *nearest) : help);
  }
  return overrides;
}

}  // namespace

Expected<std::variant<Command, Answer>> parse_command_line(int argc, const char* const* argv) {
  using Parsed = std::variant<Command, Answer>;
  if (argc <= 1) {
    return Parsed(Answer{kWelcome});
  }
  CLI::App app("wych trains mixture-of-experts language models.", "wych");
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  app.get_formatter()->label("SUBCOMMAND", "COMMAND");
  app.get_formatter()->label("REQUIRED", "");
  app.footer(kExitCodes);
  Options options;
  const std::vector<Entry> entries = add_commands(app, options);
  WYCH_TRY_VOID(check_command_name(app, std::span(argv, static_cast<std::size_t>(argc)).subspan(1)));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return Parsed(Answer{app.help()});
  } catch (const CLI::CallForVersion& version) {
    return Parsed(Answer{std::string(version.what()) + "\n"});
  } catch (const CLI::ParseError& error) {
    const std::string path = command_path(app);
    return usage_error(path, error.what(), fmt::format("`{} --help` shows how", path));
  }
  for (const Entry& entry : entries) {
    if (entry.app->parsed()) {
      if (entry.config != nullptr) {
        WYCH_TRY(entry.config->overrides, take_overrides(*entry.app));
      }
      return Parsed(entry.command());
    }
  }
  return usage_error("wych", "no command", "`wych --help` lists all commands");
}

}  // namespace wych::cli
