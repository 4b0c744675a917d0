// Which class of the transformers library a wych model is, and its config.json (huggingface.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "io/error_list.h"
#include "io/huggingface.h"
#include "io/json.h"

namespace wych::io {
namespace {

using config::BalanceScope;
using config::ModelConfig;
using config::NormPlacement;
using config::QkNorm;
using config::YarnConfig;

// The different windows of the layers, 0 among them if some layer has none; sorted.
std::set<i64> windows_of(const ModelConfig& model) {
  std::set<i64> windows;
  for (i64 layer = 0; layer < model.n_layers; ++layer) {
    windows.insert(model.window_of(layer));
  }
  return windows;
}

// max_position_embeddings of a stretched model.
i64 yarn_positions(const YarnConfig& yarn) {
  return static_cast<i64>(std::round(yarn.factor * static_cast<double>(yarn.original_length)));
}

std::optional<HfModel> closest_class(const ModelConfig& model) {
  const bool experts = model.moe.experts > 0;
  if (model.norm == NormPlacement::kPost && model.attention.qk_norm == QkNorm::kFull) {
    const bool windows = windows_of(model) != std::set<i64>{0};
    return experts ? HfModel::kFlexOlmo : windows ? HfModel::kOlmo3 : HfModel::kOlmo2;
  }
  if (model.norm != NormPlacement::kPre || !experts) {
    return std::nullopt;
  }
  switch (model.attention.qk_norm) {
    case QkNorm::kFull:
      return HfModel::kOlmoe;
    case QkNorm::kPerHead:
      return HfModel::kQwen3Moe;
    case QkNorm::kNone:
      return HfModel::kMixtral;
  }
  return std::nullopt;
}

// Notes a key whose value no class has.
class Refusals {
 public:
  explicit Refusals(std::string what_else) : hint_(std::move(what_else)) {}
  void require(bool holds, std::string_view key, std::string what) {
    if (!holds) {
      errors.push_back({ErrorKind::kUsage, std::string(key), std::move(what), hint_, {}});
    }
  }
  std::vector<Error> errors;

 private:
  std::string hint_;
};

void check_values(const ModelConfig& model, HfModel type, Refusals& refusals) {
  const std::string_view name = hf_architecture(type);
  const std::set<i64> windows = windows_of(model);
  const config::AttentionConfig& attention = model.attention;
  if (type == HfModel::kMixtral) {
    refusals.require(windows.size() == 1, "model.attention.window_pattern",
                     fmt::format("differs between layers; {} has one window", name));
    refusals.require(model.moe.router.normalize_weights, "model.moe.router.normalize_weights",
                     fmt::format("is false; {} divides them by their sum", name));
  } else if (type == HfModel::kOlmo3) {
    refusals.require(windows.size() - windows.count(0) == 1, "model.attention.window_pattern",
                     fmt::format("has several windows; {} has one, and layers without", name));
  } else {
    refusals.require(windows == std::set<i64>{0}, "model.attention.window",
                     fmt::format("is set; {} has no windows", name));
  }
  refusals.require(attention.clip_qkv == 0.0 || type == HfModel::kOlmoe, "model.attention.clip_qkv",
                   fmt::format("is {}; {} does not clip", attention.clip_qkv, name));
  refusals.require(type != HfModel::kOlmoe || attention.query_width() == model.d_model,
                   "model.attention.head_dim",
                   fmt::format("is {}; {} has d_model / n_heads", attention.head_dim, name));
  bool dense = false;
  for (i64 layer = 0; layer < model.n_layers; ++layer) {
    dense = dense || model.is_dense_layer(layer);
  }
  refusals.require(!dense || model.moe.experts == 0 || type == HfModel::kQwen3Moe, "model.dense_layers",
                   fmt::format("makes some layers dense; all of {} have experts", name));
  // The library takes the factor or this quotient, by its release: they must be the same.
  const YarnConfig& yarn = attention.yarn;
  const double quotient =
      static_cast<double>(yarn_positions(yarn)) / static_cast<double>(std::max<i64>(yarn.original_length, 1));
  refusals.require(!yarn.enabled() || quotient == yarn.factor, "model.attention.yarn.factor",
                   fmt::format("is {}, which is no number of positions over original_length, {}", yarn.factor,
                               yarn.original_length));
}

// Always with a point or an exponent: the library refuses an integer where it wants a real number.
std::string real_text(double value) {
  const std::string text = json_number(value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// `theta`: with rope_theta, which transformers 4 wants beside the object instead.
std::string rope_object(const ModelConfig& model, bool yarn, bool theta) {
  const YarnConfig& values = model.attention.yarn;
  JsonObject object;
  if (theta) {
    object.add_raw("rope_theta", real_text(model.attention.rope_theta));
  }
  object.add("rope_type", yarn ? "yarn" : "default");
  if (yarn) {
    object.add_raw("factor", real_text(values.factor));
    object.add("original_max_position_embeddings", values.original_length);
    object.add_raw("beta_fast", real_text(values.beta_fast));
    object.add_raw("beta_slow", real_text(values.beta_slow));
    if (values.attention_factor > 0.0) {
      object.add_raw("attention_factor", real_text(values.attention_factor));
    }
  }
  return object.text();
}

// Members of a config.json, printed in the order of their keys.
class Members {
 public:
  void raw(const std::string& key, std::string json) { members_[key] = std::move(json); }
  void add(const std::string& key, i64 value) { raw(key, fmt::format("{}", value)); }
  void add(const std::string& key, double value) { raw(key, real_text(value)); }
  void add(const std::string& key, bool value) { raw(key, value ? "true" : "false"); }
  void add(const std::string& key, std::string_view value) { raw(key, json_string(value)); }
  [[nodiscard]] std::string text() const {
    std::string text;
    for (const auto& [key, json] : members_) {
      text += fmt::format("{}  {}: {}", text.empty() ? "" : ",\n", json_string(key), json);
    }
    return "{\n" + text + "\n}\n";
  }

 private:
  std::map<std::string, std::string> members_;
};

void add_rope(const ModelConfig& model, HfModel type, Members& members) {
  const bool yarn = model.attention.yarn.enabled();
  const std::string full = rope_object(model, yarn, true);
  members.raw("rope_parameters", type != HfModel::kOlmo3
                                     ? full
                                     : fmt::format(R"({{"full_attention": {}, "sliding_attention": {}}})",
                                                   full, rope_object(model, false, true)));
  // For transformers 4.
  members.add("rope_theta", model.attention.rope_theta);
  members.raw("rope_scaling", yarn ? rope_object(model, true, false) : "null");
}

void add_experts(const ModelConfig& model, HfModel type, Members& members) {
  const config::MoeConfig& moe = model.moe;
  const config::BalanceLossConfig& loss = moe.router.balance_loss;
  members.add(type == HfModel::kMixtral ? "num_local_experts" : "num_experts", moe.experts);
  members.add("num_experts_per_tok", moe.top_k);
  if (type != HfModel::kMixtral) {
    members.add("norm_topk_prob", moe.router.normalize_weights);
  }
  // The library's balance loss is not divided by k, and of all layers together.
  const bool joint = loss.scope == BalanceScope::kHfJoint;
  members.add("router_aux_loss_coef", joint ? loss.weight : loss.weight / static_cast<double>(moe.top_k));
  members.add("output_router_logits", joint && loss.weight > 0.0);
  if (type != HfModel::kQwen3Moe) {
    members.add("intermediate_size", moe.expert_hidden);
    return;
  }
  members.add("moe_intermediate_size", moe.expert_hidden);
  members.add("intermediate_size", model.dense_hidden > 0 ? model.dense_hidden : moe.expert_hidden);
  members.add("decoder_sparse_step", i64{1});
  std::vector<i64> dense;
  for (i64 layer = 0; layer < model.n_layers; ++layer) {
    if (model.is_dense_layer(layer)) {
      dense.push_back(layer);
    }
  }
  members.raw("mlp_only_layers", json_list(dense));
}

void add_windows(const ModelConfig& model, HfModel type, Members& members) {
  const i64 window = *windows_of(model).rbegin();
  const std::string size = window > 0 ? fmt::format("{}", window) : "null";
  if (type == HfModel::kMixtral) {
    members.raw("sliding_window", size);
  } else if (type == HfModel::kQwen3Moe) {
    members.raw("sliding_window", "null");
    members.add("use_sliding_window", false);
  } else if (type == HfModel::kOlmo3) {
    members.raw("sliding_window", size);
    std::string types;
    for (i64 layer = 0; layer < model.n_layers; ++layer) {
      types += fmt::format("{}\"{}\"", layer > 0 ? ", " : "",
                           model.window_of(layer) > 0 ? "sliding_attention" : "full_attention");
    }
    members.raw("layer_types", "[" + types + "]");
  }
}

}  // namespace

std::string_view hf_model_type(HfModel model) {
  constexpr std::array<std::string_view, kHfModels.size()> kNames = {"olmoe", "flex_olmo", "olmo2",
                                                                     "olmo3", "mixtral",   "qwen3_moe"};
  return kNames[static_cast<std::size_t>(model)];
}

std::string_view hf_architecture(HfModel model) {
  constexpr std::array<std::string_view, kHfModels.size()> kNames = {
      "OlmoeForCausalLM", "FlexOlmoForCausalLM", "Olmo2ForCausalLM",
      "Olmo3ForCausalLM", "MixtralForCausalLM",  "Qwen3MoeForCausalLM"};
  return kNames[static_cast<std::size_t>(model)];
}

Expected<HfModel> hf_model(const ModelConfig& model) {
  Refusals refusals("no class of the transformers library has this; the model can be kept as wych's");
  refusals.require(model.norm != NormPlacement::kPeri, "model.norm",
                   "is \"peri\": norms before and after the sublayers");
  refusals.require(model.embed_scale == 1.0, "model.embed_scale", fmt::format("is {}", model.embed_scale));
  refusals.require(!model.embed_norm, "model.embed_norm", "is true");
  refusals.require(model.moe.experts == 0 || model.moe.shared_hidden == 0, "model.moe.shared_hidden",
                   fmt::format("is {}: an expert that every token visits", model.moe.shared_hidden));
  const std::optional<HfModel> type = closest_class(model);
  refusals.require(
      type.has_value() || model.norm == NormPlacement::kPeri, "model.attention.qk_norm",
      "does not go with this model.norm and model.moe.experts: norms after the sublayers go with "
      "\"full\", norms before them with experts");
  if (type) {
    check_values(model, *type, refusals);
  }
  if (!refusals.errors.empty()) {
    return join_errors(std::move(refusals.errors));
  }
  return *type;
}

std::string hf_config_text(const ModelConfig& model, DType dtype, const HfTokenIds& ids) {
  const HfModel type = hf_model(model).value();
  const config::AttentionConfig& attention = model.attention;
  const std::string_view dtype_text = dtype == DType::kBF16 ? "bfloat16" : "float32";
  Members members;
  members.raw("architectures", fmt::format("[\"{}\"]", hf_architecture(type)));
  members.add("model_type", hf_model_type(type));
  members.add("dtype", dtype_text);
  members.add("torch_dtype", dtype_text);
  members.add("vocab_size", model.vocab_size);
  members.add("hidden_size", model.d_model);
  members.add("num_hidden_layers", model.n_layers);
  members.add("num_attention_heads", attention.n_heads);
  members.add("num_key_value_heads", attention.n_kv_heads);
  members.add("max_position_embeddings",
              attention.yarn.enabled() ? yarn_positions(attention.yarn) : model.sequence_length);
  members.add("hidden_act", std::string_view("silu"));
  members.add("attention_bias", false);
  members.add("attention_dropout", 0.0);
  members.add("initializer_range", model.init_std);
  members.add("rms_norm_eps", model.norm_eps);
  members.add("tie_word_embeddings", model.tie_embeddings);
  members.add("use_cache", true);
  members.raw("bos_token_id", ids.bos);
  members.raw("eos_token_id", ids.eos);
  members.raw("pad_token_id", ids.pad);
  if (type == HfModel::kOlmoe) {
    members.raw("clip_qkv", attention.clip_qkv > 0.0 ? real_text(attention.clip_qkv) : "null");
  } else {
    members.add("head_dim", attention.head_dim);
  }
  add_rope(model, type, members);
  add_windows(model, type, members);
  if (model.moe.experts > 0) {
    add_experts(model, type, members);
  } else {
    members.add("intermediate_size", model.dense_hidden);
  }
  return members.text();
}

std::string hf_generation_config_text(const HfTokenIds& ids) {
  JsonObject object;
  for (const auto& [key, value] : {std::pair("bos_token_id", &ids.bos), std::pair("eos_token_id", &ids.eos),
                                   std::pair("pad_token_id", &ids.pad)}) {
    if (*value != "null") {
      object.add_raw(key, *value);
    }
  }
  return object.text() + "\n";
}

}  // namespace wych::io
