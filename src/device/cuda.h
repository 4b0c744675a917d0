// CUDA as the rest of wych sees it: the device of a rank with its stream, arenas in its memory, captured
// graphs. The header names no CUDA type, so that any file may include it; the functions exist in builds with
// WYCH_CUDA only. What CUDA reports as failed is the environment's fault: a DeviceError, thrown.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/cuda_target.h"
#include "base/expected.h"
#include "base/types.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace wych::device {

class CudaAttention;
class Matmul;

class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Devices that CUDA sees; 0 where there is no driver.
int num_cuda_devices();

// A device in use by this process: its properties and the one stream that the programs of a run use.
class CudaDevice {
 public:
  // kUsage if there is no such device, it is older than compute capability 8.0, or the driver is too old.
  static Expected<std::unique_ptr<CudaDevice>> open(int index = 0);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const CudaTarget& target() const { return target_; }
  [[nodiscard]] i64 memory_bytes() const { return memory_bytes_; }
  // Free at this moment (cudaMemGetInfo).
  [[nodiscard]] i64 free_bytes() const;
  [[nodiscard]] CUstream_st* stream() const { return stream_; }
  // Products on this device; made when first asked for.
  [[nodiscard]] Matmul& matmul();
  // Attention by cuDNN, likewise.
  [[nodiscard]] CudaAttention& attention();

  // Queue on the stream. Host memory should be pinned (PinnedMemory): else the calls wait by themselves.
  void copy_to_device(std::byte* to, const std::byte* from, i64 bytes);
  void copy_to_host(std::byte* to, const std::byte* from, i64 bytes);
  void fill(std::byte* to, u8 value, i64 bytes);
  // Waits until all that was queued is done; counted, because inside a step there must be none.
  void synchronize();
  [[nodiscard]] i64 num_synchronizations() const { return num_synchronizations_; }

 private:
  CudaDevice();
  std::string name_;
  CudaTarget target_;
  i64 memory_bytes_ = 0;
  CUstream_st* stream_ = nullptr;
  std::unique_ptr<Matmul> matmul_;
  std::unique_ptr<CudaAttention> attention_;
  i64 num_synchronizations_ = 0;
};

// Device memory, zero at first; the twin of Arena. Move-only.
class CudaArena {
 public:
  CudaArena() = default;
  // kMemory, naming the arena, if the device has not that much.
  static Expected<CudaArena> create(CudaDevice& device, std::string name, i64 bytes);
  CudaArena(CudaArena&& other) noexcept;
  CudaArena& operator=(CudaArena&& other) noexcept;
  ~CudaArena();
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] i64 bytes() const { return bytes_; }
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::string name_;
  i64 bytes_ = 0;
  std::byte* data_ = nullptr;
};

// Host memory that copies need not wait for; zero at first. Move-only.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  static Expected<PinnedMemory> create(i64 bytes);
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory();
  [[nodiscard]] i64 bytes() const { return bytes_; }
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  i64 bytes_ = 0;
  std::byte* data_ = nullptr;
};

// Work recorded once and launched as a whole. Move-only.
class CudaGraph {
 public:
  CudaGraph() = default;
  // Records what `work` queues on the device's stream, without running it. `work` must neither allocate nor
  // wait. What it throws is thrown on after the recording is given up.
  template <class Work>
  static CudaGraph capture(CudaDevice& device, const Work& work) {
    begin(device);
    try {
      work();
    } catch (...) {
      abandon(device);
      throw;
    }
    return end(device);
  }
  CudaGraph(CudaGraph&& other) noexcept;
  CudaGraph& operator=(CudaGraph&& other) noexcept;
  ~CudaGraph();

  // Queues everything on the stream: one call, whatever the number of nodes.
  void launch(CudaDevice& device) const;
  [[nodiscard]] i64 num_nodes() const { return num_nodes_; }

 private:
  static void begin(CudaDevice& device);
  static void abandon(CudaDevice& device);
  static CudaGraph end(CudaDevice& device);

  void* executable_ = nullptr;
  i64 num_nodes_ = 0;
};

// Time on the stream between two points, in seconds.
class CudaTimer {
 public:
  CudaTimer();
  ~CudaTimer();
  CudaTimer(const CudaTimer&) = delete;
  CudaTimer& operator=(const CudaTimer&) = delete;
  void start(CudaDevice& device);
  void stop(CudaDevice& device);
  // Waits for the second point.
  double seconds();

 private:
  void* events_[2] = {nullptr, nullptr};
};

}  // namespace wych::device
