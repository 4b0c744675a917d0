#include "ops/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/attention.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

template <class T>
kernels::AttentionProblem<T> problem_of(const AttentionShape& shape, const ir::View& qkv,
                                        const ir::View& document_start) {
  return {.num_sequences = qkv.dim(0) / shape.sequence,
          .sequence = shape.sequence,
          .query_heads = shape.layout.query_heads,
          .kv_heads = shape.layout.kv_heads,
          .head_dim = shape.layout.head_dim,
          .window = shape.window,
          .scale = static_cast<T>(shape.scale),
          .qkv = qkv.as<T>(),
          .document_start = shape.documents ? document_start.as<i32>() : nullptr};
}

void visit_shape(const AttentionShape& shape, ir::AttributeVisitor& visitor) {
  shape.layout.visit(visitor);
  visitor.visit("sequence", shape.sequence);
  visitor.visit("window", shape.window);
  visitor.visit("scale", shape.scale);
  visitor.visit("documents", i64{shape.documents});
  visitor.visit("deterministic", i64{shape.deterministic});
}

bool are_sequences(const ir::TensorType& qkv, const ir::TensorType& document_start,
                   const AttentionShape& shape) {
  return is_activation(qkv, 2) && qkv.shape[1] == shape.layout.width() &&
         qkv.shape[0] % shape.sequence == 0 && is_type(document_start, DType::kI32, {qkv.shape[0]});
}

ir::TensorType out_type(const ir::TensorType& qkv, const AttentionShape& shape) {
  return {qkv.dtype, {qkv.shape[0], shape.layout.query_width()}};
}

ir::TensorType lse_type(const ir::TensorType& qkv, const AttentionShape& shape) {
  return {stats_dtype(qkv.dtype), {qkv.shape[0] / shape.sequence, shape.layout.query_heads, shape.sequence}};
}

// Pairs of a query and a key of one head that see each other, without documents.
double visible_pairs(i64 tokens, const AttentionShape& shape) {
  const auto s = static_cast<double>(shape.sequence);
  const double w = shape.window > 0 ? std::min(s, static_cast<double>(shape.window)) : s;
  return static_cast<double>(tokens) / s * (w * (w + 1) / 2 + (s - w) * w);
}

// Cases. The oracle visits every pair of tokens.
struct Example {
  i64 num_sequences;
  AttentionShape shape;
  i64 document;  // a document starts at every multiple of this

  [[nodiscard]] i64 tokens() const { return num_sequences * shape.sequence; }
  [[nodiscard]] std::string label() const {
    return fmt::format("B={} S={} hq={} hkv={} hd={} window={} documents of {}{}", num_sequences,
                       shape.sequence, shape.layout.query_heads, shape.layout.kv_heads, shape.layout.head_dim,
                       shape.window, document,
                       shape.documents       ? ""
                       : shape.deterministic ? ", ignored"
                                             : ", ignored, in any order");
  }
  [[nodiscard]] ir::CaseInput starts() const {
    ir::CaseInput input{{DType::kI32, {tokens()}}};
    for (i64 t = 0; t < tokens(); ++t) {
      const i64 position = t % shape.sequence;
      const i64 start = position - position % document;
      input.values.push_back(static_cast<double>(start));
    }
    if (document >= shape.sequence) {
      input.values[0] = -3;  // the same as 0
    }
    return input;
  }
  // Whether token t sees token u.
  [[nodiscard]] bool sees(i64 t, i64 u) const {
    const i64 i = t % shape.sequence;
    const i64 j = u % shape.sequence;
    return t / shape.sequence == u / shape.sequence && j <= i &&
           (!shape.documents || i / document == j / document) && (shape.window == 0 || i - j < shape.window);
  }
  [[nodiscard]] std::size_t q(i64 t, i64 h) const { return at(t, h); }
  [[nodiscard]] std::size_t k(i64 t, i64 h) const {
    return at(t, shape.layout.query_heads + h / shape.layout.group());
  }
  [[nodiscard]] std::size_t v(i64 t, i64 h) const {
    return at(t, shape.layout.query_heads + shape.layout.kv_heads + h / shape.layout.group());
  }
  [[nodiscard]] std::size_t out(i64 t, i64 h) const {
    return static_cast<std::size_t>((t * shape.layout.query_heads + h) * shape.layout.head_dim);
  }
  [[nodiscard]] std::size_t lse(i64 t, i64 h) const {
    const i64 row = t / shape.sequence * shape.layout.query_heads + h;
    return static_cast<std::size_t>(row * shape.sequence + t % shape.sequence);
  }

  // sum_c a[i + c] b[j + c] over a head.
  [[nodiscard]] double inner(const std::vector<double>& a, std::size_t i, const std::vector<double>& b,
                             std::size_t j) const {
    double sum = 0;
    for (std::size_t c = 0; c < static_cast<std::size_t>(shape.layout.head_dim); ++c) {
      sum += a[i + c] * b[j + c];
    }
    return sum;
  }
  // y[i + c] += factor x[j + c].
  void add(std::vector<double>& y, std::size_t i, double factor, const std::vector<double>& x,
           std::size_t j) const {
    for (std::size_t c = 0; c < static_cast<std::size_t>(shape.layout.head_dim); ++c) {
      y[i + c] += factor * x[j + c];
    }
  }

 private:
  [[nodiscard]] std::size_t at(i64 t, i64 head) const {
    return static_cast<std::size_t>(t * shape.layout.width() + head * shape.layout.head_dim);
  }
};

template <class F>
void for_each_pair(const Example& e, const F& pair) {
  for (i64 h = 0; h < e.shape.layout.query_heads; ++h) {
    for (i64 t = 0; t < e.tokens(); ++t) {
      for (i64 u = 0; u < e.tokens(); ++u) {
        if (e.sees(t, u)) {
          pair(h, t, u);
        }
      }
    }
  }
}

// Sums are float32; what is bfloat16 (p, ds, the result) rounds once, and roundings of a sum's terms cancel.
void bound_bf16(ir::OpCase& example, DType dtype) {
  if (dtype == DType::kBF16) {
    example.reduction_length = 1;
  }
}

ir::OpCase attention_case(DType dtype, const Example& e) {
  ir::OpCase example;
  example.label = e.label();
  example.op = std::make_shared<Attention>(e.shape);
  example.inputs = {{{dtype, {e.tokens(), e.shape.layout.width()}}}, e.starts()};
  example.oracle = [e](const ir::Values& in) {
    const std::vector<double>& qkv = in[0];
    const HeadLayout& layout = e.shape.layout;
    ir::Values out = {std::vector<double>(static_cast<std::size_t>(e.tokens() * layout.query_width()), 0.0),
                      std::vector<double>(static_cast<std::size_t>(e.tokens() * layout.query_heads), 0.0)};
    const auto score = [&](i64 h, i64 t, i64 u) {
      return e.shape.scale * e.inner(qkv, e.q(t, h), qkv, e.k(u, h));
    };
    for_each_pair(e, [&](i64 h, i64 t, i64 u) { out[1][e.lse(t, h)] += std::exp(score(h, t, u)); });
    for (double& value : out[1]) {
      value = std::log(value);
    }
    for_each_pair(e, [&](i64 h, i64 t, i64 u) {
      e.add(out[0], e.out(t, h), std::exp(score(h, t, u) - out[1][e.lse(t, h)]), qkv, e.v(u, h));
    });
    return out;
  };
  example.differentiable = {0};
  example.gradient_outputs = {0};
  example.reduction_length = e.shape.sequence + e.shape.layout.head_dim;
  bound_bf16(example, dtype);
  return example;
}

// out and lse are inputs like any other here: the oracle uses the given ones.
ir::OpCase attention_dqkv_case(DType dtype, const Example& e) {
  const ir::TensorType qkv_type{dtype, {e.tokens(), e.shape.layout.width()}};
  ir::OpCase example;
  example.label = e.label();
  example.op = std::make_shared<AttentionDqkv>(e.shape);
  example.inputs = {{out_type(qkv_type, e.shape)},
                    {qkv_type},
                    {out_type(qkv_type, e.shape)},
                    {lse_type(qkv_type, e.shape), {}, 2.0, 3.0},
                    e.starts()};
  example.oracle = [e](const ir::Values& in) {
    const std::vector<double>& dout = in[0];
    const std::vector<double>& qkv = in[1];
    ir::Values result(1, std::vector<double>(qkv.size(), 0.0));
    for_each_pair(e, [&](i64 h, i64 t, i64 u) {
      const double scale = e.shape.scale;
      const double p = std::exp(scale * e.inner(qkv, e.q(t, h), qkv, e.k(u, h)) - in[3][e.lse(t, h)]);
      const double delta = e.inner(dout, e.out(t, h), in[2], e.out(t, h));
      const double ds = p * (e.inner(dout, e.out(t, h), qkv, e.v(u, h)) - delta);
      e.add(result[0], e.q(t, h), scale * ds, qkv, e.k(u, h));
      e.add(result[0], e.k(u, h), scale * ds, qkv, e.q(t, h));
      e.add(result[0], e.v(u, h), p, dout, e.out(t, h));
    });
    return result;
  };
  example.reduction_length = e.shape.sequence * e.shape.layout.group() + e.shape.layout.head_dim;
  example.repeats_on_cuda = e.shape.deterministic;
  bound_bf16(example, dtype);
  return example;
}

template <ir::OpCase (*kCase)(DType, const Example&)>
std::vector<ir::OpCase> cases(DType dtype) {
  std::vector<ir::OpCase> result;
  const auto shape_of = [](i64 sequence, const HeadLayout& layout, i64 window) {
    return AttentionShape{.layout = layout,
                          .sequence = sequence,
                          .window = window,
                          .scale = 1.0 / std::sqrt(static_cast<double>(layout.head_dim))};
  };
  const auto add = [&](i64 num_sequences, i64 sequence, const HeadLayout& layout, i64 window, i64 document) {
    result.push_back(kCase(dtype, {num_sequences, shape_of(sequence, layout, window), document}));
  };
  add(2, 7, {3, 1, 5}, 0, 7);
  add(1, 1, {1, 1, 1}, 0, 1);
  add(1, 13, {4, 2, 6}, 3, 13);
  add(2, 11, {2, 2, 4}, 0, 4);
  add(1, 17, {1, 1, 3}, 5, 7);
  add(1, 293, {2, 1, 8}, 0, 293);
  add(1, 211, {2, 1, 5}, 70, 97);
  add(2, 70, {2, 1, 67}, 0, 70);
  add(1, 67, {1, 1, 193}, 9, 40);
  // document_start is there and not to be looked at.
  const auto add_plain = [&](i64 num_sequences, i64 sequence, const HeadLayout& layout, i64 window,
                             bool deterministic) {
    AttentionShape shape = shape_of(sequence, layout, window);
    shape.documents = false;
    shape.deterministic = deterministic;
    result.push_back(kCase(dtype, {num_sequences, shape, 3}));
  };
  add_plain(2, 11, {2, 1, 4}, 0, true);
  add_plain(1, 19, {2, 2, 3}, 6, true);
  if (dtype == DType::kBF16) {  // what tensor cores take
    add(1, 1, {1, 1, 8}, 0, 1);
    add(2, 65, {4, 2, 16}, 0, 65);
    add(1, 257, {2, 1, 64}, 0, 101);
    add(1, 211, {3, 3, 72}, 70, 97);
    add(2, 150, {4, 1, 128}, 0, 150);
    add(1, 400, {2, 1, 128}, 33, 400);
    for (const bool deterministic : {true, false}) {  // what cuDNN takes
      add_plain(2, 128, {2, 2, 64}, 0, deterministic);
      add_plain(1, 384, {4, 1, 64}, 0, deterministic);
      add_plain(2, 256, {4, 1, 128}, 0, deterministic);
      add_plain(1, 256, {2, 2, 128}, 100, deterministic);
      add_plain(1, 384, {4, 1, 128}, 128, deterministic);
      add_plain(1, 128, {2, 1, 32}, 0, deterministic);
    }
    add_plain(2, 200, {4, 1, 64}, 0, true);  // and does not: not whole tiles
  }
  return result;
}

}  // namespace

std::optional<device::FusedAttention> fused_attention(const AttentionShape& shape, const ir::TensorType& qkv,
                                                      const CudaTarget& target) {
  const device::FusedAttention problem{.sequences = qkv.shape[0] / shape.sequence,
                                       .sequence = shape.sequence,
                                       .query_heads = shape.layout.query_heads,
                                       .kv_heads = shape.layout.kv_heads,
                                       .head_dim = shape.layout.head_dim,
                                       .window = shape.window < shape.sequence ? shape.window : 0,
                                       .scale = shape.scale,
                                       .deterministic = shape.deterministic};
  if (shape.documents || qkv.dtype != DType::kBF16 || !device::fused_attention_takes(problem, target)) {
    return std::nullopt;
  }
  return problem;
}

void Attention::visit_attributes(ir::AttributeVisitor& visitor) const { visit_shape(shape_, visitor); }

Expected<std::vector<ir::TensorType>> Attention::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !are_sequences(inputs[0], inputs[1], shape_)) {
    return ir::shape_error(
        fmt::format("needs qkv A[T,{}] and document_start i32[T], T a multiple of {}, A = f32, f64 or bf16",
                    shape_.layout.width(), shape_.sequence),
        inputs);
  }
  return std::vector<ir::TensorType>{out_type(inputs[0], shape_), lse_type(inputs[0], shape_)};
}

std::vector<ir::ValueId> Attention::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                        std::span<const ir::ValueId> cotangents) const {
  WYCH_CHECK(cotangents[1] == ir::kNoValue, "attention has no gradient through lse");
  return {builder.add_one(std::make_shared<AttentionDqkv>(shape_),
                          {cotangents[0], node.inputs[0], node.outputs[0], node.outputs[1], node.inputs[1]}),
          ir::kNoValue};
}

ir::Cost Attention::cost(std::span<const ir::TensorType> inputs,
                         std::span<const ir::TensorType> outputs) const {
  ir::Cost cost = Op::cost(inputs, outputs);
  cost.flops =
      4.0 * visible_pairs(inputs[0].shape[0], shape_) * static_cast<double>(shape_.layout.query_width());
  return cost;
}

i64 Attention::cuda_workspace(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> /*outputs*/, const CudaTarget& target) const {
  const auto fused = fused_attention(shape_, inputs[0], target);
  return fused ? device::fused_forward_workspace(*fused) : 0;
}

void Attention::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    kernels::attention_forward(*context.pool, problem_of<T>(shape_, context.input(0), context.input(1)),
                               context.output(0).as<T>(), context.output(1).as<T>());
  });
}

void AttentionDqkv::visit_attributes(ir::AttributeVisitor& visitor) const { visit_shape(shape_, visitor); }

Expected<std::vector<ir::TensorType>> AttentionDqkv::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 5 || !are_sequences(inputs[1], inputs[4], shape_) ||
      inputs[0] != out_type(inputs[1], shape_) || inputs[2] != inputs[0] ||
      inputs[3] != lse_type(inputs[1], shape_)) {
    return ir::shape_error(
        fmt::format("needs dout A[T,{}], qkv A[T,{}], out A[T,{}], lse S[T/{},{},{}] and "
                    "document_start i32[T], T a multiple of {}, {}",
                    shape_.layout.query_width(), shape_.layout.width(), shape_.layout.query_width(),
                    shape_.sequence, shape_.layout.query_heads, shape_.sequence, shape_.sequence, kTypesText),
        inputs);
  }
  return std::vector<ir::TensorType>{inputs[1]};
}

ir::Cost AttentionDqkv::cost(std::span<const ir::TensorType> inputs,
                             std::span<const ir::TensorType> outputs) const {
  ir::Cost cost = Op::cost(inputs, outputs);
  cost.flops =
      10.0 * visible_pairs(inputs[1].shape[0], shape_) * static_cast<double>(shape_.layout.query_width());
  return cost;
}

// Kernels of our own need dout . out, of the shape of lse.
i64 AttentionDqkv::cuda_workspace(std::span<const ir::TensorType> inputs,
                                  std::span<const ir::TensorType> /*outputs*/,
                                  const CudaTarget& target) const {
  const auto fused = fused_attention(shape_, inputs[1], target);
  return std::max(inputs[3].bytes(), fused ? device::fused_gradient_workspace(*fused) : 0);
}

void AttentionDqkv::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(1).type->dtype, [&]<class T>(T) {
    kernels::attention_backward(*context.pool, problem_of<T>(shape_, context.input(1), context.input(4)),
                                context.input(0).as<T>(), context.input(2).as<T>(), context.input(3).as<T>(),
                                context.output(0).as<T>());
  });
}

ir::ValueId attention(ir::Builder& builder, ir::ValueId qkv, ir::ValueId document_start,
                      const AttentionShape& shape) {
  return builder.add(std::make_shared<Attention>(shape), {qkv, document_start})[0];
}

void register_attention(ir::Registry& registry) {
  registry.add("attention", cases<attention_case>);
  registry.add("attention_dqkv", cases<attention_dqkv_case>);
}

}  // namespace wych::ops
