// Names and places of weights (huggingface.h). Both sides store linear weights as (out, in), so every Hugging
// Face tensor is a contiguous range of a wych tensor: q, k, v one after the other in wqkv; gate rows, then up
// rows in w13; experts one after the other.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/file.h"
#include "io/huggingface.h"
#include "io/json.h"

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

void add_moe(Pieces& pieces, const ModelConfig& model, ExpertNaming naming, const std::string& block,
             const std::string& hf) {
  const i64 d = model.d_model;
  const i64 experts = model.moe.experts;
  const i64 hidden = model.moe.expert_hidden;
  pieces.same(block + "moe.router.weight", hf + "mlp.gate.weight", {experts, d});
  if (naming == ExpertNaming::kStacked) {
    pieces.same(block + "moe.w13", hf + "mlp.experts.gate_up_proj", {experts, 2 * hidden, d});
    pieces.same(block + "moe.w2", hf + "mlp.experts.down_proj", {experts, d, hidden});
    return;
  }
  pieces.begin(block + "moe.w13", {experts, 2 * hidden, d});
  for (i64 expert = 0; expert < experts; ++expert) {
    pieces.add(fmt::format("{}mlp.experts.{}.gate_proj.weight", hf, expert), {hidden, d});
    pieces.add(fmt::format("{}mlp.experts.{}.up_proj.weight", hf, expert), {hidden, d});
  }
  pieces.begin(block + "moe.w2", {experts, d, hidden});
  for (i64 expert = 0; expert < experts; ++expert) {
    pieces.add(fmt::format("{}mlp.experts.{}.down_proj.weight", hf, expert), {d, hidden});
  }
}

// The files of a folder: one, or the shards its index names.
Expected<std::vector<SafetensorsFile>> open_folder(const std::string& dir) {
  std::vector<SafetensorsFile> files;
  const std::string index_path = dir + "/model.safetensors.index.json";
  if (!std::filesystem::exists(index_path)) {
    WYCH_TRY(SafetensorsFile file, SafetensorsFile::open(dir + "/model.safetensors", ErrorKind::kData));
    files.push_back(std::move(file));
    return files;
  }
  WYCH_TRY(const std::string text, read_file(index_path, ErrorKind::kData));
  WYCH_TRY(const Json index, parse_json(text, index_path, ErrorKind::kData));
  const Json* map = index.find("weight_map");
  const Json::Object* entries = map != nullptr ? map->get<Json::Object>() : nullptr;
  if (entries == nullptr) {
    return Error{ErrorKind::kData, index_path, "has no object \"weight_map\"", "", {}};
  }
  std::map<std::string, std::size_t> opened;
  for (const auto& [tensor, value] : *entries) {
    const std::string* name = value.get<std::string>();
    if (name == nullptr || name->empty() || name->find('/') != std::string::npos) {
      return Error{ErrorKind::kData,
                   index_path + ": " + tensor,
                   "found " + value.describe() + ", expected a file of this folder",
                   "",
                   {}};
    }
    if (!opened.contains(*name)) {
      WYCH_TRY(SafetensorsFile file, SafetensorsFile::open(dir + "/" + *name, ErrorKind::kData));
      opened.emplace(*name, files.size());
      files.push_back(std::move(file));
    }
    const SafetensorsFile& shard = files[opened.at(*name)];
    if (shard.find(tensor) == nullptr) {
      return Error{ErrorKind::kData,
                   shard.path() + ": " + tensor,
                   "is not there, though the index says so",
                   "the folder is incomplete; fetch it again",
                   {}};
    }
  }
  return files;
}

template <class T>
Expected<void> copy_piece(const SafetensorsFile& file, const WeightPiece& piece, std::span<std::byte> bytes) {
  const i64 elements = shape_elements(piece.hf_shape).value_or(0);
  T* first = reinterpret_cast<T*>(bytes.data()) + piece.begin;
  return file.read(piece.hf_name, std::span<T>(first, static_cast<std::size_t>(elements)));
}

// Copies the pieces that are there with the right shape; the others become errors.
void copy_all(const std::map<std::string, const SafetensorsFile*, std::less<>>& where,
              std::span<const WeightPiece> pieces, const std::string& folder, const FindDestination& find,
              std::vector<Error>& errors) {
  std::map<std::string, Destination> destinations;
  for (const WeightPiece& piece : pieces) {
    const auto [entry, is_new] = destinations.try_emplace(piece.wych_name);
    Destination& destination = entry->second;
    if (is_new) {
      destination = find(piece.wych_name, piece.wych_shape);
      const i64 bytes = shape_elements(piece.wych_shape).value_or(-1) * dtype_bytes(destination.dtype);
      WYCH_CHECK(bytes == static_cast<i64>(destination.bytes.size()), "memory of {}", piece.wych_name);
      std::fill(destination.bytes.begin(), destination.bytes.end(), std::byte{0});
    }
    const auto found = where.find(piece.hf_name);
    if (found == where.end()) {
      errors.push_back(
          {ErrorKind::kData, fmt::format("{}: {}", folder, piece.hf_name), "is missing", "", {}});
      continue;
    }
    const TensorView* view = found->second->find(piece.hf_name);
    if (view->shape != piece.hf_shape) {
      errors.push_back({ErrorKind::kData,
                        fmt::format("{}: {}", found->second->path(), piece.hf_name),
                        fmt::format("has shape {}, the config expects {}", shape_text(view->shape),
                                    shape_text(piece.hf_shape)),
                        "",
                        {}});
      continue;
    }
    Expected<void> copied = dispatch_float(destination.dtype, [&](auto zero) {
      return copy_piece<decltype(zero)>(*found->second, piece, destination.bytes);
    });
    if (!copied) {
      errors.push_back(std::move(copied).error());
    }
  }
}

}  // namespace

std::vector<WeightPiece> weight_pieces(const ModelConfig& model, ExpertNaming naming) {
  WYCH_CHECK(model.norm == config::NormPlacement::kPre && !model.embed_norm && model.moe.shared_hidden == 0,
             "no supported Hugging Face model has this shape");
  const i64 d = model.d_model;
  Pieces pieces;
  pieces.begin("embed.weight", {model.padded_vocab_size(), d});
  pieces.add("model.embed_tokens.weight", {model.vocab_size, d});
  for (i64 layer = 0; layer < model.n_layers; ++layer) {
    const std::string block = fmt::format("blocks.{}.", layer);
    const std::string hf = fmt::format("model.layers.{}.", layer);
    pieces.same(block + "attention_pre_norm", hf + "input_layernorm.weight", {d});
    add_attention(pieces, model, block, hf);
    pieces.same(block + "ffn_pre_norm", hf + "post_attention_layernorm.weight", {d});
    if (model.is_dense_layer(layer)) {
      add_dense(pieces, model, block, hf);
    } else {
      add_moe(pieces, model, naming, block, hf);
    }
  }
  pieces.same("final_norm.weight", "model.norm.weight", {d});
  if (!model.tie_embeddings) {
    pieces.begin("head.weight", {model.padded_vocab_size(), d});
    pieces.add("lm_head.weight", {model.vocab_size, d});
  }
  return std::move(pieces.out);
}

Expected<void> load_pieces(std::span<const SafetensorsFile> files, std::span<const WeightPiece> pieces,
                           const FindDestination& find) {
  std::vector<Error> errors;
  std::set<std::string_view> expected;
  bool tied = true;
  for (const WeightPiece& piece : pieces) {
    expected.insert(piece.hf_name);
    tied = tied && piece.wych_name != "head.weight";
  }
  std::map<std::string, const SafetensorsFile*, std::less<>> where;
  for (const SafetensorsFile& file : files) {
    for (const TensorView& view : file.tensors()) {
      const std::string place = fmt::format("{}: {}", file.path(), view.name);
      // Older exports hold the rotary frequencies, and a tied head's copy of the embedding: both are derived.
      const bool derived =
          view.name.ends_with("rotary_emb.inv_freq") || (tied && view.name == "lm_head.weight");
      if (!expected.contains(view.name) && !derived) {
        errors.push_back({ErrorKind::kData, place, "is not a tensor of this model", "", {}});
      }
      if (!where.emplace(view.name, &file).second) {
        errors.push_back({ErrorKind::kData, place, "is in another file as well", "", {}});
      }
    }
  }
  const std::string folder =
      files.empty() ? "" : std::filesystem::path(files.front().path()).parent_path().string();
  copy_all(where, pieces, folder, find, errors);
  if (errors.empty()) {
    return {};
  }
  Error first = std::move(errors.front());
  first.more.assign(std::make_move_iterator(errors.begin() + 1), std::make_move_iterator(errors.end()));
  return first;
}

Expected<void> load_hf_weights(const std::string& dir, const ModelConfig& model,
                               const FindDestination& find) {
  WYCH_TRY(const std::vector<SafetensorsFile> files, open_folder(dir));
  ExpertNaming naming = ExpertNaming::kPerExpert;
  for (const SafetensorsFile& file : files) {
    for (const TensorView& view : file.tensors()) {
      if (view.name.ends_with(".experts.gate_up_proj")) {
        naming = ExpertNaming::kStacked;
      }
    }
  }
  return load_pieces(files, weight_pieces(model, naming), find);
}

}  // namespace wych::io
