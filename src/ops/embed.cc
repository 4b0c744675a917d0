#include "ops/embed.h"

#include <algorithm>

#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

template <class T>
void copy_rows(const ir::ExecContext& context, double scale) {
  const ir::View& weight = context.input(0);
  const i64 width = weight.dim(1);
  const T* rows = weight.as<T>();
  const i32* tokens = context.input(1).as<i32>();
  T* y = context.output(0).as<T>();
  const T factor = static_cast<T>(scale);
  context.pool->parallel_chunks(context.input(1).dim(0), rows_per_chunk(width), [&](i64 begin, i64 end) {
    for (i64 t = begin; t < end; ++t) {
      WYCH_CHECK(tokens[t] >= 0 && tokens[t] < weight.dim(0), "token {} of {}", tokens[t], weight.dim(0));
      const T* from = rows + tokens[t] * width;
      T* to = y + t * width;
      for (i64 j = 0; j < width; ++j) {
        to[j] = factor * from[j];
      }
    }
  });
}

// Every task owns a range of the vocabulary and looks through all tokens, so that no two tasks add to one row
// and the order of a row's sum is that of the tokens.
template <class T>
void add_rows(const ir::ExecContext& context, double scale) {
  constexpr i64 kRanges = 32;
  const i32* tokens = context.input(0).as<i32>();
  const T* dy = context.input(1).as<T>();
  T* dweight = context.output(0).as<T>();
  const i64 num_tokens = context.input(0).dim(0);
  const i64 vocabulary = context.output(0).dim(0);
  const i64 width = context.output(0).dim(1);
  const T factor = static_cast<T>(scale);
  context.pool->parallel_chunks(vocabulary, ceil_div(vocabulary, kRanges), [&](i64 begin, i64 end) {
    if (!context.accumulate) {
      std::fill(dweight + begin * width, dweight + end * width, T{0});
    }
    for (i64 t = 0; t < num_tokens; ++t) {
      if (tokens[t] < begin || tokens[t] >= end) {
        continue;
      }
      const T* from = dy + t * width;
      T* to = dweight + tokens[t] * width;
      for (i64 j = 0; j < width; ++j) {
        to[j] += factor * from[j];
      }
    }
  });
}

ir::OpCase embed_case(DType dtype, i64 tokens, i64 vocabulary, i64 width, double scale) {
  ir::OpCase example;
  example.label = fmt::format("T={} V={} d={} scale={}", tokens, vocabulary, width, scale);
  example.op = std::make_shared<Embed>(scale);
  example.inputs = {{{dtype, {vocabulary, width}}},
                    {{DType::kI32, {tokens}}, {}, 0, static_cast<double>(vocabulary)}};
  example.oracle = [=](const ir::Values& in) {
    ir::Values out(1);
    for (const double token : in[1]) {
      for (i64 j = 0; j < width; ++j) {
        out[0].push_back(scale * in[0][static_cast<std::size_t>(static_cast<i64>(token) * width + j)]);
      }
    }
    return out;
  };
  example.differentiable = {0};
  return example;
}

ir::OpCase embed_dw_case(DType dtype, i64 tokens, i64 vocabulary, i64 width, double scale) {
  ir::OpCase example;
  example.label = fmt::format("T={} V={} d={} scale={}", tokens, vocabulary, width, scale);
  example.op = std::make_shared<EmbedDw>(scale, vocabulary);
  example.inputs = {{{DType::kI32, {tokens}}, {}, 0, static_cast<double>(vocabulary)},
                    {{dtype, {tokens, width}}}};
  example.oracle = [=](const ir::Values& in) {
    ir::Values out(1, std::vector<double>(static_cast<std::size_t>(vocabulary * width), 0.0));
    for (std::size_t t = 0; t < in[0].size(); ++t) {
      for (std::size_t j = 0; j < static_cast<std::size_t>(width); ++j) {
        out[0][static_cast<std::size_t>(in[0][t]) * static_cast<std::size_t>(width) + j] +=
            scale * in[1][t * static_cast<std::size_t>(width) + j];
      }
    }
    return out;
  };
  example.reduction_length = tokens;
  return example;
}

}  // namespace

void Embed::visit_attributes(ir::AttributeVisitor& visitor) const { visitor.visit("scale", scale_); }

Expected<std::vector<ir::TensorType>> Embed::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_compute(inputs[0], 2) || !is_index(inputs[1], 1)) {
    return ir::shape_error("needs weight F[V,d] and tokens i32[T], F = f32 or f64", inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {inputs[1].shape[0], inputs[0].shape[1]}}};
}

std::vector<ir::ValueId> Embed::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                    std::span<const ir::ValueId> cotangents) const {
  const i64 vocabulary = builder.type(node.inputs[0]).shape[0];
  return {builder.add_one(std::make_shared<EmbedDw>(scale_, vocabulary), {node.inputs[1], cotangents[0]}),
          ir::kNoValue};
}

void Embed::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { copy_rows<T>(context, scale_); });
}

void EmbedDw::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("scale", scale_);
  visitor.visit("vocabulary", vocabulary_);
}

Expected<std::vector<ir::TensorType>> EmbedDw::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_index(inputs[0], 1) || !is_compute(inputs[1], 2) ||
      inputs[0].shape[0] != inputs[1].shape[0]) {
    return ir::shape_error("needs tokens i32[T] and dy F[T,d], F = f32 or f64", inputs);
  }
  return std::vector<ir::TensorType>{{inputs[1].dtype, {vocabulary_, inputs[1].shape[1]}}};
}

i64 EmbedDw::cuda_workspace(std::span<const ir::TensorType> inputs, std::span<const ir::TensorType> outputs,
                            const CudaTarget& /*target*/) const {
  return EmbedDwScratch(inputs[0].shape[0], vocabulary_, outputs[0].shape[1]).bytes;
}

void EmbedDw::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(1).type->dtype, [&]<class T>(T) { add_rows<T>(context, scale_); });
}

ir::ValueId embed(ir::Builder& builder, ir::ValueId weight, ir::ValueId tokens, double scale) {
  return builder.add_one(std::make_shared<Embed>(scale), {weight, tokens});
}

void register_embed(ir::Registry& registry) {
  registry.add("embed", [](DType dtype) -> std::vector<ir::OpCase> {
    return {embed_case(dtype, 7, 5, 3, 1.0), embed_case(dtype, 1, 1, 1, 0.5),
            embed_case(dtype, 301, 67, 128, 11.5)};
  });
  registry.add("embed_dw", [](DType dtype) -> std::vector<ir::OpCase> {
    return {embed_dw_case(dtype, 7, 5, 3, 1.0), embed_dw_case(dtype, 1, 1, 1, 0.5),
            embed_dw_case(dtype, 301, 67, 128, 11.5), embed_dw_case(dtype, 3, 131, 17, 2.0),
            embed_dw_case(dtype, 5003, 3, 2, 1.5)};
  });
}

}  // namespace wych::ops
