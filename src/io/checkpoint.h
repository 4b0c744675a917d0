// Checkpoints: a folder RUN/checkpoints/stepNNNNNN of safetensors files with global tensors by name, the
// config, and index.json, which lists every slice with its place and hash. `latest` names the last complete
// one. Invariant: a checkpoint under its final name is complete and on the disk; a save that was killed
// leaves at most a folder with ".tmp" in its name, which is never read and which the next save removes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/expected.h"
#include "base/types.h"

namespace wych::io {

// Decides the file: model.safetensors, optimizer.safetensors, state.safetensors.
enum class TensorKind { kModel, kOptimizer, kState };

// A whole tensor, row-major. Names are unique over all kinds.
struct NamedTensor {
  TensorKind kind = TensorKind::kModel;
  std::string name;
  DType dtype = DType::kF32;
  std::vector<i64> shape;
  // Called once, when the tensor's turn comes; the span is valid until the next tensor's call. So what is
  // saved need never be in host memory as a whole.
  std::function<std::span<const std::byte>()> content;
};

struct CheckpointMeta {
  i64 step = 0;    // steps done
  i64 tokens = 0;  // tokens seen
  i64 seed = 0;
  u64 config_hash = 0;  // of config.toml; filled by save_checkpoint
  bool operator==(const CheckpointMeta&) const = default;
};

// Writes a checkpoint, makes it `latest`, and then removes the oldest ones of no later step so that `keep`
// remain (0: all). Returns its folder. A checkpoint of the same step is replaced. Errors (kCheckpoint): I/O;
// what was there before is then still valid.
[[nodiscard]] Expected<std::string> save_checkpoint(const std::string& run_dir, const CheckpointMeta& meta,
                                                    std::span<const NamedTensor> tensors,
                                                    std::string_view config_text, i64 keep);

// The complete checkpoints of a run by ascending step, without a look into them. Empty if there are none.
[[nodiscard]] std::vector<std::string> list_checkpoints(const std::string& run_dir);

// The folder `latest` names, or the one of the newest step if there is no such file, or nullopt if the run
// has no checkpoint yet. Errors: `latest` is malformed or names a checkpoint that is not there.
[[nodiscard]] Expected<std::optional<std::string>> latest_checkpoint(const std::string& run_dir);

// The checkpoint folder meant by `dir`: itself, or the latest one of a run folder. Errors: neither.
[[nodiscard]] Expected<std::string> find_checkpoint(const std::string& dir);

// Reads one checkpoint. Every byte that is handed out has been checked against its hash.
class CheckpointReader {
 public:
  struct Slice {  // elements [begin, end) of the row-major tensor
    i64 begin = 0;
    i64 end = 0;
    std::string file;
    i64 offset = 0;  // bytes from the start of the file
    u64 hash = 0;
  };
  struct Entry {
    std::string name;
    DType dtype = DType::kF32;
    std::vector<i64> shape;
    std::vector<Slice> slices;  // in order, covering the tensor exactly
  };

  // Reads the index and maps the files. Errors (kCheckpoint): missing, malformed or damaged index, another
  // format version, a tensor whose slices leave a gap or overlap, a file that is missing or too short.
  static Expected<CheckpointReader> open(const std::string& dir);
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;
  ~CheckpointReader();

  [[nodiscard]] const std::string& dir() const { return dir_; }
  [[nodiscard]] const CheckpointMeta& meta() const { return meta_; }
  // In the order of their names.
  [[nodiscard]] std::span<const Entry> list() const { return entries_; }
  [[nodiscard]] const Entry* find(std::string_view name) const;
  // The content of config.toml. Errors: missing, or not the one that was saved.
  [[nodiscard]] Expected<std::string> config_text() const;

  // Copies a tensor. Errors name tensor and file: not in the checkpoint, another dtype or shape, damaged
  // bytes.
  Expected<void> read(std::string_view name, DType dtype, std::span<const i64> shape,
                      std::span<std::byte> destination) const;
  // Checks the hashes of everything.
  [[nodiscard]] Expected<void> verify() const;
  // Refuses a checkpoint that holds a tensor for which `known` is false: it belongs to another model.
  [[nodiscard]] Expected<void> refuse_unknown(const std::function<bool(std::string_view)>& known) const;

 private:
  struct Files;
  CheckpointReader();
  Expected<void> parse_index();
  [[nodiscard]] Expected<std::span<const std::byte>> checked_bytes(const Entry& entry,
                                                                   const Slice& slice) const;

  std::string dir_;
  CheckpointMeta meta_;
  std::vector<Entry> entries_;
  std::unique_ptr<Files> files_;
};

}  // namespace wych::io
