// wych bench: what this machine reaches, beside its ceilings.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/philox.h"
#include "cli/commands.h"
#include "cli/load_config.h"
#include "cli/measured_steps.h"
#include "cli/target.h"
#include "io/json.h"
#include "kernels/gemm.h"

namespace wych::cli {
namespace {

// Products of a training step by what they are: y = x w^T, dx = dy w, dw = dy^T x of 2048 tokens.
struct GemmShape {
  std::string_view role;
  bool trans_a;
  bool trans_b;
  i64 m;
  i64 n;
  i64 k;
};

std::vector<GemmShape> gemm_shapes() {
  constexpr i64 kTokens = 2048;
  std::vector<GemmShape> shapes;
  for (const auto& [inputs, outputs] :
       {std::pair<i64, i64>{128, 512}, {512, 1024}, {512, 2048}, {1024, 4096}}) {
    shapes.push_back({"forward", false, true, kTokens, outputs, inputs});
    shapes.push_back({"dx", false, false, kTokens, inputs, outputs});
    shapes.push_back({"dw", true, false, outputs, inputs, kTokens});
  }
  return shapes;
}

std::vector<float> random_matrix(i64 size, u64 name) {
  const RandomStream stream = random_stream(1, 0, name);
  std::vector<float> values(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(random_word(stream, i)) * 0x1p-31F - 1.0F;
  }
  return values;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Median seconds of one product.
double time_gemm(const GemmShape& shape, i64 repeats, ThreadPool& pool) {
  const std::vector<float> a = random_matrix(shape.m * shape.k, 1);
  const std::vector<float> b = random_matrix(shape.k * shape.n, 2);
  std::vector<float> c(static_cast<std::size_t>(shape.m * shape.n));
  std::vector<double> seconds;
  for (i64 repeat = 0; repeat <= repeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    kernels::gemm<float>(pool, shape.trans_a, shape.trans_b, shape.m, shape.n, shape.k, a.data(),
                         shape.trans_a ? shape.m : shape.k, b.data(), shape.trans_b ? shape.k : shape.n,
                         false, c.data(), shape.n);
    if (repeat > 0) {  // the first one touches the memory
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
  }
  return median(std::move(seconds));
}

}  // namespace

Expected<int> run(const BenchStepOptions& options) {
  WYCH_TRY(const config::Loaded loaded, load_config(options.config, config::Purpose::kPlan));
  ThreadPool pool(static_cast<int>(loaded.config.run.threads));
  WYCH_TRY(const MeasuredSteps measured,
           measure_steps(loaded.config, {.steps = options.steps, .update = !options.forward_backward}, pool));
  const auto tokens = static_cast<double>(config::batch_tokens(loaded.config));
  const double seconds = measured.median();
  const double tflops = 1e-12 * measured.flops / seconds;
  if (options.json) {
    fmt::print("{}\n", io::JsonObject()
                           .add("config", options.config.source)
                           .add("device", measured.device)
                           .add("threads", static_cast<i64>(pool.num_threads()))
                           .add("steps", options.steps)
                           .add("update", !options.forward_backward)
                           .add("batch_tokens", config::batch_tokens(loaded.config))
                           .add("microbatch_sequences", loaded.config.data.microbatch_sequences)
                           .add("sequence_length", loaded.config.model.sequence_length)
                           .add("step_seconds", seconds)
                           .add("all_step_seconds", std::span<const double>(measured.seconds))
                           .add("tokens_per_second", tokens / seconds)
                           .add("tflops_per_second", tflops)
                           .add("first_step_seconds", measured.first_seconds)
                           .add("waits_per_step", measured.waits_per_step)
                           .add("planned_bytes", measured.planned_bytes)
                           .add("device_bytes", measured.device_bytes)
                           .add("floor_seconds", measured.floor_seconds)
                           .add("peak_flops_per_second", measured.target.flops_per_second)
                           .add("copy_bytes_per_second", measured.target.bytes_per_second)
                           .text());
    return 0;
  }
  fmt::print("{:.1f} ms a step (median of {}), {:.0f} tokens/s, {:.3g} TFLOP/s on {}{}\n", 1e3 * seconds,
             options.steps, tokens / seconds, tflops, measured.device,
             options.forward_backward ? ", forward and backward alone" : "");
  fmt::print("floor for {}: {:.1f} ms, {:.0f} % of the time\n", measured.target.name,
             1e3 * measured.floor_seconds, 100 * measured.floor_seconds / seconds);
  fmt::print("first step after {:.1f} s; memory planned {}", measured.first_seconds,
             plan::bytes_text(measured.planned_bytes));
  if (measured.device_bytes > 0) {
    fmt::print(
        ", in use on the device {} ({:+.2f} %); the host waits {:.3g} times a step",
        plan::bytes_text(measured.device_bytes),
        100 * (static_cast<double>(measured.device_bytes) / static_cast<double>(measured.planned_bytes) - 1),
        measured.waits_per_step);
  }
  fmt::print("\n");
  return 0;
}

Expected<int> run(const BenchGemmOptions& options) {
  ThreadPool pool(static_cast<int>(options.threads));
  WYCH_TRY(const plan::Target target, measured_target(config::Device::kCpu, DType::kF32, pool));
  std::vector<std::string> rows;
  for (const GemmShape& shape : gemm_shapes()) {
    const double flops = 2.0 * static_cast<double>(shape.m * shape.n) * static_cast<double>(shape.k);
    const double rate = flops / time_gemm(shape, options.repeats, pool);
    const double share = rate / target.flops_per_second;
    rows.push_back(options.json ? io::JsonObject()
                                      .add("role", std::string(shape.role))
                                      .add("m", shape.m)
                                      .add("n", shape.n)
                                      .add("k", shape.k)
                                      .add("flops_per_second", rate)
                                      .add("ceiling_flops_per_second", target.flops_per_second)
                                      .add("share", share)
                                      .text()
                                : fmt::format("{:<8} {:>6} {:>6} {:>6} {:>9.1f} {:>8.1f} {:>6.0f}%",
                                              shape.role, shape.m, shape.n, shape.k, 1e-9 * rate,
                                              1e-9 * target.flops_per_second, 100 * share));
  }
  if (options.json) {
    fmt::print("[{}]\n", fmt::join(rows, ",\n "));
    return 0;
  }
  fmt::print("float32 products on {} threads, GFLOP/s (medians of {})\n", pool.num_threads(),
             options.repeats);
  fmt::print("{:<8} {:>6} {:>6} {:>6} {:>9} {:>8} {:>7}\n{}\n", "", "m", "n", "k", "measured", "ceiling",
             "share", fmt::join(rows, "\n"));
  return 0;
}

#if !WYCH_CUDA
namespace {

Error needs_cuda(std::string_view command) {
  return {.kind = ErrorKind::kUsage,
          .where = std::string(command),
          .what = "measures a CUDA device, and this build has no CUDA",
          .hint = "build with ./x build --cuda",
          .more = {}};
}

}  // namespace

Expected<int> run(const BenchGroupedOptions& /*options*/) { return needs_cuda("bench grouped"); }
Expected<int> run(const BenchAttentionOptions& /*options*/) { return needs_cuda("bench attention"); }
Expected<int> run(const BenchElementwiseOptions& /*options*/) { return needs_cuda("bench elementwise"); }
Expected<int> run(const BenchHeadOptions& /*options*/) { return needs_cuda("bench head"); }
#endif

}  // namespace wych::cli
