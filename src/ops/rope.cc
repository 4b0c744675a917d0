#include "ops/rope.h"

#include <algorithm>
#include <cmath>

#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

// The cosine and sine of the angle of pair i at a position, every step in T.
template <class T>
struct Angles {
  T theta;
  i64 head_dim;
  bool inverse;

  void operator()(i64 position, i64 i, T& cosine, T& sine) const {
    const T exponent = static_cast<T>(2 * i) / static_cast<T>(head_dim);
    const T angle = static_cast<T>(position) * (T{1} / std::pow(theta, exponent));
    cosine = std::cos(angle);
    sine = inverse ? -std::sin(angle) : std::sin(angle);
  }
};

// Rotates `count` pairs (first[i], second[i]) by the angles of the table.
template <class T>
void rotate(const T* first, const T* second, const T* cosine, const T* sine, i64 count, T* out_first,
            T* out_second) {
#pragma GCC ivdep
  for (i64 i = 0; i < count; ++i) {
    const T x1 = first[i];
    const T x2 = second[i];
    out_first[i] = x1 * cosine[i] - x2 * sine[i];
    out_second[i] = x2 * cosine[i] + x1 * sine[i];
  }
}

template <class T>
void rotate_heads(const ir::ExecContext& context, const RopeShape& shape, bool inverse) {
  const HeadLayout& layout = shape.layout;
  const i64 width = layout.width();
  const i64 half = layout.head_dim / 2;
  const i64 heads = layout.query_heads + layout.kv_heads;
  const i64 tokens = context.input(0).dim(0);
  const i64 positions = std::min(shape.sequence, tokens);
  const T* qkv = context.input(0).as<T>();
  const i32* document_start = context.input(1).as<i32>();
  T* out = context.output(0).as<T>();
  T* table = reinterpret_cast<T*>(context.workspace);  // [positions, cosines and sines, half]
  const Angles<T> angles{static_cast<T>(shape.theta), layout.head_dim, inverse};
  context.pool->parallel_chunks(positions, std::max<i64>(1, 256 / half), [&](i64 begin, i64 end) {
    for (i64 p = begin; p < end; ++p) {
      T* row = table + 2 * half * p;
      for (i64 i = 0; i < half; ++i) {
        angles(p, i, row[i], row[half + i]);
      }
    }
  });
  context.pool->parallel_chunks(tokens, rows_per_chunk(width), [&](i64 begin, i64 end) {
    for (i64 t = begin; t < end; ++t) {
      const T* from = qkv + t * width;
      T* to = out + t * width;
      const i64 position = t % shape.sequence - document_start[t];
      WYCH_DCHECK(position >= 0, "token {} has position {}", t, position);
      if (position < positions) {
        const T* row = table + 2 * half * position;
        for (i64 h = 0; h < heads; ++h) {
          const i64 at = h * layout.head_dim;
          rotate(from + at, from + at + half, row, row + half, half, to + at, to + at + half);
        }
      } else {  // generation, beyond the table
        for (i64 i = 0; i < half; ++i) {
          T cosine;
          T sine;
          angles(position, i, cosine, sine);
          for (i64 h = 0; h < heads; ++h) {
            const i64 at = h * layout.head_dim + i;
            rotate(from + at, from + at + half, &cosine, &sine, 1, to + at, to + at + half);
          }
        }
      }
      if (from != to) {
        std::copy_n(from + layout.value_column(), layout.kv_width(), to + layout.value_column());
      }
    }
  });
}

ir::OpCase rope_case(DType dtype, i64 tokens, const RopeShape& shape, bool inverse,
                     const std::vector<double>& starts) {
  const HeadLayout& layout = shape.layout;
  ir::OpCase example;
  example.label = fmt::format("T={} S={} hq={} hkv={} hd={} theta={}{} starts=[{}]", tokens, shape.sequence,
                              layout.query_heads, layout.kv_heads, layout.head_dim, shape.theta,
                              inverse ? " inverse" : "", fmt::join(starts, ","));
  example.op = std::make_shared<Rope>(shape, inverse);
  example.inputs = {{{dtype, {tokens, layout.width()}}}, {{DType::kI32, {tokens}}, starts}};
  example.oracle = [=](const ir::Values& in) {
    ir::Values out = {in[0]};
    const i64 half = shape.layout.head_dim / 2;
    for (i64 t = 0; t < tokens; ++t) {
      const double position = static_cast<double>(t % shape.sequence) - in[1][static_cast<std::size_t>(t)];
      for (i64 c = 0; c < shape.layout.value_column(); ++c) {
        const i64 i = c % shape.layout.head_dim;
        const double exponent = -2.0 * static_cast<double>(i % half) / static_cast<double>(2 * half);
        const double angle = position * std::pow(shape.theta, exponent) * (inverse ? -1 : 1);
        const auto at = static_cast<std::size_t>(t * shape.layout.width() + c);
        const double partner = i < half ? -in[0][at + static_cast<std::size_t>(half)]
                                        : in[0][at - static_cast<std::size_t>(half)];
        out[0][at] = in[0][at] * std::cos(angle) + partner * std::sin(angle);
      }
    }
    return out;
  };
  example.differentiable = {0};
  // An angle of p radians carries an error of p eps.
  const double lowest = *std::min_element(starts.begin(), starts.end());
  example.tolerance_scale = 4.0 + static_cast<double>(shape.sequence) - lowest;
  return example;
}

std::vector<double> starts_of(i64 tokens, i64 sequence, i64 document) {
  std::vector<double> starts;
  for (i64 t = 0; t < tokens; ++t) {
    const i64 position = t % sequence;
    const i64 start = position - position % document;
    starts.push_back(static_cast<double>(start));
  }
  return starts;
}

}  // namespace

void Rope::visit_attributes(ir::AttributeVisitor& visitor) const {
  shape_.layout.visit(visitor);
  visitor.visit("theta", shape_.theta);
  visitor.visit("sequence", shape_.sequence);
  visitor.visit("inverse", i64{inverse_});
}

Expected<std::vector<ir::TensorType>> Rope::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_compute(inputs[0], 2) || inputs[0].shape[1] != shape_.layout.width() ||
      !is_type(inputs[1], DType::kI32, {inputs[0].shape[0]})) {
    return ir::shape_error(
        fmt::format("needs qkv F[T,{}] and document_start i32[T], F = f32 or f64", shape_.layout.width()),
        inputs);
  }
  if (shape_.layout.head_dim % 2 != 0) {
    return ir::shape_error(fmt::format("needs an even head_dim, not {}", shape_.layout.head_dim), inputs);
  }
  return std::vector<ir::TensorType>{inputs[0]};
}

std::vector<ir::ValueId> Rope::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                   std::span<const ir::ValueId> cotangents) const {
  return {builder.add_one(std::make_shared<Rope>(shape_, !inverse_), {cotangents[0], node.inputs[1]}),
          ir::kNoValue};
}

ir::Cost Rope::cost(std::span<const ir::TensorType> inputs, std::span<const ir::TensorType> outputs) const {
  ir::Cost cost = Op::cost(inputs, outputs);
  cost.flops = 3.0 * static_cast<double>(inputs[0].shape[0] * shape_.layout.value_column());
  return cost;
}

std::vector<ir::Alias> Rope::aliases() const { return {{0, 0, ir::AliasKind::kMay}}; }

i64 Rope::workspace(std::span<const ir::TensorType> inputs,
                    std::span<const ir::TensorType> /*outputs*/) const {
  return std::min(shape_.sequence, inputs[0].shape[0]) * shape_.layout.head_dim *
         dtype_bytes(inputs[0].dtype);
}

void Rope::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype,
                 [&]<class T>(T) { rotate_heads<T>(context, shape_, inverse_); });
}

ir::ValueId rope(ir::Builder& builder, ir::ValueId qkv, ir::ValueId document_start, const RopeShape& shape) {
  return builder.add_one(std::make_shared<Rope>(shape), {qkv, document_start});
}

void register_rope(ir::Registry& registry) {
  registry.add("rope", [](DType dtype) -> std::vector<ir::OpCase> {
    return {rope_case(dtype, 14, {{3, 1, 6}, 10000.0, 7}, false, starts_of(14, 7, 3)),
            rope_case(dtype, 14, {{4, 2, 8}, 10000.0, 7}, true, starts_of(14, 7, 7)),
            rope_case(dtype, 1, {{1, 1, 2}, 500000.0, 1}, false, {-37}),
            rope_case(dtype, 3, {{2, 1, 4}, 10000.0, 3}, false, {-1, -1, 0}),
            rope_case(dtype, 201, {{2, 2, 32}, 10000.0, 67}, false, starts_of(201, 67, 31))};
  });
}

}  // namespace wych::ops
