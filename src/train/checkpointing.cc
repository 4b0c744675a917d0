#include "train/checkpointing.h"

#include <fmt/format.h>

#include <array>
#include <set>

#include "config/schema.h"
#include "model/update.h"

namespace wych::train {
namespace {

constexpr const char* kPositionName = "data.position";  // i64[3]: epoch, instances consumed, fingerprint

std::vector<i64> dims(const ir::TensorType& type) {
  const std::span<const i64> extents = type.shape.dims();
  return {extents.begin(), extents.end()};
}

io::TensorKind kind_of(const Engine::Tensor& tensor) {
  if (tensor.is_weight) {
    return io::TensorKind::kModel;
  }
  return tensor.path.ends_with(".m") || tensor.path.ends_with(".v") ? io::TensorKind::kOptimizer
                                                                    : io::TensorKind::kState;
}

Expected<void> read_tensor(const io::CheckpointReader& reader, const Engine::Tensor& tensor, Engine& engine) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.type.bytes()));
  WYCH_TRY_VOID(reader.read(tensor.path, tensor.type.dtype, dims(tensor.type), bytes));
  engine.write(tensor.path, bytes);
  return {};
}

// State whose shape is a matter of settings: the error names the setting, not the tensor.
Expected<void> check_state_settings(const io::CheckpointReader& reader,
                                    const std::vector<Engine::Tensor>& tensors) {
  const io::CheckpointReader::Entry* saved = reader.find(model::kOptimizerStatePath);
  for (const Engine::Tensor& tensor : tensors) {
    if (saved != nullptr && tensor.path == model::kOptimizerStatePath && saved->shape != dims(tensor.type)) {
      return Error{.kind = ErrorKind::kUsage,
                   .where = "optimizer.skip_step",
                   .what = fmt::format("enabled and window differ from those of checkpoint {}", reader.dir()),
                   .hint = "resume with the same; the statistics of another window cannot be made up",
                   .more = {}};
    }
    if (tensor.path.ends_with("load_fractions") && reader.find(tensor.path) == nullptr) {
      return Error{
          .kind = ErrorKind::kUsage,
          .where = "model.moe.router.balance_loss.scope",
          .what = fmt::format("\"global\" needs loads that checkpoint {} does not have", reader.dir()),
          .hint = "resume with the scope the run began with",
          .more = {}};
    }
  }
  return {};
}

}  // namespace

Expected<std::string> save_run(Engine& engine, const config::Config& config, const RunProgress& progress) {
  const std::array<i64, 3> position = {progress.position.epoch, progress.position.instance,
                                       static_cast<i64>(progress.data_fingerprint)};
  std::vector<io::NamedTensor> tensors;
  std::vector<std::byte> staged;  // one tensor at a time
  for (const Engine::Tensor& tensor : engine.checkpoint_tensors()) {
    tensors.push_back({kind_of(tensor), tensor.path, tensor.type.dtype, dims(tensor.type),
                       [&engine, &staged, path = tensor.path] {
                         staged = engine.read(path);
                         return std::span<const std::byte>(staged);
                       }});
  }
  tensors.push_back({io::TensorKind::kState, kPositionName, DType::kI64, {3}, [&] {
                       return std::as_bytes(std::span(position));
                     }});
  const io::CheckpointMeta meta{.step = progress.step, .tokens = progress.tokens, .seed = config.run.seed};
  return io::save_checkpoint(config.run.dir, meta, tensors, config::to_toml(config), config.checkpoint.keep);
}

Expected<RunProgress> load_run(Engine& engine, const std::string& checkpoint_dir) {
  WYCH_TRY(const io::CheckpointReader reader, io::CheckpointReader::open(checkpoint_dir));
  std::set<std::string, std::less<>> known = {kPositionName};
  const std::vector<Engine::Tensor> tensors = engine.checkpoint_tensors();
  for (const Engine::Tensor& tensor : tensors) {
    known.insert(tensor.path);
  }
  WYCH_TRY_VOID(reader.refuse_unknown([&](std::string_view name) { return known.contains(name); }));
  WYCH_TRY_VOID(check_state_settings(reader, tensors));
  for (const Engine::Tensor& tensor : tensors) {
    WYCH_TRY_VOID(read_tensor(reader, tensor, engine));
  }
  std::array<i64, 3> position{};
  const std::array<i64, 1> shape = {3};
  WYCH_TRY_VOID(reader.read(kPositionName, DType::kI64, shape, std::as_writable_bytes(std::span(position))));
  return RunProgress{.step = reader.meta().step,
                     .tokens = reader.meta().tokens,
                     .position = {position[0], position[1]},
                     .data_fingerprint = static_cast<u64>(position[2])};
}

Expected<void> receive_weights(Engine& engine,
                               const std::function<Expected<void>(const io::FindDestination&)>& load) {
  std::string path;
  std::vector<std::byte> staged;
  const auto flush = [&] {
    if (!path.empty()) {
      engine.write(path, staged);
    }
  };
  WYCH_TRY_VOID(load([&](const std::string& name, std::span<const i64> shape) {
    flush();
    path = name;
    const ir::TensorType& type = engine.type(name);
    WYCH_CHECK(type.shape == ir::Shape(shape), "{} is {}", name, type.text());
    staged.resize(static_cast<std::size_t>(type.bytes()));
    return io::Destination{type.dtype, staged};
  }));
  flush();
  return {};
}

Expected<void> load_weights(Engine& engine, const std::string& checkpoint_dir) {
  WYCH_TRY(const io::CheckpointReader reader, io::CheckpointReader::open(checkpoint_dir));
  for (const Engine::Tensor& tensor : engine.checkpoint_tensors()) {
    if (tensor.is_weight) {
      WYCH_TRY_VOID(read_tensor(reader, tensor, engine));
    }
  }
  return {};
}

}  // namespace wych::train
