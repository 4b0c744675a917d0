#include "ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

// Where the ramp of YaRN begins and ends, as pair numbers.
struct Ramp {
  double low;
  double high;
};

Ramp ramp_of(const RopeShape& shape) {
  const auto head_dim = static_cast<double>(shape.layout.head_dim);
  const auto pair = [&](double turns) {
    const double length = static_cast<double>(shape.yarn.original_length);
    return head_dim * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(shape.theta));
  };
  Ramp ramp{std::max(std::floor(pair(shape.yarn.beta_fast)), 0.0),
            std::min(std::ceil(pair(shape.yarn.beta_slow)), head_dim - 1)};
  if (ramp.low == ramp.high) {
    ramp.high += 0.001;
  }
  return ramp;
}

// The cosine and sine of the angle of pair i at a position, every step in T.
template <class T>
struct Angles {
  const T* frequencies;
  T scale;
  bool inverse;

  void operator()(i64 position, i64 i, T& cosine, T& sine) const {
    const T angle = static_cast<T>(position) * frequencies[i];
    cosine = std::cos(angle) * scale;
    sine = (inverse ? -std::sin(angle) : std::sin(angle)) * scale;
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
  T* frequencies = reinterpret_cast<T*>(context.workspace);  // [half]
  T* table = frequencies + half;                             // [positions, cosines and sines, half]
  fill_frequencies(shape, frequencies);
  const T scale = static_cast<T>(shape.yarn.factor != 1.0 ? shape.yarn.attention_factor : 1.0);
  const Angles<T> angles{frequencies, scale, inverse};
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

// By wavelengths instead of pair numbers: a pair turns original_length f / (2 pi) times; the ends of the ramp
// are the last pair with at least beta_fast turns and the first with at most beta_slow.
double oracle_frequency(const RopeShape& shape, i64 i) {
  const auto frequency = [&](double pair) {
    return std::pow(shape.theta, -2.0 * pair / static_cast<double>(shape.layout.head_dim));
  };
  const YarnShape& yarn = shape.yarn;
  const double plain = frequency(static_cast<double>(i));
  if (yarn.factor == 1.0) {
    return plain;
  }
  const auto turns = [&](double pair) {
    return static_cast<double>(yarn.original_length) * frequency(pair) / (2 * std::numbers::pi);
  };
  double low = 0;
  while (turns(low + 1) >= yarn.beta_fast) {
    ++low;
  }
  double high = static_cast<double>(shape.layout.head_dim - 1);
  while (turns(high - 1) <= yarn.beta_slow) {
    --high;
  }
  const double width = high == low ? 0.001 : high - low;
  const double slow = std::clamp((static_cast<double>(i) - low) / width, 0.0, 1.0);
  return plain * (1 - slow) + plain / yarn.factor * slow;
}

ir::OpCase rope_case(DType dtype, i64 tokens, const RopeShape& shape, bool inverse,
                     const std::vector<double>& starts) {
  const HeadLayout& layout = shape.layout;
  ir::OpCase example;
  example.label =
      fmt::format("T={} S={} hq={} hkv={} hd={} theta={} yarn={}{} starts=[{}]", tokens, shape.sequence,
                  layout.query_heads, layout.kv_heads, layout.head_dim, shape.theta, shape.yarn.factor,
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
        const double angle = position * oracle_frequency(shape, i % half) * (inverse ? -1 : 1);
        const auto at = static_cast<std::size_t>(t * shape.layout.width() + c);
        const double partner = i < half ? -in[0][at + static_cast<std::size_t>(half)]
                                        : in[0][at - static_cast<std::size_t>(half)];
        const double scale = shape.yarn.factor != 1.0 ? shape.yarn.attention_factor : 1.0;
        out[0][at] = scale * (in[0][at] * std::cos(angle) + partner * std::sin(angle));
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

template <class T>
void fill_frequencies(const RopeShape& shape, T* frequencies) {
  const bool stretched = shape.yarn.factor != 1.0;
  const Ramp ramp = stretched ? ramp_of(shape) : Ramp{};
  for (i64 i = 0; i < shape.layout.head_dim / 2; ++i) {
    const T exponent = static_cast<T>(2 * i) / static_cast<T>(shape.layout.head_dim);
    const T power = std::pow(static_cast<T>(shape.theta), exponent);
    frequencies[i] = T{1} / power;
    if (stretched) {
      const T position =
          (static_cast<T>(i) - static_cast<T>(ramp.low)) / static_cast<T>(ramp.high - ramp.low);
      const T kept = T{1} - std::clamp(position, T{0}, T{1});
      const T slow = T{1} / (static_cast<T>(shape.yarn.factor) * power);
      frequencies[i] = slow * (T{1} - kept) + frequencies[i] * kept;
    }
  }
}

template void fill_frequencies<float>(const RopeShape& shape, float* frequencies);
template void fill_frequencies<double>(const RopeShape& shape, double* frequencies);

void RopeShape::visit(ir::AttributeVisitor& visitor) const {
  layout.visit(visitor);
  visitor.visit("theta", theta);
  visitor.visit("sequence", sequence);
  if (yarn.factor != 1.0) {
    visitor.visit("yarn_factor", yarn.factor);
    visitor.visit("yarn_original_length", yarn.original_length);
    visitor.visit("yarn_beta_fast", yarn.beta_fast);
    visitor.visit("yarn_beta_slow", yarn.beta_slow);
    visitor.visit("yarn_attention_factor", yarn.attention_factor);
  }
}

void Rope::visit_attributes(ir::AttributeVisitor& visitor) const {
  shape_.visit(visitor);
  visitor.visit("inverse", i64{inverse_});
}

Expected<std::vector<ir::TensorType>> Rope::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_activation(inputs[0], 2) || inputs[0].shape[1] != shape_.layout.width() ||
      !is_type(inputs[1], DType::kI32, {inputs[0].shape[0]})) {
    return ir::shape_error(fmt::format("needs qkv A[T,{}] and document_start i32[T], A = f32, f64 or bf16",
                                       shape_.layout.width()),
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
  const i64 positions = std::min(shape_.sequence, inputs[0].shape[0]);
  return (2 * positions + 1) * (shape_.layout.head_dim / 2) * dtype_bytes(inputs[0].dtype);
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
            rope_case(dtype, 14, {{2, 1, 16}, 10000.0, 7, {8.0, 32, 32.0, 1.0, 1.25}}, false,
                      starts_of(14, 7, 3)),
            rope_case(dtype, 3, {{1, 1, 64}, 500000.0, 3, {4.0, 8192, 32.0, 1.0, 1.1}}, true, {-90, 0, 1}),
            rope_case(dtype, 3, {{2, 1, 4}, 10000.0, 3}, false, {-1, -1, 0}),
            rope_case(dtype, 201, {{2, 2, 32}, 10000.0, 67}, false, starts_of(201, 67, 31))};
  });
}

}  // namespace wych::ops
