// The texts of the presets (presets.h). A family states its common part once; members extend it.
#include "config/presets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "base/nearest.h"

namespace wych::config {
namespace {

constexpr std::string_view kLaptop = R"([model]
vocab_size = 2048
d_model = 128
n_layers = 4
sequence_length = 128
[model.attention]
n_heads = 4
n_kv_heads = 2
head_dim = 32
qk_norm = "per_head"
[model.moe]
experts = 8
top_k = 2
expert_hidden = 160
shared_hidden = 160
[model.moe.router]
normalize_weights = true
z_loss_weight = 1e-3
[data]
batch_sequences = 16
)";

constexpr std::string_view kOlmoe = R"([model]
vocab_size = 50304
d_model = 2048
n_layers = 16
sequence_length = 4096
norm_eps = 1e-5
[model.attention]
n_heads = 16
head_dim = 128
qk_norm = "full"
[model.moe]
experts = 64
top_k = 8
expert_hidden = 1024
[model.moe.router]
z_loss_weight = 1e-3
[data]
batch_sequences = 1024
microbatch_sequences = 4
)";

constexpr std::string_view kLadder = R"([model]
vocab_size = 50304
d_model = 2048
n_layers = 8
sequence_length = 8192
norm_eps = 1e-5
[model.attention]
n_heads = 16
n_kv_heads = 4
head_dim = 128
qk_norm = "full"
[model.moe]
experts = 8
top_k = 4
expert_hidden = 2048
[data]
batch_sequences = 8
microbatch_sequences = 2
)";
constexpr std::string_view kLadder32 = "extends = \"preset:ladder-2048-e8\"\nmodel.moe.experts = 32\n";
constexpr std::string_view kLadder64 = "extends = \"preset:ladder-2048-e8\"\nmodel.moe.experts = 64\n";
constexpr std::string_view kLadder128 = "extends = \"preset:ladder-2048-e8\"\nmodel.moe.experts = 128\n";

// The family of Olmo-core 3's operating points: peri-norm, scaled (sqrt(d_model)) and normed embedding, one
// shared expert, and dense layers as wide as the experts a token visits, top_k * expert + shared.
constexpr std::string_view kTiny = R"([model]
vocab_size = 100278
padded_vocab = 100352
d_model = 2048
n_layers = 16
sequence_length = 8192
norm = "peri"
embed_scale = 45.254833995939045
embed_norm = true
z_loss_weight = 1e-4
first_dense_layers = 1
dense_hidden = 10240
[model.attention]
n_heads = 16
n_kv_heads = 4
head_dim = 128
qk_norm = "per_head"
rope_theta = 5e5
[model.moe]
experts = 64
top_k = 4
expert_hidden = 2048
shared_hidden = 2048
capacity_factor = 1.1875
[model.moe.router]
normalize_weights = true
z_loss_weight = 2e-4
[data]
batch_tokens = 8388608
microbatch_sequences = 8
)";

constexpr std::string_view kSmall = R"(extends = "preset:tiny-64e"
[model]
d_model = 2560
n_layers = 32
embed_scale = 50.59644256269407
dense_hidden = 12800
[model.attention]
n_heads = 24
n_kv_heads = 6
[model.moe]
expert_hidden = 2560
shared_hidden = 2560
[data]
batch_tokens = 25165824
microbatch_sequences = 4
)";

constexpr std::string_view kMedium = R"(extends = "preset:tiny-64e"
[model]
d_model = 3072
n_layers = 39
embed_scale = 55.42562584220407
first_dense_layers = 2
dense_hidden = 15360
[model.attention]
n_heads = 32
n_kv_heads = 8
[model.moe]
expert_hidden = 3072
shared_hidden = 3072
[data]
batch_tokens = 16777216
microbatch_sequences = 4
)";
constexpr std::string_view kMedium96 = R"(extends = "preset:medium-64e"
[model.moe]
experts = 96
[data]
batch_tokens = 25165824
)";
constexpr std::string_view kMedium128 = "extends = \"preset:medium-96e\"\nmodel.moe.experts = 128\n";

constexpr std::string_view kLarge = R"(extends = "preset:tiny-64e"
[model]
d_model = 4096
n_layers = 47
embed_scale = 64
first_dense_layers = 2
dense_hidden = 20480
[model.attention]
n_heads = 40
n_kv_heads = 10
[model.moe]
experts = 128
expert_hidden = 4096
shared_hidden = 4096
[data]
batch_tokens = 33554432
microbatch_sequences = 1
)";

constexpr std::string_view kUltra = R"(extends = "preset:tiny-64e"
[model]
d_model = 6144
n_layers = 63
embed_scale = 78.38367176906169
first_dense_layers = 2
dense_hidden = 40960
[model.attention]
n_heads = 64
n_kv_heads = 32
[model.moe]
experts = 128
expert_hidden = 8192
shared_hidden = 8192
[model.moe.router.balance_loss]
weight = 0.005
[data]
batch_tokens = 67108864
microbatch_sequences = 1
[memory]
recompute = "block"
)";
constexpr std::string_view kUltra256 = "extends = \"preset:ultra-128e\"\nmodel.moe.experts = 256\n";

// Norms of queries and keys over all heads: the reading that gives the published 4.581 B.
constexpr std::string_view kBench = R"(extends = "preset:tiny-64e"
[model]
d_model = 4096
n_layers = 8
norm = "post"
embed_scale = 64
dense_hidden = 20480
[model.attention]
n_heads = 32
n_kv_heads = 8
qk_norm = "full"
[model.moe]
experts = 8
expert_hidden = 4096
shared_hidden = 4096
capacity_factor = 1.25
[model.moe.router]
z_loss_weight = 1e-4
[model.moe.router.balance_loss]
weight = 0.015
[data]
batch_tokens = 4194304
microbatch_sequences = 2
)";
constexpr std::string_view kBench32 = "extends = \"preset:bench-8l-e8\"\nmodel.moe.experts = 32\n";
constexpr std::string_view kBench48 = "extends = \"preset:bench-8l-e8\"\nmodel.moe.experts = 48\n";
constexpr std::string_view kBench64 = "extends = \"preset:bench-8l-e8\"\nmodel.moe.experts = 64\n";
constexpr std::string_view kBench128 = "extends = \"preset:bench-8l-e8\"\nmodel.moe.experts = 128\n";

constexpr std::array<Preset, 19> kPresets = {{
    {"laptop", "4 layers, 8 experts: trains in minutes on two cores", kLaptop},
    {"olmoe-1b-7b", "OLMoE: 1.3 B of 6.9 B parameters active, 64 experts, top-8", kOlmoe},
    {"ladder-2048-e8", "8 layers of d 2048, top-4 of 8 experts, no shared expert", kLadder},
    {"ladder-2048-e32", "the same with 32 experts", kLadder32},
    {"ladder-2048-e64", "the same with 64 experts", kLadder64},
    {"ladder-2048-e128", "the same with 128 experts", kLadder128},
    {"tiny-64e", "1.588 B of 12.91 B parameters active", kTiny},
    {"small-64e", "4.294 B of 40.86 B parameters active", kSmall},
    {"medium-64e", "7.37 B of 70.22 B parameters active", kMedium},
    {"medium-96e", "7.38 B of 103.75 B parameters active", kMedium96},
    {"medium-128e", "7.38 B of 137.27 B parameters active", kMedium128},
    {"large-128e", "15.14 B of 295.99 B parameters active", kLarge},
    {"ultra-128e", "58.36 B of 1.200 T parameters active", kUltra},
    {"ultra-256e", "58.41 B of 2.380 T parameters active", kUltra256},
    {"bench-8l-e8", "8-layer benchmark of d 4096, 8 experts, 4.581 B parameters", kBench},
    {"bench-8l-e32", "the same with 32 experts, 13.04 B parameters", kBench32},
    {"bench-8l-e48", "the same with 48 experts, 18.67 B parameters", kBench48},
    {"bench-8l-e64", "the same with 64 experts, 24.31 B parameters", kBench64},
    {"bench-8l-e128", "the same with 128 experts, 46.86 B parameters", kBench128},
}};

}  // namespace

std::span<const Preset> presets() { return kPresets; }

Expected<const Preset*> find_preset(std::string_view name) {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) {
    if (preset.name == name) {
      return &preset;
    }
    names.emplace_back(preset.name);
  }
  const std::optional<std::string> near = nearest_name(name, names);
  return Error{ErrorKind::kUsage,
               fmt::format("preset:{}", name),
               "unknown preset",
               near ? fmt::format("did you mean preset:{}?", *near)
                    : fmt::format("the presets are {}", fmt::join(names, ", ")),
               {}};
}

}  // namespace wych::config
