// config.json of transformers 4 and 5 to a ModelConfig (huggingface.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/file.h"
#include "config/schema.h"
#include "config/validate.h"
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

  double real(std::string_view key) {
    if (find(key) == nullptr) {
      fail(key, "is missing");
    }
    return real_or(key, 1.0);
  }
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

  // nullptr unless it is a string.
  const std::string* text(std::string_view key) {
    const Json* value = find(key);
    if (value != nullptr && value->get<std::string>() == nullptr) {
      fail(key, fmt::format("found {}, expected a string", value->describe()));
    }
    return value != nullptr ? value->get<std::string>() : nullptr;
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

  // The keys of a member that is an object; nothing if it is absent or something else.
  std::optional<Keys> object(std::string_view key) {
    const Json* value = find(key);
    if (value != nullptr && value->get<Json::Object>() == nullptr) {
      fail(key, fmt::format("found {}, expected an object", value->describe()));
      return std::nullopt;
    }
    return value != nullptr ? std::optional(Keys(*value, fmt::format("{}: {}", path_, key), errors_))
                            : std::nullopt;
  }

 private:
  const Json& root_;
  std::string path_;
  std::vector<Error>& errors_;
};

// Rotary positions: of all layers alike, but that layers with a window never have YaRN.
struct Rope {
  double theta = 0.0;
  YarnConfig yarn;
  bool operator==(const Rope&) const = default;
};

// attention_factor as the library derives it; 0 where wych derives the same.
double read_attention_factor(Keys& keys, double factor) {
  const double mscale = keys.real_or("mscale", 0.0);
  const double all_dim = keys.real_or("mscale_all_dim", 0.0);
  const bool derived = mscale != 0.0 && all_dim != 0.0;
  const auto scale = [factor](double slope) { return 0.1 * slope * std::log(factor) + 1.0; };
  const double attention_factor =
      keys.real_or("attention_factor", derived ? scale(mscale) / scale(all_dim) : 0.0);
  if (keys.find("attention_factor") != nullptr && attention_factor <= 0.0) {
    keys.fail("attention_factor", fmt::format("is {}, expected above 0", attention_factor));
  }
  return attention_factor;
}

// One set of rotary parameters; `theta` is the one beside it, if any.
Rope read_rope_object(Keys& keys, std::optional<double> theta, i64 positions) {
  Rope rope;
  rope.theta = theta.value_or(0.0);
  if (keys.find("rope_theta") != nullptr || !theta) {
    rope.theta = keys.real("rope_theta");
  }
  if (theta && rope.theta != *theta) {
    keys.fail("rope_theta", fmt::format("is {}, but {} beside it", rope.theta, *theta));
  }
  keys.require_real("partial_rotary_factor", 1.0);
  // Folders of before transformers 4.45 say "type".
  const std::string_view key = keys.find("rope_type") != nullptr ? "rope_type" : "type";
  const std::string* type = keys.text(key);
  if (type != nullptr && *type != "yarn" && *type != "default") {
    keys.fail(key, fmt::format("is \"{}\"; supported are \"default\" and \"yarn\"", *type));
  }
  if (type == nullptr || *type != "yarn") {
    return rope;
  }
  if (!keys.boolean_or("truncate", true)) {
    keys.fail("truncate", "is false; only true is supported");
  }
  YarnConfig& yarn = rope.yarn;
  yarn.factor = keys.real("factor");
  yarn.original_length = keys.size("original_max_position_embeddings");
  yarn.beta_fast = keys.real_or("beta_fast", yarn.beta_fast);
  yarn.beta_slow = keys.real_or("beta_slow", yarn.beta_slow);
  yarn.attention_factor = read_attention_factor(keys, yarn.factor);
  // Transformers 4 takes the quotient for the factor, transformers 5 the factor.
  const double quotient = static_cast<double>(positions) / static_cast<double>(yarn.original_length);
  if (yarn.factor <= 1.0) {
    keys.fail("factor", fmt::format("is {}, expected above 1", yarn.factor));
  } else if (quotient != yarn.factor) {
    keys.fail("factor", fmt::format("is {}, but max_position_embeddings / original_max_position_embeddings "
                                    "is {}: which of them counts differs between releases of transformers",
                                    yarn.factor, quotient));
  }
  return rope;
}

// transformers 5: rope_parameters, for Olmo 3 an object per kind of layer; before: rope_theta beside
// rope_scaling, which Olmo 3 applies to its full-attention layers. A folder may say both, alike.
Rope read_rope(Keys& keys, i64 positions) {
  keys.require_real("partial_rotary_factor", 1.0);
  std::optional<double> theta;
  if (keys.find("rope_theta") != nullptr) {
    theta = keys.real("rope_theta");
  }
  std::optional<Rope> rope;
  const auto settle = [&](std::string_view key, const Rope& found) {
    if (rope && *rope != found) {
      keys.fail(key, "differs from what rope_parameters says");
    }
    rope = rope.value_or(found);
  };
  if (std::optional<Keys> parameters = keys.object("rope_parameters")) {
    std::optional<Keys> full = parameters->object("full_attention");
    std::optional<Keys> sliding = parameters->object("sliding_attention");
    settle("rope_parameters", read_rope_object(full      ? *full
                                               : sliding ? *sliding
                                                         : *parameters,
                                               theta, positions));
    if (full && sliding) {
      const Rope other = read_rope_object(*sliding, theta, positions);
      if (other.yarn.enabled() || other.theta != rope->theta) {
        parameters->fail("sliding_attention", "is not default with full_attention's rope_theta");
      }
    }
  }
  if (std::optional<Keys> scaling = keys.object("rope_scaling")) {
    settle("rope_scaling", read_rope_object(*scaling, theta, positions));
  }
  if (!rope) {
    rope = Rope{.theta = keys.real("rope_theta"), .yarn = {}};
  }
  return *rope;
}

i64 read_experts(Keys& keys) {
  const bool local = keys.find("num_local_experts") != nullptr;
  const i64 experts = keys.size(local ? "num_local_experts" : "num_experts");
  if (local && keys.size_or("num_experts", experts) != experts) {
    keys.fail("num_experts", fmt::format("differs from num_local_experts, {}", experts));
  }
  return experts;
}

void read_shared(Keys& keys, ModelConfig& model) {
  keys.require_text("hidden_act", "silu");
  keys.require_false("attention_bias");
  keys.require_false("mlp_bias");
  keys.require_real("attention_dropout", 0.0);
  keys.require_absent("quantization_config");
  model.vocab_size = keys.size("vocab_size");
  model.d_model = keys.size("hidden_size");
  model.n_layers = keys.size("num_hidden_layers", kMaxLayers);
  model.sequence_length = keys.size("max_position_embeddings");
  model.norm_eps = keys.real("rms_norm_eps");
  model.tie_embeddings = keys.boolean_or("tie_word_embeddings", false);
  model.init_std = keys.real_or("initializer_range", 0.02);
  model.attention.n_heads = keys.size("num_attention_heads");
  const Rope rope = read_rope(keys, model.sequence_length);
  model.attention.rope_theta = rope.theta;
  model.attention.yarn = rope.yarn;
  if (keys.find("head_dim") != nullptr) {
    model.attention.head_dim = keys.size("head_dim");
  } else if (model.d_model % model.attention.n_heads == 0) {
    model.attention.head_dim = model.d_model / model.attention.n_heads;
  } else {
    keys.fail("head_dim", fmt::format("is missing, and {} heads do not divide hidden_size {}",
                                      model.attention.n_heads, model.d_model));
  }
}

void read_experts_of(Keys& keys, ModelConfig& model, std::string_view hidden, double balance_weight) {
  model.moe.experts = read_experts(keys);
  model.moe.top_k = keys.size("num_experts_per_tok");
  model.moe.expert_hidden = keys.size(hidden);
  config::BalanceLossConfig& loss = model.moe.router.balance_loss;
  const double weight = keys.real_or("router_aux_loss_coef", balance_weight);
  loss.scope = BalanceScope::kHfJoint;
  loss.weight = keys.boolean_or("output_router_logits", false) ? weight : 0.0;
}

// The Olmo classes: norms of queries and keys over all heads; as many key heads as query heads unless said.
void read_olmo(Keys& keys, ModelConfig& model) {
  model.attention.qk_norm = QkNorm::kFull;
  model.attention.n_kv_heads = keys.size_or("num_key_value_heads", model.attention.n_heads);
}

void read_olmo_experts(Keys& keys, ModelConfig& model) {
  read_olmo(keys, model);
  keys.require_absent("sliding_window");
  model.moe.router.normalize_weights = keys.boolean_or("norm_topk_prob", false);
  read_experts_of(keys, model, "intermediate_size", 0.01);
}

void read_olmo_dense(Keys& keys, ModelConfig& model) {
  read_olmo(keys, model);
  model.norm = NormPlacement::kPost;
  model.dense_hidden = keys.size("intermediate_size");
}

// Sets the windows of the layers in their shortest form.
void set_windows(ModelConfig& model, const std::vector<i64>& windows) {
  const std::size_t layers = windows.size();
  std::size_t period = 1;
  while (!std::equal(windows.begin() + static_cast<std::ptrdiff_t>(period), windows.end(), windows.begin())) {
    ++period;
  }
  if (period == 1 && layers > 0) {
    model.attention.window = windows.front();
  } else {
    model.attention.window_pattern.assign(windows.begin(),
                                          windows.begin() + static_cast<std::ptrdiff_t>(period));
  }
}

// sliding_window counts the positions a query sees, itself included, as wych's window does; kernels that take
// the number of positions to the left take one less.
void read_layer_types(Keys& keys, ModelConfig& model) {
  const Json* types = keys.find("layer_types");
  const Json::Array* items = types != nullptr ? types->get<Json::Array>() : nullptr;
  if (items == nullptr || static_cast<i64>(items->size()) != model.n_layers) {
    keys.fail("layer_types", types == nullptr
                                 ? "is missing"
                                 : fmt::format("expected a list of {} kinds of layers", model.n_layers));
    return;
  }
  std::vector<i64> windows;
  for (const Json& item : *items) {
    const std::string* type = item.get<std::string>();
    if (type == nullptr || (*type != "sliding_attention" && *type != "full_attention")) {
      keys.fail("layer_types", fmt::format("holds {}; supported are \"sliding_attention\" and "
                                           "\"full_attention\"",
                                           item.describe()));
      return;
    }
    windows.push_back(*type == "sliding_attention" ? 1 : 0);
  }
  if (std::find(windows.begin(), windows.end(), 1) != windows.end()) {
    const i64 window = keys.size("sliding_window");
    std::replace(windows.begin(), windows.end(), i64{1}, window);
  }
  set_windows(model, windows);
}

void read_mixtral(Keys& keys, ModelConfig& model) {
  keys.require_real("router_jitter_noise", 0.0);
  model.attention.n_kv_heads = keys.size("num_key_value_heads");
  model.attention.window = keys.size_or("sliding_window", 0);
  model.moe.router.normalize_weights = true;
  read_experts_of(keys, model, "intermediate_size", 0.001);
}

void read_qwen3_moe(Keys& keys, ModelConfig& model) {
  keys.require_false("use_sliding_window");
  model.attention.qk_norm = QkNorm::kPerHead;
  model.attention.n_kv_heads = keys.size("num_key_value_heads");
  model.moe.router.normalize_weights = keys.boolean_or("norm_topk_prob", false);
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
  read_experts_of(keys, model, "moe_intermediate_size", 0.001);
}

void read_class(HfModel type, Keys& keys, ModelConfig& model) {
  switch (type) {
    case HfModel::kOlmoe:
      keys.require_absent("head_dim");  // the class sizes its norms by hidden_size
      model.attention.clip_qkv = keys.real_or("clip_qkv", 0.0);
      return read_olmo_experts(keys, model);
    case HfModel::kFlexOlmo:
      model.norm = NormPlacement::kPost;
      return read_olmo_experts(keys, model);
    case HfModel::kOlmo2:
      keys.require_absent("sliding_window");
      return read_olmo_dense(keys, model);
    case HfModel::kOlmo3:
      read_olmo_dense(keys, model);
      return read_layer_types(keys, model);
    case HfModel::kMixtral:
      return read_mixtral(keys, model);
    case HfModel::kQwen3Moe:
      return read_qwen3_moe(keys, model);
  }
}

// The ranges and the rules between keys that every config obeys.
void check_rules(ModelConfig& model, const std::string& path, std::vector<Error>& errors) {
  config::Config whole;
  whole.model = model;
  whole.data.batch_sequences = 1;
  config::Origins origins;
  config::resolve(whole, 0, origins);
  model = whole.model;
  for (const config::Field& field : config::fields(whole)) {
    const auto* real = std::get_if<double*>(&field.slot);
    if (field.key.starts_with("model.") && real != nullptr && !field.range.contains(**real)) {
      errors.push_back({ErrorKind::kData,
                        fmt::format("{}: {}", path, field.key),
                        fmt::format("is {}, expected {}", **real, field.range.text()),
                        "",
                        {}});
    }
  }
  for (const config::Problem& problem : config::validate(whole, 0, config::Purpose::kPlan)) {
    errors.push_back(
        {ErrorKind::kData, fmt::format("{}: {}", path, problem.keys.front()), problem.what, "", {}});
  }
}

Expected<HfModel> read_model_type(const Json& root, const std::string& path) {
  const Json* type = root.find("model_type");
  const std::string* name = type != nullptr ? type->get<std::string>() : nullptr;
  std::string supported;
  for (const HfModel model : kHfModels) {
    if (name != nullptr && *name == hf_model_type(model)) {
      return model;
    }
    supported += fmt::format("{}\"{}\"", supported.empty() ? "" : ", ", hf_model_type(model));
  }
  return Error{ErrorKind::kData,
               path + ": model_type",
               type == nullptr ? "is missing" : fmt::format("is {}", type->describe()),
               "supported are " + supported,
               {}};
}

// The JSON text of an id or a list of ids.
std::string token_ids(Keys& keys, std::string_view key) {
  const Json* value = keys.find(key);
  if (value == nullptr) {
    return "null";
  }
  std::vector<i64> ids;
  const Json::Array* list = value->get<Json::Array>();
  for (const Json& item : list != nullptr ? *list : Json::Array{*value}) {
    const i64* id = item.get<i64>();
    if (id == nullptr) {
      keys.fail(key, fmt::format("found {}, expected a token id or a list of them", value->describe()));
      return "null";
    }
    ids.push_back(*id);
  }
  return list != nullptr ? json_list(ids) : fmt::format("{}", ids.front());
}

}  // namespace

Expected<ModelConfig> read_hf_config(const std::string& path) {
  WYCH_TRY(const std::string text, read_file(path, ErrorKind::kData));
  WYCH_TRY(const Json root, parse_json(text, path, ErrorKind::kData));
  WYCH_TRY(const HfModel type, read_model_type(root, path));
  std::vector<Error> errors;
  Keys keys(root, path, errors);
  ModelConfig model;
  read_shared(keys, model);
  read_class(type, keys, model);
  if (errors.empty()) {
    check_rules(model, path, errors);
  }
  if (!errors.empty()) {
    return join_errors(std::move(errors));
  }
  return model;
}

Expected<HfTokenIds> read_hf_token_ids(const std::string& path) {
  WYCH_TRY(const std::string text, read_file(path, ErrorKind::kData));
  WYCH_TRY(const Json root, parse_json(text, path, ErrorKind::kData));
  std::vector<Error> errors;
  Keys keys(root, path, errors);
  HfTokenIds ids{token_ids(keys, "bos_token_id"), token_ids(keys, "eos_token_id"),
                 token_ids(keys, "pad_token_id")};
  if (!errors.empty()) {
    return join_errors(std::move(errors));
  }
  return ids;
}

}  // namespace wych::io
