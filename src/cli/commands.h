// The commands of `wych`: what each is asked (filled by command_line.h) and the function that does it.
// A function returns the exit code, or an Error whose kind is the exit code. Results go to standard output.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/expected.h"
#include "base/types.h"

namespace wych::cli {

// A configuration as the command line gives it: a file or "preset:NAME", then "--a.b=value" in order.
struct ConfigOptions {
  std::string source;
  std::vector<std::string> overrides;
};

struct TrainOptions {
  ConfigOptions config;
  std::string device;  // empty: as configured
  std::string resume;  // empty: as configured
  i64 ranks = 1;
  i64 simulate = 1;
  bool print_config = false;
  bool eager = false;
};

struct EvalOptions {
  std::string model;
  std::string data;
  i64 sequence = 0;   // 0: the model's
  std::string dtype;  // of a file without a header; empty: by the vocabulary
  bool json = false;
};

struct GenerateOptions {
  std::string model;
  std::string prompt;
  i64 max_new_tokens = 64;
  double temperature = 1.0;
  u64 seed = 0;
};

struct PlanOptions {
  ConfigOptions config;
  i64 world = 1;
  bool json = false;
  std::string dump;  // "graph", "program" or empty
};

struct InspectOptions {
  std::string dir;
  bool verify = false;
};

struct ConvertOptions {
  std::string from;
  std::string to;
  std::string format;         // "hf" or "wych"
  std::string dtype = "f32";  // or "bf16"
  bool verify = false;
  bool replace = false;
};

struct DataPrepareOptions {
  std::string out;
  i64 vocab_size = 2048;
  std::vector<std::string> domains;  // empty: all
  bool replace = false;
};

struct DataInspectOptions {
  std::string path;       // data folder or token file
  std::string tokenizer;  // of a file; empty: none
  std::string dtype;      // of a file without a header; empty: guessed
  i64 vocab_size = 0;     // 0: the tokenizer's
  i64 eos_id = -1;        // -1: the tokenizer's
};

struct DataTokenizeOptions {
  std::string tokenizer;
  std::string out;
  std::vector<std::string> files;
  std::string format = "auto";  // "auto", "text" or "jsonl"
  std::string text_key = "text";
  std::string domain = "text";
  std::string dtype;  // empty: the smallest that holds the vocabulary
  i64 eos_id = -1;    // -1: the tokenizer's
  double valid_fraction = 0.0;
  bool keep_invalid = false;
  i64 threads = 0;
};

struct DataConvertOptions {
  std::string from;
  std::string to;
  std::string format;    // "raw", "numpy", "megatron" or "llm.c"
  std::string dtype;     // of a file without a header
  std::string to_dtype;  // empty: as read
  i64 vocab_size = 0;
  i64 eos_id = -1;
};

// A tokenizer as the command line gives it: "byte", a tokenizer.json, a folder with one, or a rank file with
// what that leaves open.
struct TokenizerSource {
  std::string source;
  std::string end_of_text;
  std::string pattern;
  std::vector<std::string> special_tokens;  // "CONTENT=ID"
};

struct TokenizerTrainOptions {
  std::string out;
  i64 vocab_size = 0;
  std::vector<std::string> files;
  bool lines = false;  // each line is a document
  std::string pattern = "llama3";
};

struct TokenizerEncodeOptions {
  TokenizerSource tokenizer;
  std::vector<std::string> files;
  bool lines = false;
  bool special_tokens = false;  // found in the text
  i64 threads = 0;              // 0: all cores
};

struct TokenizerInspectOptions {
  TokenizerSource tokenizer;
};

struct ProfileOptions {
  ConfigOptions config;
  i64 steps = 5;
  bool forward_backward = false;  // gradients and no update
  std::string trace;              // file for Chrome's trace events; empty: none
};

struct BenchStepOptions {
  ConfigOptions config;
  i64 steps = 20;
  bool forward_backward = false;  // gradients and no update
  bool json = false;
};

struct BenchGemmOptions {
  i64 threads = 0;  // 0: one a core
  i64 repeats = 20;
  bool json = false;
};

struct BenchGroupedOptions {
  i64 repeats = 20;
  bool json = false;
};

struct BenchAttentionOptions {
  i64 repeats = 20;
  bool json = false;
};

struct BenchElementwiseOptions {
  i64 repeats = 20;
  bool json = false;
};

struct BenchHeadOptions {
  i64 repeats = 20;
  bool json = false;
};

struct ExportCsvOptions {
  std::string run_dir;
  std::string out;  // empty: standard output
};

struct ExportReportOptions {
  std::string run_dir;
};

using Command =
    std::variant<TrainOptions, EvalOptions, GenerateOptions, PlanOptions, InspectOptions, ConvertOptions,
                 DataPrepareOptions, DataInspectOptions, DataTokenizeOptions, DataConvertOptions,
                 TokenizerTrainOptions, TokenizerEncodeOptions, TokenizerInspectOptions, ProfileOptions,
                 BenchStepOptions, BenchGemmOptions, ExportCsvOptions, ExportReportOptions,
                 BenchGroupedOptions, BenchAttentionOptions, BenchElementwiseOptions, BenchHeadOptions>;

Expected<int> run(const TrainOptions& options);
Expected<int> run(const EvalOptions& options);
Expected<int> run(const GenerateOptions& options);
Expected<int> run(const PlanOptions& options);
Expected<int> run(const InspectOptions& options);
Expected<int> run(const ConvertOptions& options);
Expected<int> run(const DataPrepareOptions& options);
Expected<int> run(const DataInspectOptions& options);
Expected<int> run(const DataTokenizeOptions& options);
Expected<int> run(const DataConvertOptions& options);
Expected<int> run(const TokenizerTrainOptions& options);
Expected<int> run(const TokenizerEncodeOptions& options);
Expected<int> run(const TokenizerInspectOptions& options);
Expected<int> run(const ProfileOptions& options);
Expected<int> run(const BenchStepOptions& options);
Expected<int> run(const BenchGemmOptions& options);
Expected<int> run(const ExportCsvOptions& options);
Expected<int> run(const ExportReportOptions& options);
Expected<int> run(const BenchGroupedOptions& options);
Expected<int> run(const BenchAttentionOptions& options);
Expected<int> run(const BenchElementwiseOptions& options);
Expected<int> run(const BenchHeadOptions& options);

}  // namespace wych::cli
