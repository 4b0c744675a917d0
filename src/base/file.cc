// POSIX calls behind file.h. Every one that can be interrupted is repeated.
#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

namespace wych {
namespace {

constexpr mode_t kMode = 0644;

std::string_view hint_for(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return "check the path";
    case EACCES:
    case EPERM:
      return "check the permissions of the file and its folders";
    case EISDIR:
      return "give a file, not a folder";
    case ENOSPC:
    case EDQUOT:
      return "free some space on that file system or write elsewhere";
    case EROFS:
      return "that file system is read-only; write elsewhere";
    case EFBIG:
      return "raise the limit on file sizes (ulimit -f)";
    case EMFILE:
      return "raise the limit on open files (ulimit -n)";
    default:
      return "";
  }
}

// open(2) that goes on after interruptions; descriptors are not inherited by child processes.
Descriptor open_descriptor(const std::string& path, int flags) {
  int value = -1;
  do {
    value = ::open(path.c_str(), flags | O_CLOEXEC, kMode);
  } while (value < 0 && errno == EINTR);
  return Descriptor(value);
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) {
    return ".";
  }
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Writes, syncs and closes `temporary`, then renames it to `path`.
Expected<void> write_and_rename(const std::string& temporary, const std::string& path,
                                std::string_view content, ErrorKind kind) {
  WYCH_TRY(FileWriter writer, FileWriter::create(temporary, kind));
  WYCH_TRY_VOID(writer.write(content));
  WYCH_TRY_VOID(writer.sync());
  WYCH_TRY_VOID(writer.close());
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    return file_error(kind, path, "replace", errno);
  }
  return {};
}

}  // namespace

Error file_error(ErrorKind kind, const std::string& path, std::string_view verb, int error_number) {
  return {.kind = kind,
          .where = path,
          .what = fmt::format("cannot {}: {}", verb, std::generic_category().message(error_number)),
          .hint = std::string(hint_for(error_number)),
          .more = {}};
}

Descriptor::Descriptor(Descriptor&& other) noexcept : value_(other.release()) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    const Descriptor old(std::exchange(value_, other.release()));
  }
  return *this;
}

Descriptor::~Descriptor() {
  if (value_ >= 0) {
    ::close(value_);
  }
}

int Descriptor::release() { return std::exchange(value_, -1); }

Expected<void> write_all(int descriptor, std::span<const std::byte> bytes, const std::string& path,
                         ErrorKind kind) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      return file_error(kind, path, "write", errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Expected<std::string> read_file(const std::string& path, ErrorKind kind) {
  const Descriptor file = open_descriptor(path, O_RDONLY);
  if (file.get() < 0) {
    return file_error(kind, path, "open", errno);
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) {
    return file_error(kind, path, "open", errno);
  }
  std::string content;
  std::size_t size = 0;
  // One byte more than the stated size, so that the usual file ends without growing the buffer.
  std::size_t room = static_cast<std::size_t>(status.st_size) + 1;
  while (true) {
    content.resize(size + room);
    const ssize_t got = ::read(file.get(), content.data() + size, room);
    if (got < 0 && errno != EINTR) {
      return file_error(kind, path, "read", errno);
    }
    if (got == 0) {
      content.resize(size);
      return content;
    }
    size += got > 0 ? static_cast<std::size_t>(got) : 0;
    room = std::max(content.size() - size, std::size_t{1} << 16U);
  }
}

Expected<void> write_file_atomic(const std::string& path, std::string_view content, ErrorKind kind) {
  const std::string temporary = path + ".tmp";
  if (Expected<void> written = write_and_rename(temporary, path, content, kind); !written) {
    ::unlink(temporary.c_str());
    return written;
  }
  return sync_directory(parent_of(path), kind);
}

Expected<void> sync_directory(const std::string& directory, ErrorKind kind) {
  const Descriptor folder = open_descriptor(directory, O_RDONLY | O_DIRECTORY);
  if (folder.get() < 0) {
    return file_error(kind, directory, "open", errno);
  }
  // EINVAL: a file system that does not sync folders, so there is nothing to wait for.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) {
    return file_error(kind, directory, "sync", errno);
  }
  return {};
}

Expected<FileWriter> FileWriter::open(const std::string& path, int flags, ErrorKind kind) {
  FileWriter writer;
  writer.descriptor_ = open_descriptor(path, O_WRONLY | O_CREAT | flags);
  if (writer.descriptor_.get() < 0) {
    return file_error(kind, path, "create", errno);
  }
  writer.path_ = path;
  writer.kind_ = kind;
  return writer;
}

Expected<FileWriter> FileWriter::create(const std::string& path, ErrorKind kind) {
  return open(path, O_TRUNC, kind);
}

Expected<FileWriter> FileWriter::append(const std::string& path, ErrorKind kind) {
  return open(path, O_APPEND, kind);
}

Expected<void> FileWriter::write(std::span<const std::byte> bytes) {
  return write_all(descriptor_.get(), bytes, path_, kind_);
}

Expected<void> FileWriter::write(std::string_view text) { return write(std::as_bytes(std::span(text))); }

Expected<void> FileWriter::sync() {
  if (::fsync(descriptor_.get()) != 0) {
    return file_error(kind_, path_, "sync", errno);
  }
  return {};
}

Expected<void> FileWriter::close() {
  // Linux frees the descriptor even when close reports an error, so it is never closed twice.
  if (::close(descriptor_.release()) != 0 && errno != EINTR) {
    return file_error(kind_, path_, "close", errno);
  }
  return {};
}

Expected<MappedFile> MappedFile::open(const std::string& path, ErrorKind kind) {
  const Descriptor file = open_descriptor(path, O_RDONLY);
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    return file_error(kind, path, "open", errno);
  }
  if (!S_ISREG(status.st_mode)) {
    return file_error(kind, path, "map", S_ISDIR(status.st_mode) ? EISDIR : ENODEV);
  }
  MappedFile mapped;
  if (status.st_size == 0) {
    return mapped;  // mmap refuses empty ranges
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) {
    return file_error(kind, path, "map", errno);
  }
  mapped.data_ = static_cast<const std::byte*>(address);
  mapped.size_ = size;
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
}

}  // namespace wych
