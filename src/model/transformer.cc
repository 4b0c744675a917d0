#include "model/transformer.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>

#include "base/hash.h"
#include "ir/add.h"
#include "ir/paths.h"
#include "model/parameters.h"
#include "ops/attention.h"
#include "ops/cast.h"
#include "ops/clip.h"
#include "ops/count_targets.h"
#include "ops/embed.h"
#include "ops/fill.h"
#include "ops/grouped_linear.h"
#include "ops/head_loss.h"
#include "ops/kv_cache.h"
#include "ops/linear.h"
#include "ops/moe_combine.h"
#include "ops/moe_permute.h"
#include "ops/moe_placement.h"
#include "ops/moe_swiglu.h"
#include "ops/qk_norm.h"
#include "ops/qk_norm_rope.h"
#include "ops/random_normal.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/router_z_loss.h"
#include "ops/swiglu.h"
#include "ops/take_row.h"
#include "ops/type_checks.h"

namespace wych::model {
namespace {

using ir::Builder;
using ir::ValueId;

// Turns rotated qkv F[T, width] of a layer into attention's output F[T, hq hd].
using Attend = std::function<ValueId(i64 layer, ValueId qkv)>;

// Appends the blocks of a model to a graph.
class Transformer {
 public:
  Transformer(Builder& builder, const config::ModelConfig& model, const BuildOptions& options)
      : builder_(builder), model_(model), options_(options) {
    for (const Parameter& parameter : parameters(model)) {
      parameters_.emplace(parameter.name, parameter);
    }
    layout_ = {model.attention.n_heads, model.attention.n_kv_heads, model.attention.head_dim};
    scale_ = 1.0 / std::sqrt(static_cast<double>(model.attention.head_dim));
  }

  // tokens, document_start i32[T] -> the final norm's output F[T, d]. `sequence`: tokens after which
  // positions begin again.
  ValueId forward(ValueId tokens, ValueId document_start, i64 sequence, const Attend& attend) {
    ValueId x = ops::embed(builder_, weight("embed.weight"), tokens, model_.embed_scale);
    if (model_.embed_norm) {
      x = norm(x, "embed.norm");
    }
    builder_.name(x, "embedded");
    for (i64 layer = 0; layer < model_.n_layers; ++layer) {
      const Builder::Scope region = builder_.scope(block_name(layer), true);
      x = residual(x, "attention", [&](ValueId hidden) {
        return attention(layer, hidden, document_start, sequence, attend);
      });
      x = residual(x, "ffn", [&](ValueId hidden) { return feed_forward(layer, hidden); });
    }
    return builder_.name(norm(x, "final_norm.weight"), "final");
  }

  ValueId head_weight() { return weight(model_.tie_embeddings ? "embed.weight" : "head.weight"); }

  Attend causal_attention(ValueId document_start, i64 sequence) {
    return [this, document_start, sequence](i64 layer, ValueId qkv) {
      return ops::attention(builder_, qkv, document_start,
                            {.layout = layout_,
                             .sequence = sequence,
                             .window = model_.window_of(layer),
                             .scale = scale_,
                             .documents = options_.documents,
                             .deterministic = options_.deterministic});
    };
  }

  Attend cached_attention(ValueId start, i64 cache_length) {
    return [this, start, cache_length](i64 layer, ValueId qkv) {
      const ir::TensorType type{options_.compute, {2, layout_.kv_heads, cache_length, layout_.head_dim}};
      const ValueId cache = ops::kv_append(
          builder_, qkv, start,
          builder_.persistent(fmt::format("cache.{}", layer), type, ir::Category::kState), layout_);
      return ops::cached_attention(builder_, qkv, cache, start, layout_, model_.window_of(layer), scale_);
    };
  }

  // One entry per MoE layer, in order.
  struct MoeLayer {
    std::string block;
    Routing routing;
    ValueId counts = ir::kNoValue;
  };
  [[nodiscard]] const std::vector<MoeLayer>& moe_layers() const { return moe_layers_; }

 private:
  ValueId weight(const std::string& path) {
    const auto parameter = parameters_.find(path);
    WYCH_CHECK(parameter != parameters_.end(), "the model has no parameter '{}'", path);
    const bool copied = has_compute_copy(parameter->second, options_.compute);
    const DType dtype = copied ? options_.compute : ops::stats_dtype(options_.compute);
    return builder_.persistent(copied ? ir::compute_path(path) : path, {dtype, parameter->second.shape},
                               ir::Category::kWeights);
  }
  ValueId block_weight(std::string_view name) { return weight(builder_.scoped(name)); }

  ValueId norm(ValueId x, const std::string& path) {
    return ops::rms_norm(builder_, x, weight(path), model_.norm_eps);
  }

  // x + [norm](sublayer([norm](x))), with norms where the model has them.
  template <class Sublayer>
  ValueId residual(ValueId x, std::string_view name, const Sublayer& sublayer) {
    const bool pre = model_.norm != config::NormPlacement::kPost;
    const bool post = model_.norm != config::NormPlacement::kPre;
    const ValueId hidden = pre ? norm(x, builder_.scoped(fmt::format("{}_pre_norm", name))) : x;
    ValueId y = sublayer(hidden);
    if (post) {
      y = norm(y, builder_.scoped(fmt::format("{}_post_norm", name)));
    }
    return builder_.name(ir::add(builder_, x, y), fmt::format("{}_residual", name));
  }

  ValueId attention(i64 layer, ValueId hidden, ValueId document_start, i64 sequence, const Attend& attend) {
    const Builder::Scope scope = builder_.scope("attention");
    ValueId qkv = builder_.name(ops::linear(builder_, hidden, block_weight("wqkv")), "qkv");
    ops::RopeShape rope{.layout = layout_, .theta = model_.attention.rope_theta, .sequence = sequence};
    if (model_.has_yarn(layer)) {
      const config::YarnConfig& yarn = model_.attention.yarn;
      rope.yarn = {yarn.factor, yarn.original_length, yarn.beta_fast, yarn.beta_slow, yarn.scale()};
    }
    qkv = builder_.name(position(qkv, document_start, rope), "rotated");
    return ops::linear(builder_, builder_.name(attend(layer, qkv), "out"), block_weight("wo"));
  }

  // Norm, clip and rotation of queries and keys, as far as the model has them.
  ValueId position(ValueId qkv, ValueId document_start, const ops::RopeShape& rope) {
    const bool clips = model_.attention.clip_qkv > 0;
    if (model_.attention.qk_norm != config::QkNorm::kNone) {
      const bool per_head = model_.attention.qk_norm == config::QkNorm::kPerHead;
      const ValueId q_norm = block_weight("q_norm");
      const ValueId k_norm = block_weight("k_norm");
      if (!clips) {
        return ops::qk_norm_rope(builder_, qkv, q_norm, k_norm, document_start,
                                 {.per_head = per_head, .rope = rope}, model_.norm_eps);
      }
      qkv = ops::qk_norm(builder_, qkv, q_norm, k_norm, {.layout = layout_, .per_head = per_head},
                         model_.norm_eps);
    }
    if (clips) {
      qkv = ops::clip(builder_, qkv, model_.attention.clip_qkv);
    }
    return ops::rope(builder_, qkv, document_start, rope);
  }

  ValueId feed_forward(i64 layer, ValueId hidden) {
    if (model_.is_dense_layer(layer)) {
      const Builder::Scope scope = builder_.scope("ffn");
      return swiglu(hidden);
    }
    return moe(block_name(layer), hidden);
  }

  // w2 swiglu(w13 x) with the weights of the current scope.
  ValueId swiglu(ValueId hidden) {
    const ValueId gu = ops::linear(builder_, hidden, block_weight("w13"));
    return ops::linear(builder_, ops::swiglu(builder_, gu), block_weight("w2"));
  }

  ValueId moe(const std::string& block, ValueId hidden) {
    const Builder::Scope scope = builder_.scope("moe");
    Routing routing;
    {
      const Builder::Scope router = builder_.scope("router");
      routing = softmax_router(builder_, hidden, block_weight("weight"), model_.moe);
    }
    const ops::Placement placement =
        ops::moe_placement(builder_, routing.indices, model_.moe.experts, options_.alignment);
    builder_.name(placement.offsets, "offsets");
    builder_.name(placement.counts, "counts");
    moe_layers_.push_back({block, routing, placement.counts});
    const ValueId rows = builder_.name(ops::moe_permute(builder_, hidden, placement), "rows");
    const ValueId gu = ops::grouped_linear(builder_, rows, block_weight("w13"), placement);
    const ValueId activated = ops::moe_swiglu(builder_, gu, routing.weights, placement);
    const ValueId expert_out = ops::grouped_linear(builder_, activated, block_weight("w2"), placement);
    const ValueId routed = builder_.name(ops::moe_combine(builder_, expert_out, placement), "routed");
    if (model_.moe.shared_hidden == 0) {
      return routed;
    }
    const Builder::Scope shared_scope = builder_.scope("shared");
    return ir::add(builder_, routed, swiglu(hidden));
  }

  Builder& builder_;
  const config::ModelConfig& model_;
  const BuildOptions& options_;
  std::map<std::string, Parameter> parameters_;
  ops::HeadLayout layout_;
  double scale_ = 1;
  std::vector<MoeLayer> moe_layers_;
};

// Runs `body` on a fresh graph; a shape error becomes the result.
template <class Body>
Expected<ir::Graph> build(const Body& body) {
  ir::Graph graph;
  Builder builder(graph);
  try {
    body(builder);
  } catch (const ir::GraphError& error) {
    return error.error();
  }
  return graph;
}

struct Inputs {
  ValueId tokens;
  ValueId targets;
  ValueId document_start;
};

Inputs add_inputs(Builder& builder, i64 tokens) {
  const ir::TensorType type{DType::kI32, {tokens}};
  return {builder.input(ir::kTokensPath, type), builder.input(ir::kTargetsPath, type),
          builder.input(ir::kDocumentStartPath, type)};
}

void add_router_losses(Builder& builder, const Transformer& transformer, const config::MoeConfig& moe,
                       const BatchShape& batch, ValueId denominator) {
  const config::RouterConfig& router = moe.router;
  const bool joint = router.balance_loss.scope == config::BalanceScope::kHfJoint;
  std::vector<Routing> routings;
  for (const Transformer::MoeLayer& layer : transformer.moe_layers()) {
    routings.push_back(layer.routing);
    builder.output(layer.block + ".counts", layer.counts);
    if (router.balance_loss.scope == config::BalanceScope::kGlobal) {
      builder.output(layer.block + ".mean_probs", mean_probabilities(builder, layer.routing, batch));
    }
    if (router.balance_loss.weight > 0 && !joint) {
      builder.loss(layer.block + ".balance", balance_loss(builder, layer.routing, layer.block, moe, batch),
                   router.balance_loss.weight);
    }
    if (router.z_loss_weight > 0) {
      builder.loss(layer.block + ".router_z", ops::router_z_loss(builder, layer.routing.logits, denominator),
                   router.z_loss_weight);
    }
  }
  if (router.balance_loss.weight > 0 && joint && !routings.empty()) {
    builder.loss("balance", joint_balance_loss(builder, routings, moe), router.balance_loss.weight);
  }
}

}  // namespace

Expected<ir::Graph> build_training(const config::ModelConfig& model, const BatchShape& batch,
                                   const BuildOptions& options) {
  return build([&](Builder& builder) {
    const Inputs inputs = add_inputs(builder, batch.microbatch_tokens());
    const ValueId denominator = builder.input(ir::kDenominatorPath, {DType::kF64, {1}});
    Transformer transformer(builder, model, options);
    const ValueId x =
        transformer.forward(inputs.tokens, inputs.document_start, batch.sequence,
                            transformer.causal_attention(inputs.document_start, batch.sequence));
    add_router_losses(builder, transformer, model.moe, batch, denominator);
    const ops::HeadLosses losses =
        ops::head_loss(builder, x, transformer.head_weight(), inputs.targets, denominator, model.vocab_size);
    builder.loss("ce", losses.ce, 1.0);
    if (model.z_loss_weight > 0) {
      builder.loss("z", losses.z, model.z_loss_weight);
    }
  });
}

Expected<ir::Graph> build_evaluation(const config::ModelConfig& model, i64 sequences, i64 sequence,
                                     const BuildOptions& options) {
  return build([&](Builder& builder) {
    const Inputs inputs = add_inputs(builder, sequences * sequence);
    const ValueId one = ops::fill(builder, 1.0, {DType::kF64, {1}});
    Transformer transformer(builder, model, options);
    const ValueId x = transformer.forward(inputs.tokens, inputs.document_start, sequence,
                                          transformer.causal_attention(inputs.document_start, sequence));
    const ops::HeadLosses losses =
        ops::head_loss(builder, x, transformer.head_weight(), inputs.targets, one, model.vocab_size);
    builder.output("ce_sum", losses.ce);
    const std::vector<ValueId> targets = {inputs.targets};
    builder.output("targets", ops::count_targets(builder, targets));
    for (const Transformer::MoeLayer& layer : transformer.moe_layers()) {
      builder.output(layer.block + ".experts", layer.routing.indices);
      builder.output(layer.block + ".weights", layer.routing.weights);
    }
  });
}

Expected<ir::Graph> build_logits(const config::ModelConfig& model, i64 sequences, i64 sequence,
                                 const BuildOptions& options) {
  return build([&](Builder& builder) {
    const ir::TensorType type{DType::kI32, {sequences * sequence}};
    const ValueId tokens = builder.input(ir::kTokensPath, type);
    const ValueId document_start = builder.input(ir::kDocumentStartPath, type);
    Transformer transformer(builder, model, options);
    const ValueId x = transformer.forward(tokens, document_start, sequence,
                                          transformer.causal_attention(document_start, sequence));
    builder.output("logits", ops::linear(builder, x, transformer.head_weight()));
  });
}

Expected<ir::Graph> build_generation(const config::ModelConfig& model, i64 tokens, i64 cache_length,
                                     const BuildOptions& options) {
  return build([&](Builder& builder) {
    const ValueId ids = builder.input(ir::kTokensPath, {DType::kI32, {tokens}});
    const ValueId document_start = builder.input(ir::kDocumentStartPath, {DType::kI32, {tokens}});
    const ValueId start = builder.input("start", {DType::kI32, {1}});
    const ValueId last = builder.input("last", {DType::kI32, {1}});
    Transformer transformer(builder, model, options);
    const ValueId x =
        transformer.forward(ids, document_start, tokens, transformer.cached_attention(start, cache_length));
    builder.output("logits",
                   ops::linear(builder, ops::take_row(builder, x, last), transformer.head_weight()));
  });
}

Expected<ir::Graph> build_refresh(const config::ModelConfig& model, const BuildOptions& options) {
  return build([&](Builder& builder) {
    for (const Parameter& parameter : parameters(model)) {
      if (has_compute_copy(parameter, options.compute)) {
        const ir::TensorType type{ops::stats_dtype(options.compute), parameter.shape};
        const ValueId weight = builder.persistent(parameter.name, type, ir::Category::kWeights);
        builder.bind(ops::cast(builder, weight, options.compute), ir::compute_path(parameter.name),
                     ir::Category::kWeights);
      }
    }
  });
}

Expected<ir::Graph> build_initialisation(const config::ModelConfig& model, const BuildOptions& options,
                                         Initial initial) {
  return build([&](Builder& builder) {
    const ValueId seed = builder.input("seed", {DType::kI64, {1}});
    for (const Parameter& parameter : parameters(model)) {
      const ir::TensorType type{ops::stats_dtype(options.compute), parameter.shape};
      const ValueId value =
          parameter.init_std > 0
              ? ops::random_normal(builder, seed, hash_bytes(parameter.name), 0.0, parameter.init_std, type)
              : ops::fill(builder, 1.0, type);
      if (initial == Initial::kComputeCopies && has_compute_copy(parameter, options.compute)) {
        builder.bind(ops::cast(builder, value, options.compute), ir::compute_path(parameter.name),
                     ir::Category::kWeights);
      } else {
        builder.bind(value, parameter.name, ir::Category::kWeights);
      }
    }
    if (model.moe.router.balance_loss.scope != config::BalanceScope::kGlobal) {
      return;
    }
    for (i64 layer = 0; layer < model.n_layers; ++layer) {
      if (!model.is_dense_layer(layer)) {
        const double uniform = static_cast<double>(model.moe.top_k) / static_cast<double>(model.moe.experts);
        builder.bind(ops::fill(builder, uniform, {ops::stats_dtype(options.compute), {1, model.moe.experts}}),
                     load_fractions_path(block_name(layer)), ir::Category::kState);
      }
    }
  });
}

}  // namespace wych::model
