// safetensors files: u64 little-endian header length, a JSON header (name -> dtype, shape, data_offsets),
// then the tensors' bytes without holes. The reader maps the file and trusts nothing in it; the writer
// streams. Every error names the file and, where there is one, the tensor.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/expected.h"
#include "base/file.h"
#include "base/types.h"

namespace wych::io {

// Element types a file may hold. Only some can be read as numbers (SafetensorsFile::read).
enum class StoredType {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool
};

[[nodiscard]] i64 stored_bytes(StoredType type);
[[nodiscard]] std::string_view stored_name(StoredType type);  // as in the file: "F32", "BF16", ...
[[nodiscard]] StoredType stored_type(DType dtype);

// "[2, 3]", for messages.
[[nodiscard]] std::string shape_text(std::span<const i64> shape);

// The number of elements of a shape, or nullopt if an extent is negative or the product exceeds i64.
[[nodiscard]] std::optional<i64> shape_elements(std::span<const i64> shape);

// A tensor of a mapped file; valid while its SafetensorsFile lives. Bytes may be unaligned.
struct TensorView {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<i64> shape;
  i64 num_elements = 0;
  std::span<const std::byte> bytes;
};

class SafetensorsFile {
 public:
  // Errors (`kind`): unreadable, shorter than its header says, malformed header, unknown dtype, offsets that
  // are out of range, overlap, leave a hole or disagree with shape and dtype, a name twice, bytes at the end.
  static Expected<SafetensorsFile> open(const std::string& path, ErrorKind kind);

  [[nodiscard]] const std::string& path() const { return path_; }
  // In the order of their names.
  [[nodiscard]] std::span<const TensorView> tensors() const { return tensors_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // nullptr if there is none of that name.
  [[nodiscard]] const TensorView* find(std::string_view name) const;

  // Copies a tensor, converted to T: float and double from F64, F32, F16, BF16; i32 and i64 from I64, I32,
  // U8. Errors: no such tensor, another number of elements than `out` has, a type that does not convert, an
  // integer beyond i32.
  template <class T>
  Expected<void> read(std::string_view name, std::span<T> out) const;
  template <class T>
  Expected<std::vector<T>> read(std::string_view name) const;

 private:
  [[nodiscard]] Error error(std::string_view name, std::string what, std::string hint = "") const;
  // The same of a file that cannot be trusted.
  [[nodiscard]] Error damage(std::string_view name, std::string what) const;
  Expected<void> parse();
  // The tensors must cover `data` one after the other.
  [[nodiscard]] Expected<void> check_layout(std::span<const std::byte> data) const;

  std::string path_;
  ErrorKind kind_ = ErrorKind::kInternal;
  MappedFile file_;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
};

// What a tensor to be written is; its bytes follow by SafetensorsWriter::write.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<i64> shape;
};

// Writes a file from front to back: the header is known from the specs, then all tensors' bytes in their
// order, in pieces of any size. Holds no tensor data.
class SafetensorsWriter {
 public:
  // Creates the file and writes its header. CHECKs that names are unique.
  static Expected<SafetensorsWriter> create(const std::string& path, std::span<const TensorSpec> specs,
                                            const std::map<std::string, std::string>& metadata,
                                            ErrorKind kind);

  // Where the bytes of specs[index] begin in the file.
  [[nodiscard]] i64 offset(std::size_t index) const { return offsets_[index]; }
  Expected<void> write(std::span<const std::byte> bytes);
  // Syncs and closes. CHECKs that exactly the announced bytes were written.
  Expected<void> finish();

 private:
  FileWriter file_;
  std::vector<i64> offsets_;
  i64 position_ = 0;
  i64 end_ = 0;
};

}  // namespace wych::io
