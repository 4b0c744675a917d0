// wych bench attention: causal attention of training on the device, forward and gradient: by cuDNN, its
// gradient in one order of sums and in any, and by kernels of our own; beside the rate of a large product.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "cli/commands.h"
#include "cli/cuda_timing.h"
#include "device/cuda_attention.h"
#include "device/cuda_cudnn.h"
#include "io/json.h"
#include "kernels/cuda_ceilings.h"
#include "kernels/cuda_random.h"
#include "ops/attention.h"

namespace wych::cli {
namespace {

struct Problem {
  i64 sequences;
  i64 sequence;
  ops::HeadLayout layout;
  i64 window;  // 0: unlimited

  [[nodiscard]] ops::AttentionShape shape(bool deterministic) const {
    return {.layout = layout,
            .sequence = sequence,
            .window = window,
            .scale = 1.0 / std::sqrt(static_cast<double>(layout.head_dim)),
            .documents = false,
            .deterministic = deterministic};
  }
  // Multiply-adds count two, and pairs of a query and a key that do not see each other nothing: two products
  // a head forward, five backward.
  [[nodiscard]] double forward_flops() const {
    const auto s = static_cast<double>(sequence);
    const double w = window > 0 ? std::min(s, static_cast<double>(window)) : s;
    const double pairs = static_cast<double>(sequences) * (w * (w + 1) / 2 + (s - w) * w);
    return 4 * pairs * static_cast<double>(layout.query_width());
  }
  [[nodiscard]] double backward_flops() const { return 2.5 * forward_flops(); }
  [[nodiscard]] std::string text() const {
    return fmt::format("{} x {:>5}  {}/{} heads of {}  {}", sequences, sequence, layout.query_heads,
                       layout.kv_heads, layout.head_dim,
                       window > 0 ? fmt::format("window {}", window) : "causal");
  }
};

// OLMoE-1B-7B and a model with shared key heads, each at both lengths; and a window.
constexpr Problem kProblems[] = {{4, 4096, {16, 16, 128}, 0},
                                 {4, 4096, {16, 4, 128}, 0},
                                 {2, 8192, {16, 16, 128}, 0},
                                 {2, 8192, {16, 4, 128}, 0},
                                 {2, 8192, {16, 4, 128}, 2048}};

struct Kernels {
  std::string_view key;  // in JSON
  std::string_view name;
  bool cudnn;
  bool deterministic;
};

constexpr Kernels kKernels[] = {{"cudnn_deterministic", "cuDNN", true, true},
                                {"cudnn_nondeterministic", "cuDNN, any order", true, false},
                                {"own", "own kernels", false, true}};

struct Times {
  double forward_seconds = 0;
  double backward_seconds = 0;
  i64 workspace_bytes = 0;  // of the gradient
};

// The ops as a run has them: planned buffers, plans built ahead, each pass recorded and launched. None if
// cuDNN is asked for and does not do it.
Expected<std::optional<Times>> measure(device::CudaDevice& device, const Problem& problem,
                                       const Kernels& kernels, i64 repeats) {
  const ops::AttentionShape shape = problem.shape(kernels.deterministic);
  const ops::Attention forward(shape);
  const ops::AttentionDqkv gradient(shape);
  const i64 tokens = problem.sequences * problem.sequence;
  const ir::TensorType qkv{DType::kBF16, {tokens, problem.layout.width()}};
  const ir::TensorType starts{DType::kI32, {tokens}};
  WYCH_TRY(const std::vector<ir::TensorType> results, forward.infer(std::vector{qkv, starts}));
  const ir::TensorType& out = results[0];
  const ir::TensorType& lse = results[1];
  const std::vector<ir::TensorType> gradient_types = {out, qkv, out, lse, starts};
  const i64 workspace_bytes = gradient.cuda_workspace(gradient_types, std::vector{qkv}, device.target());
  const i64 scratch_bytes =
      std::max(workspace_bytes, forward.cuda_workspace(std::vector{qkv, starts}, results, device.target()));
  WYCH_TRY(
      const device::CudaArena arena,
      device::CudaArena::create(
          device, "bench", scratch_bytes + 2 * (qkv.bytes() + out.bytes()) + lse.bytes() + starts.bytes()));
  std::byte* next = arena.data() + scratch_bytes;
  const auto place = [&](const ir::TensorType& type) {
    std::byte* data = next;
    next += type.bytes();
    return ir::View{data, &type};
  };
  const ir::View qkv_view = place(qkv);
  const ir::View out_view = place(out);
  const ir::View dout_view = place(out);
  const ir::View dqkv_view = place(qkv);
  const ir::View lse_view = place(lse);
  const ir::View starts_view = place(starts);
  kernels::cuda_fill_normal(device.stream(), 1, 1.0F, qkv.elements(),
                            reinterpret_cast<__nv_bfloat16*>(qkv_view.data));
  kernels::cuda_fill_normal(device.stream(), 2, 1.0F, out.elements(),
                            reinterpret_cast<__nv_bfloat16*>(dout_view.data));
  const std::vector<ir::View> forward_inputs = {qkv_view, starts_view};
  const std::vector<ir::View> forward_outputs = {out_view, lse_view};
  const std::vector<ir::View> gradient_inputs = {dout_view, qkv_view, out_view, lse_view, starts_view};
  const std::vector<ir::View> gradient_outputs = {dqkv_view};
  const auto context = [&](const std::vector<ir::View>& inputs, const std::vector<ir::View>& outputs) {
    return ir::CudaContext{.inputs = inputs,
                           .outputs = outputs,
                           .workspace = arena.data(),
                           .stream = device.stream(),
                           .target = device.target(),
                           .matmul = &device.matmul(),
                           .attention = kernels.cudnn ? &device.attention() : nullptr};
  };
  const auto seconds_of = [&](const ir::Op& op, const ir::CudaContext& operands) {
    const auto graph = device::CudaGraph::capture(device, [&] { op.launch_cuda(operands); });
    return median_seconds(device, repeats, [&] { graph.launch(device); });
  };
  const ir::CudaContext forward_context = context(forward_inputs, forward_outputs);
  const ir::CudaContext gradient_context = context(gradient_inputs, gradient_outputs);
  if (kernels.cudnn) {
    forward.prepare_cuda(forward_context);
    gradient.prepare_cuda(gradient_context);
    const std::optional<device::FusedAttention> fused = ops::fused_attention(shape, qkv, device.target());
    if (!fused || !device.attention().is_prepared(device::AttentionPass::kForward, *fused) ||
        !device.attention().is_prepared(device::AttentionPass::kGradient, *fused)) {
      return std::optional<Times>();
    }
  }
  Times times{.workspace_bytes = kernels.cudnn ? workspace_bytes : lse.bytes()};
  times.forward_seconds = seconds_of(forward, forward_context);
  times.backward_seconds = seconds_of(gradient, gradient_context);
  return std::optional(times);
}

std::string json_times(const Problem& problem, const Times& times, double ceiling) {
  io::JsonObject object;
  const auto add = [&](const std::string& pass, double flops, double seconds) {
    object.add(pass + "_ms", 1e3 * seconds)
        .add(pass + "_tflops", 1e-12 * flops / seconds)
        .add(pass + "_share", flops / seconds / ceiling);
  };
  add("forward", problem.forward_flops(), times.forward_seconds);
  add("backward", problem.backward_flops(), times.backward_seconds);
  return object.add("backward_workspace_bytes", times.workspace_bytes).text();
}

std::string text_times(const Problem& problem, const Times& times, double ceiling) {
  const auto pass = [&](double flops, double seconds) {
    return fmt::format("{:>8.3f} {:>8.0f} {:>6.0f} %", 1e3 * seconds, 1e-12 * flops / seconds,
                       100 * flops / seconds / ceiling);
  };
  return pass(problem.forward_flops(), times.forward_seconds) + "  " +
         pass(problem.backward_flops(), times.backward_seconds);
}

}  // namespace

Expected<int> run(const BenchAttentionOptions& options) {
  WYCH_TRY(const std::unique_ptr<device::CudaDevice> device, device::CudaDevice::open());
  WYCH_TRY(const kernels::Ceilings ceilings, kernels::measure_cuda_ceilings(*device, DType::kBF16));
  const double ceiling = ceilings.flops_per_second;
  const std::string cudnn = device::cudnn_problem().empty() ? device::cudnn_version() : "";
  std::vector<std::string> lines;
  for (const Problem& problem : kProblems) {
    io::JsonObject object;
    object.add("sequences", problem.sequences)
        .add("sequence", problem.sequence)
        .add("query_heads", problem.layout.query_heads)
        .add("kv_heads", problem.layout.kv_heads)
        .add("head_dim", problem.layout.head_dim)
        .add("window", problem.window)
        .add("forward_flops", problem.forward_flops())
        .add("backward_flops", problem.backward_flops())
        .add("ceiling_flops_per_second", ceiling)
        .add("cudnn_version", cudnn);
    for (const Kernels& kernels : kKernels) {
      WYCH_TRY(const std::optional<Times> times, measure(*device, problem, kernels, options.repeats));
      object.add_raw(kernels.key, times ? json_times(problem, *times, ceiling) : "null");
      if (!options.json) {
        lines.push_back(fmt::format("{:<38} {:<17} {}", problem.text(), kernels.name,
                                    times ? text_times(problem, *times, ceiling) : "not available"));
      }
    }
    if (options.json) {
      lines.push_back(object.text());
    }
  }
  for (const std::string& note : device->attention().take_notes()) {
    fmt::print(stderr, "{}\n", note);
  }
  if (options.json) {
    fmt::print("[{}]\n", fmt::join(lines, ",\n "));
    return 0;
  }
  fmt::print(
      "attention in bfloat16 on {}, cuDNN {}: medians of {}; share of {:.0f} TFLOP/s, one large product\n",
      device->name(), cudnn.empty() ? "missing" : cudnn, options.repeats, 1e-12 * ceiling);
  fmt::print("FLOPs of the pairs that see each other (about half of all): 4 head_dim forward, 10 backward\n");
  fmt::print("{:<56} {:>8} {:>8} {:>8}  {:>8} {:>8} {:>8}\n{}\n", "", "fwd ms", "TFLOP/s", "share", "bwd ms",
             "TFLOP/s", "share", fmt::join(lines, "\n"));
  fmt::print("{} plans of cuDNN, built in {:.1f} s\n", device->attention().num_plans(),
             device->attention().build_seconds());
  return 0;
}

}  // namespace wych::cli
