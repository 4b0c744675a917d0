// A token's output and gradient have the same bits whatever other tokens its microbatch holds: what makes a
// run independent of how a batch is cut. Each op that works token by token runs over all tokens and over some
// sequences of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "ir/builder.h"
#include "ir/interpret.h"
#include "ops/attention.h"
#include "ops/clip.h"
#include "ops/embed.h"
#include "ops/fill.h"
#include "ops/head_loss.h"
#include "ops/linear.h"
#include "ops/normalize_weights.h"
#include "ops/qk_norm.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/softmax.h"
#include "ops/swiglu.h"
#include "ops/top_k.h"

namespace wych::ops {
namespace {

using ir::Builder;
using ir::ValueId;

constexpr i64 kSequence = 16;
constexpr i64 kTokens = 6 * kSequence;
// The part: sequences 1 to 3.
constexpr i64 kBegin = 1 * kSequence;
constexpr i64 kEnd = 4 * kSequence;
constexpr i64 kWidth = 67;

struct Source {
  std::vector<i64> extents;  // without the token axis if `per_token`
  bool per_token = true;
  bool index = false;  // i32: token ids below 3, or starts of documents
};

struct RowOp {
  std::string name;
  std::vector<Source> sources;  // the first one is per token, or its gradient is not looked at
  std::function<ValueId(Builder&, const std::vector<ValueId>&)> body;
};

// From the element's place among all tokens. As starts, every sequence is documents [0], [1] and the rest.
double element(const Source& source, std::size_t input, i64 place) {
  if (source.index) {
    return static_cast<double>(std::min<i64>(place % kSequence, 2));
  }
  return std::sin(static_cast<double>(place) * 1.7 + static_cast<double>(input));
}

// The rows of tokens [kBegin, kEnd) of y and of dx, as bytes, when tokens [begin, end) run.
std::vector<std::vector<std::byte>> run(const RowOp& op, DType dtype, i64 begin, i64 end) {
  ir::Graph graph;
  Builder builder(graph);
  ThreadPool pool(2);
  std::vector<ValueId> inputs;
  std::vector<std::vector<double>> contents;
  const auto add_source = [&](const Source& source) {
    std::vector<i64> extents = source.extents;
    i64 row = 1;
    for (const i64 extent : extents) {
      row *= extent;
    }
    if (source.per_token) {
      extents.insert(extents.begin(), end - begin);
    }
    const ir::TensorType type{source.index ? DType::kI32 : dtype, ir::Shape(extents)};
    const i64 first = source.per_token ? begin * row : 0;
    std::vector<double> content;
    for (i64 i = 0; i < type.elements(); ++i) {
      content.push_back(element(source, inputs.size(), first + i));
    }
    inputs.push_back(builder.input("input." + std::to_string(inputs.size()), type));
    contents.push_back(std::move(content));
  };
  for (const Source& source : op.sources) {
    add_source(source);
  }
  const ValueId y = op.body(builder, inputs);
  const auto last = static_cast<ir::NodeId>(graph.nodes.size());
  const ir::TensorType type = builder.type(y);
  const bool per_token = type.shape[0] == end - begin;
  if (per_token) {
    add_source({{type.shape.dims().begin() + 1, type.shape.dims().end()}});
  } else {
    inputs.push_back(builder.input("dy", type));
    contents.push_back({0.75});
  }
  const std::vector<ir::Seed> seeds = {{y, inputs.back()}};
  const std::vector<ValueId> wanted = {inputs[0]};
  const ValueId dx = ir::reverse(builder, 0, last, seeds, wanted)[0];
  ir::Interpreter interpreter(graph, pool);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    interpreter.write(inputs[i], contents[i]);
  }
  interpreter.run();
  std::vector<std::vector<std::byte>> results;
  const auto keep = [&](ValueId id) {
    const i64 row = builder.type(id).bytes() / (end - begin);
    const std::byte* data = interpreter.data(id);
    results.emplace_back(data + (kBegin - begin) * row, data + (kEnd - begin) * row);
  };
  if (per_token) {
    keep(y);
  }
  if (dx != ir::kNoValue && op.sources[0].per_token) {
    keep(dx);
  }
  return results;
}

std::vector<RowOp> row_ops() {
  const HeadLayout heads{.query_heads = 4, .kv_heads = 2, .head_dim = 10};
  const Source tokens{{}, true, true};
  const Source qkv{{heads.width()}};
  const auto shared = [](std::vector<i64> extents) { return Source{std::move(extents), false}; };
  const auto qk_norm_op = [&](bool per_head) {
    const QkNormShape shape{heads, per_head};
    return RowOp{
        per_head ? "qk_norm per head" : "qk_norm",
        {qkv, shared({shape.query_columns()}), shared({shape.key_columns()})},
        [shape](Builder& b, const auto& in) { return qk_norm(b, in[0], in[1], in[2], shape, 1e-6); }};
  };
  return {
      {"linear",
       {{{kWidth}}, shared({131, kWidth})},
       [](Builder& b, const auto& in) { return linear(b, in[0], in[1]); }},
      {"rms_norm",
       {{{kWidth}}, shared({kWidth})},
       [](Builder& b, const auto& in) { return rms_norm(b, in[0], in[1], 1e-6); }},
      {"swiglu", {{{2 * kWidth}}}, [](Builder& b, const auto& in) { return swiglu(b, in[0]); }},
      {"clip", {{{kWidth}}}, [](Builder& b, const auto& in) { return clip(b, in[0], 0.5); }},
      {"softmax", {{{kWidth}}}, [](Builder& b, const auto& in) { return softmax(b, in[0]); }},
      {"normalize_weights", {{{7}}}, [](Builder& b, const auto& in) { return normalize_weights(b, in[0]); }},
      {"top_k", {{{kWidth}}}, [](Builder& b, const auto& in) { return top_k(b, in[0], 5).values; }},
      {"embed",
       {shared({3, kWidth}), tokens},
       [](Builder& b, const auto& in) { return embed(b, in[0], in[1]); }},
      qk_norm_op(false),
      qk_norm_op(true),
      {"rope",
       {qkv, tokens},
       [=](Builder& b, const auto& in) {
         return rope(b, in[0], in[1], {heads, 1e4, kSequence});
       }},
      {"attention",
       {qkv, tokens},
       [=](Builder& b, const auto& in) {
         return attention(b, in[0], in[1], {heads, kSequence, 5, 0.3});
       }},
      {"head_loss",
       {{{kWidth}}, shared({131, kWidth}), tokens},
       [](Builder& b, const auto& in) {
         const ValueId denominator = fill(b, 40.0, {DType::kF64, {1}});
         return b.add(std::make_shared<HeadLoss>(127), {in[0], in[1], in[2], denominator})[0];
       }},
  };
}

class RowInvariance : public testing::TestWithParam<DType> {};

TEST_P(RowInvariance, ATokensBitsDoNotDependOnTheOthers) {
  for (const RowOp& op : row_ops()) {
    const std::vector<std::vector<std::byte>> all = run(op, GetParam(), 0, kTokens);
    const std::vector<std::vector<std::byte>> part = run(op, GetParam(), kBegin, kEnd);
    ASSERT_FALSE(all.empty()) << op.name;
    EXPECT_TRUE(all == part) << op.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RowInvariance, testing::Values(DType::kF32, DType::kF64),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

}  // namespace
}  // namespace wych::ops
