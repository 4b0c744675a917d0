// wych bench elementwise: the ops of a layer that move memory and compute little, at the shapes of two
// models, beside the rate of a copy. Every op is launched as training launches it, on normal data and uneven
// routes; the caches are overwritten before each run.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "base/philox.h"
#include "cli/commands.h"
#include "cli/cuda_timing.h"
#include "io/json.h"
#include "ir/add.h"
#include "kernels/cuda_ceilings.h"
#include "kernels/cuda_random.h"
#include "ops/moe_combine.h"
#include "ops/moe_permute.h"
#include "ops/moe_placement.h"
#include "ops/moe_swiglu.h"
#include "ops/qk_norm_rope.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

namespace wych::cli {
namespace {

constexpr i64 kAlignment = 128;               // of the experts' segments
constexpr i64 kFlushBytes = i64{256} << 20U;  // more than any cache
constexpr i64 kArenaBytes = i64{4} << 30U;
constexpr DType kActivation = DType::kBF16;

// A layer's extents and the tokens of a microbatch.
struct Model {
  std::string_view name;
  i64 tokens;
  i64 sequence;
  i64 width;  // d
  ops::HeadLayout heads;
  bool per_head;
  i64 experts;
  i64 k;
  i64 hidden;  // of an expert
};

constexpr Model kModels[] = {{"OLMoE-1B-7B", 8192, 4096, 2048, {16, 16, 128}, false, 64, 8, 1024},
                             {"ladder-2048", 16384, 8192, 2048, {16, 4, 128}, true, 64, 4, 2048}};

struct Row {
  std::string_view op;
  double bytes = 0;
  double seconds = 0;
};

// k experts of each token, all different; those of the first half are drawn three times as often.
std::vector<i32> uneven_routes(const Model& model) {
  const RandomStream stream = random_stream(1, 0, static_cast<u64>(model.experts));
  std::vector<i32> routes;
  u64 draw = 0;
  for (i64 token = 0; token < model.tokens; ++token) {
    const auto first = static_cast<std::ptrdiff_t>(routes.size());
    while (static_cast<i64>(routes.size()) < (token + 1) * model.k) {
      const auto number = static_cast<i64>(random_word(stream, draw++));
      const i64 any = number % model.experts;
      const i64 expert = number / model.experts % 2 == 0 ? any : any / 2;
      if (std::find(routes.begin() + first, routes.end(), static_cast<i32>(expert)) == routes.end()) {
        routes.push_back(static_cast<i32>(expert));
      }
    }
  }
  return routes;
}

// Memory of one op after the other, and what all ops of a model share.
class Bench {
 public:
  Bench(device::CudaDevice& device, const device::CudaArena& arena, const Model& model, i64 repeats)
      : device_(device), arena_(arena), model_(model), repeats_(repeats) {
    flush_ = take(kFlushBytes);
    place_routes();
    document_start_ = view({DType::kI32, {model.tokens}});
    device_.fill(document_start_.data, 0, document_start_.type->bytes());
  }

  std::vector<Row> run() {
    const ir::TensorType stream = activations(model_.tokens, model_.width);
    const ir::TensorType norm{DType::kF32, {model_.width}};
    const ir::TensorType rstd{DType::kF32, {model_.tokens}};
    measure("add", ir::Add(), {fresh(stream), fresh(stream)});
    measure("rms_norm", ops::RmsNorm(1e-5), {fresh(stream), fresh(norm)});
    measure("add_rms_norm", ops::AddRmsNorm(1e-5), {fresh(stream), fresh(stream), fresh(norm)});
    measure("rms_norm_backward", ops::RmsNormBackward(false),
            {fresh(stream), fresh(stream), fresh(norm), fresh(rstd)});
    measure("add_rms_norm_backward", ops::RmsNormBackward(true),
            {fresh(stream), fresh(stream), fresh(norm), fresh(rstd), fresh(stream)});
    run_attention();
    run_experts();
    return rows_;
  }

 private:
  struct Operand {
    ir::TensorType type;
    std::byte* data = nullptr;  // null: normal numbers in memory of its own
  };
  static Operand fresh(const ir::TensorType& type) { return {type}; }
  static Operand given(const ir::View& view) { return {*view.type, view.data}; }
  static ir::TensorType activations(i64 rows, i64 columns) { return {kActivation, {rows, columns}}; }

  void run_attention() {
    const ops::QkNormRopeShape shape{
        .per_head = model_.per_head,
        .rope = {.layout = model_.heads, .theta = 10000.0, .sequence = model_.sequence}};
    const ops::QkNormShape norm = shape.norm();
    const Operand qkv = fresh(activations(model_.tokens, model_.heads.width()));
    const Operand q_weight = fresh({DType::kF32, {norm.query_columns()}});
    const Operand k_weight = fresh({DType::kF32, {norm.key_columns()}});
    const Operand rstd = fresh({DType::kF32, {model_.tokens, norm.query_rows() + norm.key_rows()}});
    const Operand start = given(document_start_);
    measure("rope", ops::Rope(shape.rope), {qkv, start});
    measure("qk_norm_rope", ops::QkNormRope(shape, 1e-5), {qkv, q_weight, k_weight, start});
    // The values of the forward are not read.
    measure("qk_norm_rope_backward", ops::QkNormRopeBackward(shape),
            {qkv, qkv, q_weight, k_weight, rstd, start},
            model_.tokens * model_.heads.kv_width() * dtype_bytes(kActivation));
  }

  void run_experts() {
    const i64 capacity = route_of_row_.dim(0);
    const Operand rows = fresh(activations(capacity, model_.width));
    const Operand gu = fresh(activations(capacity, 2 * model_.hidden));
    const Operand h = fresh(activations(capacity, model_.hidden));
    const Operand weights = fresh({DType::kF32, {model_.tokens, model_.k}});
    const Operand route_of_row = given(route_of_row_);
    const Operand row_of_route = given(row_of_route_);
    const Operand offsets = given(offsets_);
    measure("moe_permute", ops::MoePermute(),
            {fresh(activations(model_.tokens, model_.width)), route_of_row, row_of_route, offsets});
    measure("moe_swiglu", ops::MoeSwiglu(), {gu, weights, route_of_row, offsets});
    measure("moe_swiglu_dx", ops::MoeSwigluDx(), {h, gu, weights, route_of_row, offsets});
    // Pad rows are not read.
    measure("moe_combine", ops::MoeCombine(), {rows, row_of_route, route_of_row, offsets},
            (used_rows_ - model_.tokens * model_.k) * model_.width * dtype_bytes(kActivation));
    const Operand dense = fresh(activations(model_.tokens, 2 * model_.hidden));
    measure("swiglu", ops::Swiglu(), {dense});
    measure("swiglu_dx", ops::SwigluDx(), {fresh(activations(model_.tokens, model_.hidden)), dense});
  }

  // Bytes that an operand moves: of expert rows only those in segments.
  [[nodiscard]] double moved(const ir::TensorType& type) const {
    const i64 capacity = route_of_row_.dim(0);
    const auto bytes = static_cast<double>(type.bytes());
    return type.shape[0] == capacity ? bytes * static_cast<double>(used_rows_) / static_cast<double>(capacity)
                                     : bytes;
  }

  // `spared`: bytes of the operands that the op need not move.
  void measure(std::string_view name, const ir::Op& op, const std::vector<Operand>& operands,
               i64 spared = 0) {
    used_ = shared_;
    Row row{.op = name, .bytes = -static_cast<double>(spared)};
    std::vector<ir::TensorType> input_types;
    for (const Operand& operand : operands) {
      input_types.push_back(operand.type);
    }
    const std::vector<ir::TensorType> output_types = op.infer(input_types).value();
    std::vector<ir::View> inputs;
    std::vector<ir::View> outputs;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      inputs.push_back({operands[i].data, &input_types[i]});
      if (inputs.back().data == nullptr) {
        inputs.back().data = take(input_types[i].bytes());
        randomise(inputs.back(), i);
      }
      row.bytes += moved(input_types[i]);
    }
    for (const ir::TensorType& type : output_types) {
      outputs.push_back({take(type.bytes()), &type});
      row.bytes += moved(type);
    }
    const ir::CudaContext context{
        .inputs = inputs,
        .outputs = outputs,
        .workspace = take(op.cuda_workspace(input_types, output_types, device_.target())),
        .stream = device_.stream(),
        .target = device_.target()};
    row.seconds = median_seconds(
        device_, repeats_, [&] { op.launch_cuda(context); }, [&] { device_.fill(flush_, 0, kFlushBytes); });
    rows_.push_back(row);
  }

  void randomise(const ir::View& to, u64 seed) {
    if (to.type->dtype == DType::kF32) {
      kernels::cuda_fill_normal(device_.stream(), seed, 1.0F, to.elements(), to.as<float>());
    } else {
      kernels::cuda_fill_normal(device_.stream(), seed, 1.0F, to.elements(),
                                reinterpret_cast<__nv_bfloat16*>(to.data));
    }
  }

  void place_routes() {
    const i64 capacity = ops::MoePlacement::worst_case(model_.tokens, model_.k, model_.experts, kAlignment);
    const ops::MoePlacement op(model_.experts, kAlignment, capacity);
    const std::vector<i32> routes = uneven_routes(model_);
    const ir::View indices = view({DType::kI32, {model_.tokens, model_.k}});
    device_.copy_to_device(indices.data, reinterpret_cast<const std::byte*>(routes.data()),
                           indices.type->bytes());
    offsets_ = view({DType::kI32, {model_.experts + 1}});
    const ir::View counts = view({DType::kI32, {model_.experts}});
    row_of_route_ = view({DType::kI32, {model_.tokens, model_.k}});
    route_of_row_ = view({DType::kI32, {capacity}});
    const std::vector<ir::View> inputs = {indices};
    const std::vector<ir::View> outputs = {offsets_, counts, row_of_route_, route_of_row_};
    std::vector<ir::TensorType> output_types;
    for (const ir::View& output : outputs) {
      output_types.push_back(*output.type);
    }
    op.launch_cuda(
        {.inputs = inputs,
         .outputs = outputs,
         .workspace = take(op.cuda_workspace(std::array{*indices.type}, output_types, device_.target())),
         .stream = device_.stream(),
         .target = device_.target()});
    i32 used = 0;
    device_.copy_to_host(reinterpret_cast<std::byte*>(&used),
                         offsets_.data + model_.experts * i64{sizeof(i32)}, sizeof(i32));
    device_.synchronize();
    used_rows_ = used;
    shared_ = used_;
  }

  // Memory and a type that outlive the ops.
  ir::View view(const ir::TensorType& type) {
    kept_.push_back(std::make_unique<ir::TensorType>(type));
    const ir::View result{take(type.bytes()), kept_.back().get()};
    shared_ = used_;
    return result;
  }

  std::byte* take(i64 bytes) {
    std::byte* const data = arena_.data() + used_;
    used_ = round_up(used_ + bytes, 256);
    WYCH_CHECK(used_ <= arena_.bytes(), "{} bytes of an arena of {}", used_, arena_.bytes());
    return data;
  }

  device::CudaDevice& device_;
  const device::CudaArena& arena_;
  const Model& model_;
  i64 repeats_;
  i64 used_ = 0;    // bytes of the arena
  i64 shared_ = 0;  // those that stay
  std::byte* flush_ = nullptr;
  std::vector<std::unique_ptr<ir::TensorType>> kept_;
  ir::View document_start_, offsets_, row_of_route_, route_of_row_;
  i64 used_rows_ = 0;
  std::vector<Row> rows_;
};

std::string json_row(const Model& model, const Row& row, double copy_rate) {
  return io::JsonObject()
      .add("model", model.name)
      .add("op", row.op)
      .add("tokens", model.tokens)
      .add("sequence", model.sequence)
      .add("d", model.width)
      .add("query_heads", model.heads.query_heads)
      .add("kv_heads", model.heads.kv_heads)
      .add("head_dim", model.heads.head_dim)
      .add("per_head", model.per_head)
      .add("experts", model.experts)
      .add("k", model.k)
      .add("hidden", model.hidden)
      .add("bytes", row.bytes)
      .add("seconds", row.seconds)
      .add("bytes_per_second", row.bytes / row.seconds)
      .add("copy_bytes_per_second", copy_rate)
      .add("share", row.bytes / row.seconds / copy_rate)
      .text();
}

}  // namespace

Expected<int> run(const BenchElementwiseOptions& options) {
  WYCH_TRY(const std::unique_ptr<device::CudaDevice> device, device::CudaDevice::open());
  WYCH_TRY(const kernels::Ceilings ceilings, kernels::measure_cuda_ceilings(*device, DType::kF32));
  const double copy_rate = ceilings.bytes_per_second;
  WYCH_TRY(const device::CudaArena arena, device::CudaArena::create(*device, "bench", kArenaBytes));
  std::vector<std::string> lines;
  for (const Model& model : kModels) {
    for (const Row& row : Bench(*device, arena, model, options.repeats).run()) {
      lines.push_back(options.json ? json_row(model, row, copy_rate)
                                   : fmt::format("{:<12} {:<22} {:>9.1f} {:>9.1f} {:>7.2f} {:>6.0f}%",
                                                 model.name, row.op, 1e-6 * row.bytes, 1e6 * row.seconds,
                                                 1e-12 * row.bytes / row.seconds,
                                                 100 * row.bytes / row.seconds / copy_rate));
    }
  }
  if (options.json) {
    fmt::print("[{}]\n", fmt::join(lines, ",\n "));
    return 0;
  }
  fmt::print("bfloat16 on {}, medians of {}; a copy reaches {:.2f} TB/s\n", device->name(), options.repeats,
             1e-12 * copy_rate);
  fmt::print("{:<12} {:<22} {:>9} {:>9} {:>7} {:>7}\n{}\n", "", "", "MB", "us", "TB/s", "of copy",
             fmt::join(lines, "\n"));
  return 0;
}

}  // namespace wych::cli
