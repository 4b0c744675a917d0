#include <utility>

#include "device/cuda.h"
#include "device/cuda_check.h"

namespace wych::device {

void CudaGraph::begin(CudaDevice& device) {
  WYCH_CUDA_CALL(cudaStreamBeginCapture(device.stream(), cudaStreamCaptureModeThreadLocal));
}

void CudaGraph::abandon(CudaDevice& device) {
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(device.stream(), &graph);  // fails if the recording already has; both are fine
  if (graph != nullptr) {
    cudaGraphDestroy(graph);
  }
  cudaGetLastError();
}

CudaGraph CudaGraph::end(CudaDevice& device) {
  cudaGraph_t graph = nullptr;
  WYCH_CUDA_CALL(cudaStreamEndCapture(device.stream(), &graph));
  CudaGraph result;
  std::size_t nodes = 0;
  WYCH_CUDA_CALL(cudaGraphGetNodes(graph, nullptr, &nodes));
  result.num_nodes_ = static_cast<i64>(nodes);
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  WYCH_CUDA_CALL(status);
  result.executable_ = executable;
  WYCH_CUDA_CALL(cudaGraphUpload(executable, device.stream()));
  return result;
}

CudaGraph::CudaGraph(CudaGraph&& other) noexcept
    : executable_(std::exchange(other.executable_, nullptr)),
      num_nodes_(std::exchange(other.num_nodes_, 0)) {}

CudaGraph& CudaGraph::operator=(CudaGraph&& other) noexcept {
  std::swap(executable_, other.executable_);
  std::swap(num_nodes_, other.num_nodes_);
  return *this;
}

CudaGraph::~CudaGraph() {
  if (executable_ != nullptr) {
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_));
  }
}

void CudaGraph::launch(CudaDevice& device) const {
  if (executable_ != nullptr) {  // an empty program has no graph
    WYCH_CUDA_CALL(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), device.stream()));
  }
}

CudaTimer::CudaTimer() {
  for (void*& event : events_) {
    cudaEvent_t created = nullptr;
    WYCH_CUDA_CALL(cudaEventCreate(&created));
    event = created;
  }
}

CudaTimer::~CudaTimer() {
  for (void* event : events_) {
    cudaEventDestroy(static_cast<cudaEvent_t>(event));
  }
}

void CudaTimer::start(CudaDevice& device) {
  WYCH_CUDA_CALL(cudaEventRecord(static_cast<cudaEvent_t>(events_[0]), device.stream()));
}

void CudaTimer::stop(CudaDevice& device) {
  WYCH_CUDA_CALL(cudaEventRecord(static_cast<cudaEvent_t>(events_[1]), device.stream()));
}

double CudaTimer::seconds() {
  float milliseconds = 0;
  WYCH_CUDA_CALL(cudaEventSynchronize(static_cast<cudaEvent_t>(events_[1])));
  WYCH_CUDA_CALL(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(events_[0]),
                                      static_cast<cudaEvent_t>(events_[1])));
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace wych::device
