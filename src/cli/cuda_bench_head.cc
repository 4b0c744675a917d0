// wych bench head: head, loss and their gradients as training runs them, beside the three products alone,
// each over all tokens at once.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "cli/commands.h"
#include "cli/cuda_timing.h"
#include "device/cuda_matmul.h"
#include "io/json.h"
#include "kernels/cuda_random.h"
#include "ops/head_loss.h"

namespace wych::cli {
namespace {

struct Problem {
  i64 tokens;
  i64 width;  // d
  i64 vocabulary;
};

constexpr Problem kProblems[] = {{8192, 2048, 50304}, {16384, 2048, 50304}, {8192, 2048, 100352}};

struct Row {
  double head_seconds = 0;
  double product_seconds = 0;
  [[nodiscard]] double share() const { return product_seconds / head_seconds; }
};

// Hands out pieces of an arena.
class Pieces {
 public:
  explicit Pieces(std::byte* data) : next_(data) {}
  std::byte* take(i64 bytes) { return std::exchange(next_, next_ + round_up(bytes, 256)); }

 private:
  std::byte* next_;
};

double time_products(device::CudaDevice& device, const Problem& problem, i64 repeats, const std::byte* x,
                     const std::byte* weight, std::byte* dx, std::byte* dweight, std::byte* logits,
                     std::byte* workspace) {
  const auto [tokens, width, vocabulary] = problem;
  const device::MatmulShape forward{.trans_b = true,
                                    .m = tokens,
                                    .n = vocabulary,
                                    .k = width,
                                    .lda = width,
                                    .ldb = width,
                                    .ldc = vocabulary};
  const device::MatmulShape to_x{
      .m = tokens, .n = width, .k = vocabulary, .lda = vocabulary, .ldb = width, .ldc = width};
  const device::MatmulShape to_weight{.trans_a = true,
                                      .m = vocabulary,
                                      .n = width,
                                      .k = tokens,
                                      .lda = vocabulary,
                                      .ldb = width,
                                      .ldc = width,
                                      .out = DType::kF32};
  return median_seconds(device, repeats, [&] {
    device.matmul().multiply(device.stream(), forward, x, weight, logits, workspace);
    device.matmul().multiply(device.stream(), to_x, logits, weight, dx, workspace);
    device.matmul().multiply(device.stream(), to_weight, logits, x, dweight, workspace);
  });
}

Expected<Row> measure(device::CudaDevice& device, const Problem& problem, i64 repeats) {
  const auto [tokens, width, vocabulary] = problem;
  const ops::HeadLossBackward op(vocabulary);
  const ir::TensorType scalar{DType::kF64, {1}};
  const std::vector<ir::TensorType> input_types = {{DType::kBF16, {tokens, width}},
                                                   {DType::kBF16, {vocabulary, width}},
                                                   {DType::kI32, {tokens}},
                                                   scalar,
                                                   scalar,
                                                   scalar};
  const std::vector<ir::TensorType> output_types = op.infer(input_types).value();
  const i64 scratch =
      std::max(op.cuda_workspace(input_types, output_types, device.target()), kMatmulWorkspaceBytes);
  const i64 logit_bytes = tokens * vocabulary * dtype_bytes(DType::kBF16);
  i64 bytes = scratch + logit_bytes + 512;
  std::vector<ir::View> inputs;
  std::vector<ir::View> outputs;
  for (const ir::TensorType& type : input_types) {
    bytes += round_up(type.bytes(), 256);
  }
  for (const ir::TensorType& type : output_types) {
    bytes += round_up(type.bytes(), 256);
  }
  WYCH_TRY(const device::CudaArena arena, device::CudaArena::create(device, "bench", bytes));
  Pieces pieces(arena.data());
  for (const ir::TensorType& type : input_types) {
    inputs.push_back({pieces.take(type.bytes()), &type});
  }
  for (const ir::TensorType& type : output_types) {
    outputs.push_back({pieces.take(type.bytes()), &type});
  }
  std::byte* const logits = pieces.take(logit_bytes);
  std::byte* const workspace = pieces.take(scratch);
  kernels::cuda_fill_normal(device.stream(), 1, 1.0F, tokens * width,
                            reinterpret_cast<__nv_bfloat16*>(inputs[0].data));
  kernels::cuda_fill_normal(device.stream(), 2, 0.02F, vocabulary * width,
                            reinterpret_cast<__nv_bfloat16*>(inputs[1].data));
  const RandomStream stream = random_stream(1, 0, 3);
  std::vector<i32> targets;
  for (i64 token = 0; token < tokens; ++token) {
    targets.push_back(static_cast<i32>(i64{random_word(stream, static_cast<u64>(token))} % vocabulary));
  }
  const double scalars[] = {static_cast<double>(tokens), 1.0, 0.0};  // denominator, d_ce, d_z
  device.copy_to_device(inputs[2].data, reinterpret_cast<const std::byte*>(targets.data()),
                        input_types[2].bytes());
  for (std::size_t i = 0; i < 3; ++i) {
    device.copy_to_device(inputs[3 + i].data, reinterpret_cast<const std::byte*>(&scalars[i]),
                          sizeof(double));
  }
  device.synchronize();
  const ir::CudaContext context{.inputs = inputs,
                                .outputs = outputs,
                                .workspace = workspace,
                                .stream = device.stream(),
                                .target = device.target(),
                                .matmul = &device.matmul()};
  Row row;
  row.head_seconds = median_seconds(device, repeats, [&] { op.launch_cuda(context); });
  row.product_seconds = time_products(device, problem, repeats, inputs[0].data, inputs[1].data,
                                      outputs[2].data, outputs[3].data, logits, workspace);
  return row;
}

}  // namespace

Expected<int> run(const BenchHeadOptions& options) {
  WYCH_TRY(const std::unique_ptr<device::CudaDevice> device, device::CudaDevice::open());
  std::vector<std::string> lines;
  for (const Problem& problem : kProblems) {
    WYCH_TRY(const Row row, measure(*device, problem, options.repeats));
    lines.push_back(options.json
                        ? io::JsonObject()
                              .add("tokens", problem.tokens)
                              .add("d", problem.width)
                              .add("vocabulary", problem.vocabulary)
                              .add("head_seconds", row.head_seconds)
                              .add("product_seconds", row.product_seconds)
                              .add("share", row.share())
                              .text()
                        : fmt::format("{:>6} tokens  {} -> {:<7} {:>9.2f} {:>9.2f} {:>7.0f}%", problem.tokens,
                                      problem.width, problem.vocabulary, 1e3 * row.head_seconds,
                                      1e3 * row.product_seconds, 100 * row.share()));
  }
  if (options.json) {
    fmt::print("[{}]\n", fmt::join(lines, ",\n "));
    return 0;
  }
  fmt::print("bfloat16 head and loss with gradients on {}, ms (medians of {})\n", device->name(),
             options.repeats);
  fmt::print("{:<30} {:>9} {:>9} {:>8}\n{}\n", "", "head", "products", "share", fmt::join(lines, "\n"));
  return 0;
}

}  // namespace wych::cli
