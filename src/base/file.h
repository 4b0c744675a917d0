// Files with errors that name the path, the operation and what to do; whole reads, complete writes, atomic
// replacement, read-only mappings. Durability rule: what must survive a crash is written beside its final
// name, synced, renamed, and its folder synced.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/expected.h"
#include "base/types.h"

namespace wych {

// The Error of a failed system call on `path`: "cannot <verb>: <text of error_number>", with a hint for the
// common cases.
[[nodiscard]] Error file_error(ErrorKind kind, const std::string& path, std::string_view verb,
                               int error_number);

// Owns a file descriptor; move-only; closes it. -1 is none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  [[nodiscard]] int get() const { return value_; }
  // Gives up ownership.
  int release();

 private:
  int value_ = -1;
};

// Writes all of `bytes`, going on after short writes and interruptions. `path` is for the error only.
Expected<void> write_all(int descriptor, std::span<const std::byte> bytes, const std::string& path,
                         ErrorKind kind);

// The whole content; also of files without a size (pipes, /proc).
Expected<std::string> read_file(const std::string& path, ErrorKind kind);

// Replaces or creates `path` so that a reader, or a crash at any moment, sees the old content or the new one.
// The temporary file is `path` + ".tmp" and is removed on failure. One writer per path at a time.
Expected<void> write_file_atomic(const std::string& path, std::string_view content, ErrorKind kind);

// Makes a creation or renaming of an entry of `directory` durable.
Expected<void> sync_directory(const std::string& directory, ErrorKind kind);

// A file being written from front to back, unbuffered: give it large pieces or whole lines. Move-only.
// close() reports what the destructor must swallow; call it before relying on the content.
class FileWriter {
 public:
  FileWriter() = default;
  // Creates the file, or empties it.
  static Expected<FileWriter> create(const std::string& path, ErrorKind kind);
  // Creates the file, or goes on at its end.
  static Expected<FileWriter> append(const std::string& path, ErrorKind kind);

  [[nodiscard]] bool is_open() const { return descriptor_.get() >= 0; }
  Expected<void> write(std::span<const std::byte> bytes);
  Expected<void> write(std::string_view text);
  // Blocks until the content is on the disk.
  Expected<void> sync();
  Expected<void> close();

 private:
  static Expected<FileWriter> open(const std::string& path, int flags, ErrorKind kind);
  Descriptor descriptor_;
  std::string path_;
  ErrorKind kind_ = ErrorKind::kInternal;
};

// A read-only mapping of a regular file; move-only. Another process that shortens the file meanwhile kills
// this one (SIGBUS): map only files that are complete.
class MappedFile {
 public:
  MappedFile() = default;
  static Expected<MappedFile> open(const std::string& path, ErrorKind kind);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Page-aligned; valid while this object lives.
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace wych
