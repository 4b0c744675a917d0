// wych bench grouped: the expert products of training on the device, beside a copy's and a large product's
// rate.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "cli/commands.h"
#include "cli/cuda_timing.h"
#include "device/cuda.h"
#include "io/json.h"
#include "kernels/cuda_grouped_sm90.h"
#include "kernels/cuda_random.h"

namespace wych::cli {
namespace {

constexpr i64 kAlignment = 128;  // of the experts' segments, as training on CUDA has them

struct Problem {
  i64 experts;
  i64 routes;
  i64 k;
  i64 n;
};

// The shapes of a mixture-of-experts step that other libraries are measured on as well.
constexpr Problem kProblems[] = {
    {64, 131072, 2048, 2048}, {8, 65536, 2048, 4096}, {128, 65536, 2048, 2048}, {32, 65536, 2048, 2048}};

// Uneven loads that sum to the routes: exp(0.5 z) of them each, z normal.
std::vector<i64> uneven_counts(const Problem& problem) {
  const RandomStream stream = random_stream(1, 0, static_cast<u64>(problem.experts));
  std::vector<double> weights;
  double sum = 0;
  for (i64 e = 0; e < problem.experts; ++e) {
    weights.push_back(std::exp(0.5 * static_cast<double>(random_normal(stream, static_cast<u64>(e)))));
    sum += weights.back();
  }
  std::vector<i64> counts;
  i64 rest = problem.routes;
  for (const double weight : weights) {
    counts.push_back(std::min(rest, static_cast<i64>(weight / sum * static_cast<double>(problem.routes))));
    rest -= counts.back();
  }
  counts.front() += rest;
  return counts;
}

struct Row {
  Problem problem;
  std::vector<i64> counts;
  double forward = 0;  // FLOP/s, rows of padding not counted
  double dx = 0;
  double dw = 0;
  double dw_accumulate = 0;
};

Expected<Row> measure(device::CudaDevice& device, const Problem& problem, i64 repeats) {
  Row row{.problem = problem, .counts = uneven_counts(problem)};
  std::vector<i32> offsets = {0};
  for (const i64 count : row.counts) {
    offsets.push_back(offsets.back() + static_cast<i32>(round_up(count, kAlignment)));
  }
  const kernels::GroupedShape shape{.groups = problem.experts,
                                    .rows = offsets.back(),
                                    .n = problem.n,
                                    .k = problem.k,
                                    .alignment = kAlignment};
  if (!kernels::grouped_sm90_supports(device.target(), shape)) {
    return Error{.kind = ErrorKind::kUsage,
                 .where = device.name(),
                 .what = "has no kernel of its own for grouped products",
                 .hint = "they need a Hopper device",
                 .more = {}};
  }
  const i64 x_count = shape.rows * shape.k;
  const i64 y_count = shape.rows * shape.n;
  const i64 w_count = shape.groups * shape.n * shape.k;
  const i64 offsets_bytes = round_up(static_cast<i64>(offsets.size() * sizeof(i32)), i64{1024});
  WYCH_TRY(const device::CudaArena arena,
           device::CudaArena::create(device, "bench",
                                     offsets_bytes + 2 * (x_count + y_count + w_count) + 4 * w_count));
  auto* device_offsets = reinterpret_cast<i32*>(arena.data());
  auto* x = reinterpret_cast<__nv_bfloat16*>(arena.data() + offsets_bytes);
  auto* y = x + x_count;
  auto* w = y + y_count;
  auto* dw = reinterpret_cast<float*>(w + w_count);
  device.copy_to_device(arena.data(), reinterpret_cast<const std::byte*>(offsets.data()),
                        static_cast<i64>(offsets.size() * sizeof(i32)));
  device.synchronize();
  const auto randomise = [&] {
    kernels::cuda_fill_normal(device.stream(), 1, 1.0F, x_count, x);
    kernels::cuda_fill_normal(device.stream(), 2, 1.0F, y_count, y);
    kernels::cuda_fill_normal(device.stream(), 3, 0.02F, w_count, w);
  };
  const double flops = 2.0 * static_cast<double>(problem.routes) * static_cast<double>(problem.n * problem.k);
  CUstream_st* stream = device.stream();
  const CudaTarget& target = device.target();
  randomise();
  row.dw = flops / time_work(device, repeats, [&] {
             kernels::grouped_sm90_dw(stream, target, shape, device_offsets, y, x, false, dw);
           });
  row.dw_accumulate = flops / time_work(device, repeats, [&] {
                        kernels::grouped_sm90_dw(stream, target, shape, device_offsets, y, x, true, dw);
                      });
  row.forward = flops / time_work(device, repeats, [&] {
                  kernels::grouped_sm90_forward(stream, target, shape, device_offsets, x, w, y);
                });
  randomise();
  row.dx = flops / time_work(device, repeats, [&] {
             kernels::grouped_sm90_dx(stream, target, shape, device_offsets, y, w, x);
           });
  return row;
}

}  // namespace

Expected<int> run(const BenchGroupedOptions& options) {
  WYCH_TRY(const std::unique_ptr<device::CudaDevice> device, device::CudaDevice::open());
  std::vector<std::string> lines;
  for (const Problem& problem : kProblems) {
    WYCH_TRY(const Row row, measure(*device, problem, options.repeats));
    lines.push_back(
        options.json ? io::JsonObject()
                           .add("experts", problem.experts)
                           .add("routes", problem.routes)
                           .add("k", problem.k)
                           .add("n", problem.n)
                           .add_raw("counts", io::json_list(row.counts))
                           .add("forward_tflops", 1e-12 * row.forward)
                           .add("dx_tflops", 1e-12 * row.dx)
                           .add("dw_tflops", 1e-12 * row.dw)
                           .add("dw_accumulate_tflops", 1e-12 * row.dw_accumulate)
                           .text()
                     : fmt::format("E {:>3}  {:>6} routes  {} -> {}  {:>8.0f} {:>8.0f} {:>8.0f} {:>8.0f}",
                                   problem.experts, problem.routes, problem.k, problem.n, 1e-12 * row.forward,
                                   1e-12 * row.dx, 1e-12 * row.dw, 1e-12 * row.dw_accumulate));
  }
  if (options.json) {
    fmt::print("[{}]\n", fmt::join(lines, ",\n "));
    return 0;
  }
  fmt::print("bfloat16 grouped products on {}, TFLOP/s (medians of {}, uneven experts)\n", device->name(),
             options.repeats);
  fmt::print("{:<34}  {:>8} {:>8} {:>8} {:>8}\n{}\n", "", "forward", "dx", "dw",
             "dw +=", fmt::join(lines, "\n"));
  return 0;
}

}  // namespace wych::cli
