#include "ops/kv_cache.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/lane_sum.h"
#include "kernels/vector_math.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

// Elements from the start of a cache to head h of the keys (part 0) or values (part 1).
i64 head_of(const HeadLayout& layout, i64 positions, i64 part, i64 h) {
  return (part * layout.kv_heads + h) * positions * layout.head_dim;
}

template <class T>
void append(const ir::ExecContext& context, const HeadLayout& layout) {
  const i64 tokens = context.input(0).dim(0);
  const i64 positions = context.output(0).dim(2);
  const i64 start = context.input(1).as<i32>()[0];
  WYCH_CHECK(start >= 0 && start + tokens <= positions, "{} tokens at position {} of a cache of {}", tokens,
             start, positions);
  const T* qkv = context.input(0).as<T>();
  T* cache = context.output(0).as<T>();
  for (i64 t = 0; t < tokens; ++t) {
    for (i64 part = 0; part < 2; ++part) {
      const i64 column = part == 0 ? layout.key_column() : layout.value_column();
      for (i64 h = 0; h < layout.kv_heads; ++h) {
        std::copy_n(qkv + t * layout.width() + column + h * layout.head_dim, layout.head_dim,
                    cache + head_of(layout, positions, part, h) + (start + t) * layout.head_dim);
      }
    }
  }
}

// out = softmax(scale q k^T) v for one query, with the keys in blocks.
template <class T>
void attend(const T* query, const T* keys, const T* values, i64 count, i64 head_dim, T scale, T* out) {
  constexpr i64 kBlock = 128;
  T weights[kBlock];
  T largest = -std::numeric_limits<T>::infinity();
  T sum = 0;
  std::fill_n(out, head_dim, T{0});
  for (i64 first = 0; first < count; first += kBlock) {
    const i64 size = std::min(kBlock, count - first);
    for (i64 j = 0; j < size; ++j) {
      const T* key = keys + (first + j) * head_dim;
      weights[j] = scale * kernels::lane_sum<T>(head_dim, [=](i64 c) { return query[c] * key[c]; });
    }
    const T highest = std::max(largest, kernels::lane_max(weights, size));
    const T shrink = kernels::exp(largest - highest);
    largest = highest;
    for (i64 j = 0; j < size; ++j) {
      weights[j] = kernels::exp(weights[j] - largest);
    }
    sum = sum * shrink + kernels::lane_sum<T>(size, [&](i64 j) { return weights[j]; });
    for (i64 c = 0; c < head_dim; ++c) {
      out[c] *= shrink;
    }
    for (i64 j = 0; j < size; ++j) {
      const T* value = values + (first + j) * head_dim;
      for (i64 c = 0; c < head_dim; ++c) {
        out[c] += weights[j] * value[c];
      }
    }
  }
  for (i64 c = 0; c < head_dim; ++c) {
    out[c] /= sum;
  }
}

template <class T>
void attend_all(const ir::ExecContext& context, const HeadLayout& layout, i64 window, double scale) {
  const i64 tokens = context.input(0).dim(0);
  const i64 positions = context.input(1).dim(2);
  const i64 start = context.input(2).as<i32>()[0];
  WYCH_CHECK(start >= 0 && start + tokens <= positions, "{} tokens at position {} of a cache of {}", tokens,
             start, positions);
  const T* qkv = context.input(0).as<T>();
  const T* cache = context.input(1).as<T>();
  T* out = context.output(0).as<T>();
  context.pool->parallel_for(tokens * layout.query_heads, [&](i64 task) {
    const i64 t = task / layout.query_heads;
    const i64 h = task % layout.query_heads;
    const i64 end = start + t + 1;
    const i64 begin = window > 0 ? std::max<i64>(0, end - window) : 0;
    const i64 first = begin * layout.head_dim;
    attend(qkv + t * layout.width() + h * layout.head_dim,
           cache + head_of(layout, positions, 0, h / layout.group()) + first,
           cache + head_of(layout, positions, 1, h / layout.group()) + first, end - begin, layout.head_dim,
           static_cast<T>(scale), out + task * layout.head_dim);
  });
}

bool is_cache(const ir::TensorType& type, DType dtype, const HeadLayout& layout) {
  return type.shape.rank() == 4 && is_type(type, dtype, {2, layout.kv_heads, type.shape[2], layout.head_dim});
}

bool is_qkv(const ir::TensorType& type, const HeadLayout& layout) {
  return is_compute(type, 2) && type.shape[1] == layout.width();
}

// Cases.
struct Example {
  i64 tokens;
  i64 positions;
  i64 start;
  HeadLayout layout;
  i64 window = 0;

  [[nodiscard]] std::string label() const {
    return fmt::format("T={} L={} start={} hq={} hkv={} hd={} window={}", tokens, positions, start,
                       layout.query_heads, layout.kv_heads, layout.head_dim, window);
  }
  [[nodiscard]] ir::CaseInput qkv(DType dtype) const { return {{dtype, {tokens, layout.width()}}}; }
  [[nodiscard]] ir::CaseInput start_input() const {
    return {{DType::kI32, {1}}, {static_cast<double>(start)}};
  }
  // Random up to `filled` positions, NaN behind.
  [[nodiscard]] ir::CaseInput cache(DType dtype, i64 filled) const {
    ir::CaseInput input{{dtype, {2, layout.kv_heads, positions, layout.head_dim}}};
    for (i64 i = 0; i < input.type.elements(); ++i) {
      const bool is_filled = i / layout.head_dim % positions < filled;
      input.values.push_back(is_filled ? std::sin(static_cast<double>(i))
                                       : std::numeric_limits<double>::quiet_NaN());
    }
    return input;
  }
  [[nodiscard]] std::size_t at(i64 part, i64 h, i64 position, i64 c) const {
    return static_cast<std::size_t>(((part * layout.kv_heads + h) * positions + position) * layout.head_dim +
                                    c);
  }
  [[nodiscard]] std::size_t at(i64 t, i64 column) const {
    return static_cast<std::size_t>(t * layout.width() + column);
  }
};

ir::OpCase append_case(DType dtype, const Example& e) {
  ir::OpCase example;
  example.label = e.label();
  example.op = std::make_shared<KvAppend>(e.layout);
  example.inputs = {e.qkv(dtype), e.start_input(), e.cache(dtype, e.start)};
  example.oracle = [e](const ir::Values& in) {
    ir::Values out = {in[2]};
    for (i64 t = 0; t < e.tokens; ++t) {
      for (i64 h = 0; h < e.layout.kv_heads; ++h) {
        for (i64 c = 0; c < e.layout.head_dim; ++c) {
          const i64 key = e.layout.query_width() + h * e.layout.head_dim + c;
          out[0][e.at(0, h, e.start + t, c)] = in[0][e.at(t, key)];
          out[0][e.at(1, h, e.start + t, c)] = in[0][e.at(t, key + e.layout.kv_width())];
        }
      }
    }
    return out;
  };
  example.defined = [e](int, i64 element, const ir::Values&) {
    return element / e.layout.head_dim % e.positions < e.start + e.tokens;
  };
  return example;
}

ir::OpCase attention_case(DType dtype, const Example& e) {
  ir::OpCase example;
  const double scale = 1 / std::sqrt(static_cast<double>(e.layout.head_dim));
  example.label = e.label();
  example.op = std::make_shared<CachedAttention>(e.layout, e.window, scale);
  example.inputs = {e.qkv(dtype), e.cache(dtype, e.start + e.tokens), e.start_input()};
  example.oracle = [e, scale](const ir::Values& in) {
    ir::Values out(1);
    for (i64 t = 0; t < e.tokens; ++t) {
      for (i64 h = 0; h < e.layout.query_heads; ++h) {
        std::vector<double> sum(static_cast<std::size_t>(e.layout.head_dim), 0.0);
        double total = 0;
        for (i64 p = 0; p <= e.start + t; ++p) {
          if (e.window > 0 && e.start + t - p >= e.window) {
            continue;
          }
          double score = 0;
          for (i64 c = 0; c < e.layout.head_dim; ++c) {
            score += scale * in[0][e.at(t, h * e.layout.head_dim + c)] *
                     in[1][e.at(0, h / e.layout.group(), p, c)];
          }
          total += std::exp(score);
          for (i64 c = 0; c < e.layout.head_dim; ++c) {
            sum[static_cast<std::size_t>(c)] += std::exp(score) * in[1][e.at(1, h / e.layout.group(), p, c)];
          }
        }
        for (const double value : sum) {
          out[0].push_back(value / total);
        }
      }
    }
    return out;
  };
  example.reduction_length = e.positions + e.layout.head_dim;
  return example;
}

template <ir::OpCase (*kCase)(DType, const Example&)>
std::vector<ir::OpCase> cases(DType dtype) {
  return {kCase(dtype, {7, 11, 0, {3, 1, 5}}),    kCase(dtype, {1, 1, 0, {1, 1, 1}}),
          kCase(dtype, {1, 13, 6, {4, 2, 6}}),    kCase(dtype, {2, 307, 300, {2, 2, 37}}),
          kCase(dtype, {5, 17, 3, {4, 2, 3}, 4}), kCase(dtype, {3, 41, 29, {2, 1, 193}})};
}

}  // namespace

void KvAppend::visit_attributes(ir::AttributeVisitor& visitor) const { layout_.visit(visitor); }

Expected<std::vector<ir::TensorType>> KvAppend::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 3 || !is_qkv(inputs[0], layout_) || !is_type(inputs[1], DType::kI32, {1}) ||
      !is_cache(inputs[2], inputs[0].dtype, layout_)) {
    return ir::shape_error(
        fmt::format("needs qkv F[T,{}], start i32[1] and cache F[2,{},L,{}], F = f32 or f64", layout_.width(),
                    layout_.kv_heads, layout_.head_dim),
        inputs);
  }
  return std::vector<ir::TensorType>{inputs[2]};
}

std::vector<ir::ValueId> KvAppend::vjp(ir::Builder& /*builder*/, const ir::NodeValues& node,
                                       std::span<const ir::ValueId> /*cotangents*/) const {
  WYCH_CHECK(false, "kv_append is for generation and has no gradient");
  return std::vector<ir::ValueId>(node.inputs.size(), ir::kNoValue);
}

std::vector<ir::Alias> KvAppend::aliases() const { return {{2, 0, ir::AliasKind::kInPlace}}; }

void KvAppend::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { append<T>(context, layout_); });
}

void CachedAttention::visit_attributes(ir::AttributeVisitor& visitor) const {
  layout_.visit(visitor);
  visitor.visit("window", window_);
  visitor.visit("scale", scale_);
}

Expected<std::vector<ir::TensorType>> CachedAttention::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 3 || !is_qkv(inputs[0], layout_) || !is_cache(inputs[1], inputs[0].dtype, layout_) ||
      !is_type(inputs[2], DType::kI32, {1})) {
    return ir::shape_error(
        fmt::format("needs qkv F[T,{}], cache F[2,{},L,{}] and start i32[1], F = f32 or f64", layout_.width(),
                    layout_.kv_heads, layout_.head_dim),
        inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {inputs[0].shape[0], layout_.query_width()}}};
}

std::vector<ir::ValueId> CachedAttention::vjp(ir::Builder& /*builder*/, const ir::NodeValues& node,
                                              std::span<const ir::ValueId> /*cotangents*/) const {
  WYCH_CHECK(false, "cached_attention is for generation and has no gradient");
  return std::vector<ir::ValueId>(node.inputs.size(), ir::kNoValue);
}

void CachedAttention::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype,
                 [&]<class T>(T) { attend_all<T>(context, layout_, window_, scale_); });
}

ir::ValueId kv_append(ir::Builder& builder, ir::ValueId qkv, ir::ValueId start, ir::ValueId cache,
                      const HeadLayout& layout) {
  return builder.add_one(std::make_shared<KvAppend>(layout), {qkv, start, cache});
}

ir::ValueId cached_attention(ir::Builder& builder, ir::ValueId qkv, ir::ValueId cache, ir::ValueId start,
                             const HeadLayout& layout, i64 window, double scale) {
  return builder.add_one(std::make_shared<CachedAttention>(layout, window, scale), {qkv, cache, start});
}

void register_kv_cache(ir::Registry& registry) {
  registry.add("kv_append", cases<append_case>);
  registry.add("cached_attention", cases<attention_case>);
}

}  // namespace wych::ops
