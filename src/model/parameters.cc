#include "model/parameters.h"

#include <fmt/format.h>

#include <cmath>

namespace wych::model {
namespace {

class ParameterList {
 public:
  explicit ParameterList(const config::ModelConfig& model)
      : model_(model),
        // Projections that write into the residual stream are scaled down so that its variance does not grow
        // with depth.
        residual_std_(model.init_std / std::sqrt(2.0 * static_cast<double>(model.n_layers))) {}

  std::vector<Parameter> build() {
    const i64 vocabulary = model_.padded_vocab_size();
    add("embed.weight", {vocabulary, model_.d_model}, ParameterGroup::kEmbedding, model_.init_std);
    if (model_.embed_norm) {
      norm("embed.norm", model_.d_model);
    }
    for (i64 layer = 0; layer < model_.n_layers; ++layer) {
      prefix_ = block_name(layer) + ".";
      attention();
      feed_forward(layer);
    }
    prefix_.clear();
    norm("final_norm.weight", model_.d_model);
    if (!model_.tie_embeddings) {
      add("head.weight", {vocabulary, model_.d_model}, ParameterGroup::kEmbedding, model_.init_std);
    }
    return std::move(list_);
  }

 private:
  void add(std::string_view name, ir::Shape shape, ParameterGroup group, double init_std) {
    list_.push_back({prefix_ + std::string(name), shape, group, init_std});
  }
  void norm(std::string_view name, i64 width) { add(name, {width}, ParameterGroup::kNorm, 0); }
  void pre_norm(std::string_view name) {
    if (model_.norm != config::NormPlacement::kPost) {
      norm(name, model_.d_model);
    }
  }
  void post_norm(std::string_view name) {
    if (model_.norm != config::NormPlacement::kPre) {
      norm(name, model_.d_model);
    }
  }

  void attention() {
    const config::AttentionConfig& attention = model_.attention;
    pre_norm("attention_pre_norm");
    add("attention.wqkv", {attention.query_width() + 2 * attention.kv_width(), model_.d_model},
        ParameterGroup::kMatrix, model_.init_std);
    if (attention.qk_norm != config::QkNorm::kNone) {
      const bool full = attention.qk_norm == config::QkNorm::kFull;
      norm("attention.q_norm", full ? attention.query_width() : attention.head_dim);
      norm("attention.k_norm", full ? attention.kv_width() : attention.head_dim);
    }
    add("attention.wo", {model_.d_model, attention.query_width()}, ParameterGroup::kMatrix, residual_std_);
    post_norm("attention_post_norm");
  }

  void swiglu(std::string_view path, i64 hidden) {
    add(fmt::format("{}.w13", path), {2 * hidden, model_.d_model}, ParameterGroup::kMatrix, model_.init_std);
    add(fmt::format("{}.w2", path), {model_.d_model, hidden}, ParameterGroup::kMatrix, residual_std_);
  }

  void feed_forward(i64 layer) {
    pre_norm("ffn_pre_norm");
    if (model_.is_dense_layer(layer)) {
      swiglu("ffn", model_.dense_hidden);
    } else {
      const config::MoeConfig& moe = model_.moe;
      add("moe.router.weight", {moe.experts, model_.d_model}, ParameterGroup::kRouter, model_.init_std);
      add("moe.w13", {moe.experts, 2 * moe.expert_hidden, model_.d_model}, ParameterGroup::kMatrix,
          model_.init_std);
      add("moe.w2", {moe.experts, model_.d_model, moe.expert_hidden}, ParameterGroup::kMatrix, residual_std_);
      if (moe.shared_hidden > 0) {
        swiglu("moe.shared", moe.shared_hidden);
      }
    }
    post_norm("ffn_post_norm");
  }

  const config::ModelConfig& model_;
  double residual_std_;
  std::string prefix_;
  std::vector<Parameter> list_;
};

}  // namespace

std::vector<Parameter> parameters(const config::ModelConfig& model) { return ParameterList(model).build(); }

bool has_compute_copy(const Parameter& parameter, DType compute) {
  return compute == DType::kBF16 &&
         (parameter.group == ParameterGroup::kMatrix || parameter.group == ParameterGroup::kEmbedding);
}

std::string block_name(i64 layer) { return fmt::format("blocks.{}", layer); }

}  // namespace wych::model
