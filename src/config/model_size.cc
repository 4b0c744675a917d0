// Formulas of model_size.h.
#include "config/model_size.h"

namespace wych::config {
namespace {

// Parameters with `experts` experts counted per MoE layer, in exact or floating arithmetic.
template <class Number>
Number count(const ModelConfig& model, i64 experts) {
  const AttentionConfig& attention = model.attention;
  const auto d = static_cast<Number>(model.d_model);
  const auto query = static_cast<Number>(attention.n_heads) * static_cast<Number>(attention.head_dim);
  const auto kv = static_cast<Number>(attention.n_kv_heads) * static_cast<Number>(attention.head_dim);
  const Number norms = (model.norm == NormPlacement::kPeri ? 4 : 2) * d;
  Number qk_norm = 0;
  if (attention.qk_norm == QkNorm::kFull) {
    qk_norm = query + kv;
  } else if (attention.qk_norm == QkNorm::kPerHead) {
    qk_norm = 2 * static_cast<Number>(attention.head_dim);
  }
  const Number block = 2 * d * query + 2 * d * kv + norms + qk_norm;
  const Number dense = 3 * d * static_cast<Number>(model.dense_hidden);
  const Number moe = 3 * d * static_cast<Number>(model.moe.expert_hidden) * static_cast<Number>(experts) +
                     d * static_cast<Number>(model.moe.experts) +
                     3 * d * static_cast<Number>(model.moe.shared_hidden);
  i64 num_dense = 0;
  for (i64 layer = 0; layer < model.n_layers; ++layer) {
    num_dense += model.is_dense_layer(layer) ? 1 : 0;
  }
  const Number tables = model.tie_embeddings ? 1 : 2;
  return static_cast<Number>(model.n_layers) * block + static_cast<Number>(num_dense) * dense +
         static_cast<Number>(model.n_layers - num_dense) * moe +
         tables * static_cast<Number>(model.padded_vocab_size()) * d + d + (model.embed_norm ? d : 0);
}

}  // namespace

ParameterCounts count_parameters(const ModelConfig& model) {
  ParameterCounts counts;
  counts.total = count<i64>(model, model.moe.experts);
  counts.active = count<i64>(model, model.moe.top_k);
  counts.embedding = (model.tie_embeddings ? 1 : 2) * model.padded_vocab_size() * model.d_model;
  counts.non_embedding = counts.total - counts.embedding;
  return counts;
}

double approximate_parameters(const ModelConfig& model) { return count<double>(model, model.moe.experts); }

double train_flops_per_token(const ModelConfig& model) {
  const auto d = static_cast<double>(model.d_model);
  const auto query = static_cast<double>(model.attention.query_width());
  const auto kv = static_cast<double>(model.attention.kv_width());
  const auto sequence = static_cast<double>(model.sequence_length);
  const MoeConfig& moe = model.moe;
  const auto routed = static_cast<double>(moe.expert_hidden) * static_cast<double>(moe.top_k);
  double flops = 6.0 * d * static_cast<double>(model.padded_vocab_size());
  for (i64 layer = 0; layer < model.n_layers; ++layer) {
    const auto window = static_cast<double>(model.window_of(layer));
    double seen = (sequence + 1.0) / 2.0;
    if (window > 0.0 && window < sequence) {
      seen = (window * (window + 1.0) / 2.0 + (sequence - window) * window) / sequence;
    }
    flops += 6.0 * (2.0 * d * query + 2.0 * d * kv) + 12.0 * query * seen;
    if (model.is_dense_layer(layer)) {
      flops += 18.0 * d * static_cast<double>(model.dense_hidden);
    } else {
      flops += 6.0 * d * static_cast<double>(moe.experts) +
               18.0 * d * (routed + static_cast<double>(moe.shared_hidden));
    }
  }
  return flops;
}

}  // namespace wych::config
