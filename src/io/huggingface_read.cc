// Reading the weights of a Hugging Face folder (huggingface.h): all files are opened and all tensors checked
// before the first is copied, so every fault of a folder is in one report.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "io/error_list.h"
#include "io/huggingface.h"
#include "io/json.h"

namespace wych::io {
namespace {

using config::ModelConfig;

Error data_error(std::string where, std::string what, std::string hint = "") {
  return {ErrorKind::kData, std::move(where), std::move(what), std::move(hint), {}};
}

// The tensors of an index, by file.
Expected<std::map<std::string, std::vector<std::string>>> read_index(const std::string& path) {
  WYCH_TRY(const std::string text, read_file(path, ErrorKind::kData));
  WYCH_TRY(const Json index, parse_json(text, path, ErrorKind::kData));
  const Json* map = index.find("weight_map");
  const Json::Object* entries = map != nullptr ? map->get<Json::Object>() : nullptr;
  if (entries == nullptr) {
    return data_error(path, "has no object \"weight_map\"");
  }
  std::map<std::string, std::vector<std::string>> files;
  std::vector<Error> errors;
  for (const auto& [tensor, value] : *entries) {
    const std::string* name = value.get<std::string>();
    if (name == nullptr || name->empty() || name->find('/') != std::string::npos) {
      errors.push_back(data_error(fmt::format("{}: {}", path, tensor),
                                  fmt::format("found {}, expected a file of this folder", value.describe())));
    } else {
      files[*name].push_back(tensor);
    }
  }
  if (!errors.empty()) {
    return join_errors(std::move(errors));
  }
  return files;
}

// The rotary frequencies of older exports, and a tied head's copy of the embedding.
bool is_derived(std::string_view name, bool tied) {
  return name.ends_with("rotary_emb.inv_freq") || (tied && name == "lm_head.weight");
}

bool is_floating(StoredType type) {
  return type == StoredType::kF64 || type == StoredType::kF32 || type == StoredType::kF16 ||
         type == StoredType::kBF16;
}

}  // namespace

struct HfWeights::Folder {
  std::vector<SafetensorsFile> files;
  std::string name;                // for errors about tensors that are nowhere
  std::set<std::string> reported;  // tensors whose absence has been explained by an error
  std::vector<Error> errors;

  // Opens the one file of a folder, or the shards its index names, as far as it can.
  static Expected<Folder> open(const std::string& dir) {
    Folder folder;
    folder.name = dir;
    const std::string single = dir + "/model.safetensors";
    const std::string index_path = dir + "/model.safetensors.index.json";
    if (!std::filesystem::exists(index_path)) {
      WYCH_TRY(SafetensorsFile file, SafetensorsFile::open(single, ErrorKind::kData));
      folder.files.push_back(std::move(file));
      return folder;
    }
    WYCH_TRY(const auto shards, read_index(index_path));
    if (std::filesystem::exists(single) && !shards.contains("model.safetensors")) {
      folder.errors.push_back(data_error(single, "is there beside model.safetensors.index.json",
                                         "remove the one that is not this model"));
    }
    for (const auto& [name, tensors] : shards) {
      Expected<SafetensorsFile> file = SafetensorsFile::open(dir + "/" + name, ErrorKind::kData);
      for (const std::string& tensor : tensors) {
        if (file && file->find(tensor) == nullptr) {
          folder.errors.push_back(data_error(fmt::format("{}: {}", file->path(), tensor),
                                             "is not there, though the index says so",
                                             "the folder is incomplete; fetch it again"));
        }
        if (!file || file->find(tensor) == nullptr) {
          folder.reported.insert(tensor);
        }
      }
      if (file) {
        folder.files.push_back(*std::move(file));
      } else {
        folder.errors.push_back(std::move(file).error());
      }
    }
    return folder;
  }
};

Expected<HfWeights> HfWeights::open(const std::string& dir, const ModelConfig& model) {
  WYCH_TRY(Folder folder, Folder::open(dir));
  ExpertNaming naming = ExpertNaming::kPerExpert;
  for (const SafetensorsFile& file : folder.files) {
    for (const TensorView& view : file.tensors()) {
      if (view.name.ends_with(".experts.gate_up_proj")) {
        naming = ExpertNaming::kStacked;
      }
    }
  }
  WYCH_TRY_VOID(check_count(folder, model, naming));
  return check(std::move(folder), weight_pieces(model, naming));
}

// A config far beyond the files is refused before its tensors are listed, which could take hours.
Expected<void> HfWeights::check_count(const Folder& folder, const ModelConfig& model, ExpertNaming naming) {
  i64 expert_tensors = 0;  // at least
  for (i64 layer = 0; layer < model.n_layers; ++layer) {
    expert_tensors += model.is_dense_layer(layer) || naming == ExpertNaming::kStacked ? 1 : model.moe.experts;
  }
  i64 found = 0;
  for (const SafetensorsFile& file : folder.files) {
    found += std::ssize(file.tensors());
  }
  constexpr i64 kQuickToList = 1'000'000;
  if (expert_tensors <= std::max(found, kQuickToList)) {
    return {};
  }
  return data_error(folder.name + "/config.json",
                    fmt::format("describes {} layers of {} experts; the files hold {} tensors",
                                model.n_layers, model.moe.experts, found),
                    "is it the config of these weights?");
}

Expected<HfWeights> HfWeights::check(std::vector<SafetensorsFile> files, std::vector<WeightPiece> pieces) {
  Folder folder;
  folder.files = std::move(files);
  folder.name = folder.files.empty() ? "" : folder.files.front().path();
  return check(std::move(folder), std::move(pieces));
}

Expected<HfWeights> HfWeights::check(Folder folder, std::vector<WeightPiece> pieces) {
  HfWeights weights;
  std::set<std::string_view> expected;
  bool tied = true;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    expected.insert(pieces[i].hf_name);
    tied = tied && pieces[i].wych_name != "head.weight";
    weights.first_piece_.emplace(pieces[i].wych_name, i);
  }
  for (std::size_t i = 0; i < folder.files.size(); ++i) {
    for (const TensorView& view : folder.files[i].tensors()) {
      const std::string place = fmt::format("{}: {}", folder.files[i].path(), view.name);
      if (!expected.contains(view.name) && !is_derived(view.name, tied)) {
        folder.errors.push_back(data_error(place, "is not a tensor of this model"));
      }
      const auto [first, is_new] = weights.file_of_.emplace(view.name, i);
      if (!is_new) {
        folder.errors.push_back(
            data_error(place, fmt::format("is in {} as well", folder.files[first->second].path())));
      }
    }
  }
  for (const WeightPiece& piece : pieces) {
    const auto found = weights.file_of_.find(piece.hf_name);
    if (found == weights.file_of_.end()) {
      if (!folder.reported.contains(piece.hf_name)) {
        folder.errors.push_back(data_error(fmt::format("{}: {}", folder.name, piece.hf_name), "is missing"));
      }
      continue;
    }
    const SafetensorsFile& file = folder.files[found->second];
    const TensorView& view = *file.find(piece.hf_name);
    const std::string place = fmt::format("{}: {}", file.path(), piece.hf_name);
    if (view.shape != piece.hf_shape) {
      folder.errors.push_back(
          data_error(place, fmt::format("has shape {}, the config expects {}", shape_text(view.shape),
                                        shape_text(piece.hf_shape))));
    }
    if (!is_floating(view.type)) {
      folder.errors.push_back(data_error(
          place, fmt::format("has dtype {}, expected F32, BF16, F16 or F64", stored_name(view.type))));
    }
  }
  if (!folder.errors.empty()) {
    return join_errors(std::move(folder.errors));
  }
  weights.files_ = std::move(folder.files);
  weights.pieces_ = std::move(pieces);
  return weights;
}

void HfWeights::read(const std::string& wych_name, Destination destination) const {
  const auto first = first_piece_.find(wych_name);
  WYCH_CHECK(first != first_piece_.end(), "the model has no tensor {}", wych_name);
  const i64 elements = shape_elements(pieces_[first->second].wych_shape).value_or(-1);
  WYCH_CHECK(elements * dtype_bytes(destination.dtype) == static_cast<i64>(destination.bytes.size()),
             "memory of {}", wych_name);
  dispatch_float(destination.dtype, [&]<class T>(T) {
    T* out = reinterpret_cast<T*>(destination.bytes.data());
    i64 end = 0;
    for (std::size_t i = first->second; i < pieces_.size() && pieces_[i].wych_name == wych_name; ++i) {
      const WeightPiece& piece = pieces_[i];
      const i64 size = shape_elements(piece.hf_shape).value_or(0);
      files_[file_of_.find(piece.hf_name)->second]
          .read(piece.hf_name, std::span<T>(out + piece.begin, static_cast<std::size_t>(size)))
          .value();
      end = piece.begin + size;
    }
    std::fill(out + end, out + elements, T{0});
  });
}

void HfWeights::read_all(const FindDestination& find) const {
  for (const auto& [name, first] : first_piece_) {
    read(name, find(name, pieces_[first].wych_shape));
  }
}

Expected<void> load_hf_weights(const std::string& dir, const ModelConfig& model,
                               const FindDestination& find) {
  WYCH_TRY(const HfWeights weights, HfWeights::open(dir, model));
  weights.read_all(find);
  return {};
}

}  // namespace wych::io
