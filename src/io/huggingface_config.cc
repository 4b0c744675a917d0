// config.json of transformers 4 and 5 to a ModelConfig (huggingface.h).
#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "config/validate.h"
#include "io/huggingface.h"
#include "io/json.h"

namespace wych::io {
namespace {

using config::BalanceScope;
using config::ModelConfig;
using config::QkNorm;

constexpr i64 kMaxSize = 1'000'000'000;
constexpr i64 kMaxLayers = 10'000;

// Typed access to an object's members; collects errors and returns a default in their place.
class Keys {
 public:
  Keys(const Json& root, std::string path, std::vector<Error>& errors)
      : root_(root), path_(std::move(path)), errors_(errors) {}

  // The member, or nullptr if it is absent or null.
  [[nodiscard]] const Json* find(std::string_view key) const {
    const Json* value = root_.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  void fail(std::string_view key, std::string what, std::string hint = "") {
    errors_.push_back(
        {ErrorKind::kData, fmt::format("{}: {}", path_, key), std::move(what), std::move(hint), {}});
  }

  i64 size(std::string_view key, i64 high = kMaxSize) {
    const Json* value = find(key);
    const i64* integer = value != nullptr ? value->get<i64>() : nullptr;
    if (integer == nullptr || *integer < 1 || *integer > high) {
      fail(key, value == nullptr
                    ? "is missing"
                    : fmt::format("found {}, expected an integer in [1, {}]", value->describe(), high));
      return 1;
    }
    return *integer;
  }
  i64 size_or(std::string_view key, i64 absent) { return find(key) == nullptr ? absent : size(key); }

  double real_or(std::string_view key, double absent) {
    const Json* value = find(key);
    double number = absent;
    if (value != nullptr && !value->number(number)) {
      fail(key, fmt::format("found {}, expected a number", value->describe()));
    }
    return number;
  }

  bool boolean_or(std::string_view key, bool absent) {
    const Json* value = find(key);
    const bool* boolean = value != nullptr ? value->get<bool>() : nullptr;
    if (value != nullptr && boolean == nullptr) {
      fail(key, fmt::format("found {}, expected true or false", value->describe()));
    }
    return boolean != nullptr ? *boolean : absent;
  }

  // A value wych implements only one way.
  void require_text(std::string_view key, std::string_view only) {
    const Json* value = find(key);
    if (value != nullptr && (value->get<std::string>() == nullptr || *value->get<std::string>() != only)) {
      fail(key, fmt::format("is {}; only \"{}\" is supported", value->describe(), only));
    }
  }
  void require_false(std::string_view key) {
    if (boolean_or(key, false)) {
      fail(key, "is true; only false is supported");
    }
  }
  void require_real(std::string_view key, double only) {
    const double value = real_or(key, only);
    if (value != only) {
      fail(key, fmt::format("is {}; only {} is supported", value, only));
    }
  }
  void require_absent(std::string_view key) {
    if (find(key) != nullptr) {
      fail(key, "is not supported");
    }
  }

 private:
  const Json& root_;
  std::string path_;
  std::vector<Error>& errors_;
};

// transformers 5: rope_parameters; before: rope_theta beside rope_scaling.
double read_rope_theta(Keys& keys, const std::string& path, std::vector<Error>& errors) {
  double theta = keys.real_or("rope_theta", 10000.0);
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    const Json* object = keys.find(key);
    if (object == nullptr) {
      continue;
    }
    if (object->get<Json::Object>() == nullptr) {
      keys.fail(key, fmt::format("found {}, expected an object", object->describe()));
      continue;
    }
    Keys inner(*object, fmt::format("{}: {}", path, key), errors);
    inner.require_text("rope_type", "default");
    inner.require_text("type", "default");
    inner.require_real("partial_rotary_factor", 1.0);
    theta = inner.real_or("rope_theta", theta);
  }
  keys.require_real("partial_rotary_factor", 1.0);
  return theta;
}

i64 read_experts(Keys& keys) {
  const bool fifth = keys.find("num_local_experts") != nullptr;
  const i64 experts = keys.size(fifth ? "num_local_experts" : "num_experts");
  if (fifth && keys.size_or("num_experts", experts) != experts) {
    keys.fail("num_experts", fmt::format("differs from num_local_experts, {}", experts));
  }
  return experts;
}

void read_shared(Keys& keys, const std::string& path, std::vector<Error>& errors, ModelConfig& model) {
  keys.require_text("hidden_act", "silu");
  keys.require_false("attention_bias");
  keys.require_real("attention_dropout", 0.0);
  keys.require_absent("quantization_config");
  model.vocab_size = keys.size("vocab_size");
  model.d_model = keys.size("hidden_size");
  model.n_layers = keys.size("num_hidden_layers", kMaxLayers);
  model.sequence_length = keys.size("max_position_embeddings");
  model.tie_embeddings = keys.boolean_or("tie_word_embeddings", false);
  model.init_std = keys.real_or("initializer_range", 0.02);
  model.attention.n_heads = keys.size("num_attention_heads");
  model.attention.n_kv_heads = keys.size_or("num_key_value_heads", model.attention.n_heads);
  model.attention.rope_theta = read_rope_theta(keys, path, errors);
  if (keys.find("head_dim") != nullptr) {
    model.attention.head_dim = keys.size("head_dim");
  } else if (model.d_model % model.attention.n_heads == 0) {
    model.attention.head_dim = model.d_model / model.attention.n_heads;
  } else {
    keys.fail("head_dim", fmt::format("is missing, and {} heads do not divide hidden_size {}",
                                      model.attention.n_heads, model.d_model));
  }
  model.moe.experts = read_experts(keys);
  model.moe.top_k = keys.size("num_experts_per_tok");
  model.moe.router.normalize_weights = keys.boolean_or("norm_topk_prob", false);
}

void read_balance_loss(Keys& keys, double absent, ModelConfig& model) {
  config::BalanceLossConfig& loss = model.moe.router.balance_loss;
  const double weight = keys.real_or("router_aux_loss_coef", absent);
  loss.scope = BalanceScope::kHfJoint;
  loss.weight = keys.boolean_or("output_router_logits", false) ? weight : 0.0;
}

void read_olmoe(Keys& keys, ModelConfig& model) {
  model.norm_eps = keys.real_or("rms_norm_eps", 1e-5);
  model.attention.qk_norm = QkNorm::kFull;
  model.attention.clip_qkv = keys.real_or("clip_qkv", 0.0);
  model.moe.expert_hidden = keys.size("intermediate_size");
  read_balance_loss(keys, 0.01, model);
}

void read_qwen3_moe(Keys& keys, ModelConfig& model) {
  keys.require_false("use_sliding_window");
  model.norm_eps = keys.real_or("rms_norm_eps", 1e-6);
  model.attention.qk_norm = QkNorm::kPerHead;
  model.moe.expert_hidden = keys.size("moe_intermediate_size");
  const i64 step = keys.size_or("decoder_sparse_step", 1);
  std::vector<i64> listed;
  if (const Json* layers = keys.find("mlp_only_layers")) {
    const Json::Array* items = layers->get<Json::Array>();
    for (const Json& item : items != nullptr ? *items : Json::Array{}) {
      listed.push_back(item.get<i64>() != nullptr ? *item.get<i64>() : -1);
    }
    if (items == nullptr || std::find(listed.begin(), listed.end(), -1) != listed.end()) {
      keys.fail("mlp_only_layers", "expected a list of layer numbers");
    }
  }
  for (i64 layer = 0; layer < model.n_layers; ++layer) {
    if ((layer + 1) % step != 0 || std::find(listed.begin(), listed.end(), layer) != listed.end()) {
      model.dense_layers.push_back(layer);
    }
  }
  if (!model.dense_layers.empty()) {
    model.dense_hidden = keys.size("intermediate_size");
  }
  read_balance_loss(keys, 0.001, model);
}

// The rules between keys that every config obeys.
void check_rules(ModelConfig& model, const std::string& path, std::vector<Error>& errors) {
  config::Config whole;
  whole.model = model;
  whole.data.batch_sequences = 1;
  config::Origins origins;
  config::resolve(whole, 0, origins);
  model = whole.model;
  for (const config::Problem& problem : config::validate(whole, 0, config::Purpose::kPlan)) {
    errors.push_back(
        {ErrorKind::kData, fmt::format("{}: {}", path, problem.keys.front()), problem.what, "", {}});
  }
}

}  // namespace

Expected<ModelConfig> read_hf_config(const std::string& path) {
  WYCH_TRY(const std::string text, read_file(path, ErrorKind::kData));
  WYCH_TRY(const Json root, parse_json(text, path, ErrorKind::kData));
  const Json* type = root.find("model_type");
  const std::string* name = type != nullptr ? type->get<std::string>() : nullptr;
  const bool olmoe = name != nullptr && *name == "olmoe";
  if (!olmoe && (name == nullptr || *name != "qwen3_moe")) {
    return Error{ErrorKind::kData,
                 path + ": model_type",
                 type == nullptr ? "is missing" : fmt::format("is {}", type->describe()),
                 "supported are \"olmoe\" and \"qwen3_moe\"",
                 {}};
  }
  std::vector<Error> errors;
  Keys keys(root, path, errors);
  ModelConfig model;
  read_shared(keys, path, errors, model);
  if (olmoe) {
    read_olmoe(keys, model);
  } else {
    read_qwen3_moe(keys, model);
  }
  if (errors.empty()) {
    check_rules(model, path, errors);
  }
  if (!errors.empty()) {
    Error first = std::move(errors.front());
    first.more.assign(std::make_move_iterator(errors.begin() + 1), std::make_move_iterator(errors.end()));
    return first;
  }
  return model;
}

}  // namespace wych::io
