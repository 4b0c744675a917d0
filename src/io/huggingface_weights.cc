// Names and places of weights (huggingface.h). Both sides store linear weights as (out, in),
// so every Hugging Face tensor is a contiguous range of a wych tensor: q, k, v one after the other in wqkv;
// gate rows, then up rows in w13; experts one after the other.
#include <fmt/format.h>

#include "io/huggingface.h"

namespace wych::io {
namespace {

using config::ModelConfig;
using config::QkNorm;

class Pieces {
 public:
  // A wych tensor; the pieces added next fill it from its start.
  void begin(std::string name, std::vector<i64> shape) {
    name_ = std::move(name);
    shape_ = std::move(shape);
    at_ = 0;
  }
  void add(std::string hf_name, std::vector<i64> hf_shape) {
    const i64 elements = shape_elements(hf_shape).value_or(0);
    out.push_back({std::move(hf_name), std::move(hf_shape), name_, shape_, at_});
    at_ += elements;
  }
  // A tensor with the same shape on both sides.
  void same(std::string name, std::string hf_name, std::vector<i64> shape) {
    begin(std::move(name), shape);
    add(std::move(hf_name), std::move(shape));
  }
  std::vector<WeightPiece> out;

 private:
  std::string name_;
  std::vector<i64> shape_;
  i64 at_ = 0;
};

void add_attention(Pieces& pieces, const ModelConfig& model, const std::string& block,
                   const std::string& hf) {
  const config::AttentionConfig& attention = model.attention;
  const i64 d = model.d_model;
  const i64 query = attention.query_width();
  const i64 kv = attention.kv_width();
  pieces.begin(block + "attention.wqkv", {query + 2 * kv, d});
  pieces.add(hf + "self_attn.q_proj.weight", {query, d});
  pieces.add(hf + "self_attn.k_proj.weight", {kv, d});
  pieces.add(hf + "self_attn.v_proj.weight", {kv, d});
  pieces.same(block + "attention.wo", hf + "self_attn.o_proj.weight", {d, query});
  if (attention.qk_norm != QkNorm::kNone) {
    const bool full = attention.qk_norm == QkNorm::kFull;
    pieces.same(block + "attention.q_norm", hf + "self_attn.q_norm.weight",
                {full ? query : attention.head_dim});
    pieces.same(block + "attention.k_norm", hf + "self_attn.k_norm.weight", {full ? kv : attention.head_dim});
  }
}

void add_dense(Pieces& pieces, const ModelConfig& model, const std::string& block, const std::string& hf) {
  const i64 d = model.d_model;
  const i64 hidden = model.dense_hidden;
  pieces.begin(block + "ffn.w13", {2 * hidden, d});
  pieces.add(hf + "mlp.gate_proj.weight", {hidden, d});
  pieces.add(hf + "mlp.up_proj.weight", {hidden, d});
  pieces.same(block + "ffn.w2", hf + "mlp.down_proj.weight", {d, hidden});
}

// The names of a layer's experts in published files. In memory the library has one naming for all classes.
struct ExpertNames {
  std::string_view block = "mlp";
  std::string_view gate = "gate_proj";
  std::string_view up = "up_proj";
  std::string_view down = "down_proj";
};

ExpertNames expert_names(HfModel type, ExpertNaming naming) {
  if (type == HfModel::kMixtral && naming == ExpertNaming::kPerExpert) {
    return {"block_sparse_moe", "w1", "w3", "w2"};
  }
  return {};
}

void add_moe(Pieces& pieces, const ModelConfig& model, HfModel type, ExpertNaming naming,
             const std::string& block, const std::string& layer) {
  const i64 d = model.d_model;
  const i64 experts = model.moe.experts;
  const i64 hidden = model.moe.expert_hidden;
  const ExpertNames names = expert_names(type, naming);
  const std::string hf = fmt::format("{}{}.", layer, names.block);
  pieces.same(block + "moe.router.weight", hf + "gate.weight", {experts, d});
  if (naming == ExpertNaming::kStacked) {
    pieces.same(block + "moe.w13", hf + "experts.gate_up_proj", {experts, 2 * hidden, d});
    pieces.same(block + "moe.w2", hf + "experts.down_proj", {experts, d, hidden});
    return;
  }
  pieces.begin(block + "moe.w13", {experts, 2 * hidden, d});
  for (i64 expert = 0; expert < experts; ++expert) {
    pieces.add(fmt::format("{}experts.{}.{}.weight", hf, expert, names.gate), {hidden, d});
    pieces.add(fmt::format("{}experts.{}.{}.weight", hf, expert, names.up), {hidden, d});
  }
  pieces.begin(block + "moe.w2", {experts, d, hidden});
  for (i64 expert = 0; expert < experts; ++expert) {
    pieces.add(fmt::format("{}experts.{}.{}.weight", hf, expert, names.down), {d, hidden});
  }
}

void add_layer(Pieces& pieces, const ModelConfig& model, HfModel type, ExpertNaming naming, i64 layer) {
  const std::string block = fmt::format("blocks.{}.", layer);
  const std::string hf = fmt::format("model.layers.{}.", layer);
  const std::vector<i64> width = {model.d_model};
  const bool pre = model.norm == config::NormPlacement::kPre;
  if (pre) {
    pieces.same(block + "attention_pre_norm", hf + "input_layernorm.weight", width);
  }
  add_attention(pieces, model, block, hf);
  // One name, two places: before the feed-forward block, or behind attention.
  pieces.same(block + (pre ? "ffn_pre_norm" : "attention_post_norm"), hf + "post_attention_layernorm.weight",
              width);
  if (model.is_dense_layer(layer)) {
    add_dense(pieces, model, block, hf);
  } else {
    add_moe(pieces, model, type, naming, block, hf);
  }
  if (!pre) {
    pieces.same(block + "ffn_post_norm", hf + "post_feedforward_layernorm.weight", width);
  }
}

}  // namespace

std::vector<WeightPiece> weight_pieces(const ModelConfig& model, ExpertNaming naming) {
  const HfModel type = hf_model(model).value();
  const i64 d = model.d_model;
  Pieces pieces;
  pieces.begin("embed.weight", {model.padded_vocab_size(), d});
  pieces.add("model.embed_tokens.weight", {model.vocab_size, d});
  for (i64 layer = 0; layer < model.n_layers; ++layer) {
    add_layer(pieces, model, type, naming, layer);
  }
  pieces.same("final_norm.weight", "model.norm.weight", {d});
  if (!model.tie_embeddings) {
    pieces.begin("head.weight", {model.padded_vocab_size(), d});
    pieces.add("lm_head.weight", {model.vocab_size, d});
  }
  return std::move(pieces.out);
}

}  // namespace wych::io
