// The one file that includes cuDNN's frontend, a library of headers that takes minutes to compile.
#include "device/cuda_attention.h"

#include "base/check.h"
#include "device/cuda_cudnn.h"

#if WYCH_CUDNN

#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <chrono>

#include "device/cuda_check.h"

namespace wych::device {
namespace {

namespace frontend = cudnn_frontend;
using frontend::graph::Graph;
using Tensor = std::shared_ptr<frontend::graph::Tensor_attributes>;
using TensorAttributes = frontend::graph::Tensor_attributes;

constexpr i64 kElementBytes = 2;
constexpr i64 kLseBytes = 4;

enum Id : i64 { kQuery = 1, kKey, kValue, kOut, kLse, kDout, kDquery, kDkey, kDvalue };

void check(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) {
    throw DeviceError(fmt::format("{} failed: {}", call, cudnnGetErrorString(status)));
  }
}
#define WYCH_CUDNN_CALL(call) check((call), #call)

// Some heads of rows of `width` elements, as [sequences, heads, sequence, head_dim].
void describe_heads(TensorAttributes& tensor, Id id, const FusedAttention& piece, i64 heads, i64 width) {
  tensor.set_uid(id)
      .set_dim({piece.sequences, heads, piece.sequence, piece.head_dim})
      .set_stride({piece.sequence * width, piece.head_dim, width, 1})
      .set_data_type(frontend::DataType_t::BFLOAT16);
}

// Dense: libraries before 9.26 read it in no other layout.
void describe_lse(TensorAttributes& tensor, const FusedAttention& piece) {
  tensor.set_uid(kLse)
      .set_dim({piece.sequences, piece.query_heads, piece.sequence, 1})
      .set_stride({piece.query_heads * piece.sequence, piece.sequence, 1, 1})
      .set_data_type(frontend::DataType_t::FLOAT);
}

Tensor heads_input(Graph& graph, Id id, const FusedAttention& piece, i64 heads, i64 width) {
  TensorAttributes tensor;
  describe_heads(tensor, id, piece, heads, width);
  return graph.tensor(tensor);
}

// Both passes say alike what is visible: key j <= query i and, with a left bound, i < j + bound.
template <class Attributes>
Attributes attributes_of(const FusedAttention& piece) {
  Attributes attributes;
  attributes.set_name("attention")
      .set_attn_scale(static_cast<float>(piece.scale))
      .set_diagonal_alignment(frontend::DiagonalAlignment_t::TOP_LEFT)
      .set_diagonal_band_right_bound(0);
  if (piece.window > 0 && piece.window < piece.sequence) {
    attributes.set_diagonal_band_left_bound(static_cast<int>(piece.window));
  }
  return attributes;
}

struct Inputs {
  Tensor query;
  Tensor key;
  Tensor value;
};
Inputs qkv_inputs(Graph& graph, const FusedAttention& piece, i64 width) {
  return {heads_input(graph, kQuery, piece, piece.query_heads, width),
          heads_input(graph, kKey, piece, piece.kv_heads, width),
          heads_input(graph, kValue, piece, piece.kv_heads, width)};
}

void describe_forward(Graph& graph, const FusedAttention& problem) {
  const Inputs inputs = qkv_inputs(graph, problem, problem.width());
  auto attributes = attributes_of<frontend::graph::SDPA_attributes>(problem);
  attributes.set_generate_stats(true);
  const auto [out, lse] = graph.sdpa(inputs.query, inputs.key, inputs.value, attributes);
  out->set_output(true);
  describe_heads(*out, kOut, problem, problem.query_heads, problem.query_heads * problem.head_dim);
  lse->set_output(true);
  describe_lse(*lse, problem);
}

void describe_gradient(Graph& graph, const FusedAttention& problem) {
  const FusedAttention piece = gradient_piece(problem);
  const i64 width = problem.width();
  const i64 out_width = problem.query_heads * problem.head_dim;
  const Inputs inputs = qkv_inputs(graph, piece, width);
  TensorAttributes lse;
  describe_lse(lse, piece);
  auto attributes = attributes_of<frontend::graph::SDPA_backward_attributes>(piece);
  attributes.set_deterministic_algorithm(piece.deterministic);
  const auto [dquery, dkey, dvalue] = graph.sdpa_backward(
      inputs.query, inputs.key, inputs.value, heads_input(graph, kOut, piece, piece.query_heads, out_width),
      heads_input(graph, kDout, piece, piece.query_heads, out_width), graph.tensor(lse), attributes);
  dquery->set_output(true);
  describe_heads(*dquery, kDquery, piece, piece.query_heads, width);
  dkey->set_output(true);
  describe_heads(*dkey, kDkey, piece, piece.kv_heads, width);
  dvalue->set_output(true);
  describe_heads(*dvalue, kDvalue, piece, piece.kv_heads, width);
}

std::string problem_text(AttentionPass pass, const FusedAttention& problem) {
  return fmt::format("attention's {} of {} x {} tokens, {} query and {} key heads of {}, window {}{}",
                     pass == AttentionPass::kForward ? "forward" : "gradient", problem.sequences,
                     problem.sequence, problem.query_heads, problem.kv_heads, problem.head_dim,
                     problem.window, problem.deterministic ? "" : ", in any order");
}

// Seconds of what `work` does.
template <class Work>
double time_host(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

struct CudaAttention::Library {
  cudnnHandle_t handle = nullptr;

  Library() { WYCH_CUDNN_CALL(cudnnCreate(&handle)); }
  ~Library() { cudnnDestroy(handle); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
};

struct CudaAttention::Plan {
  Graph graph;
};

CudaAttention::CudaAttention() = default;
CudaAttention::~CudaAttention() { plans_.clear(); }

bool CudaAttention::build(AttentionPass pass, const FusedAttention& problem) {
  auto plan = std::make_unique<Plan>();
  plan->graph.set_io_data_type(frontend::DataType_t::BFLOAT16)
      .set_intermediate_data_type(frontend::DataType_t::FLOAT)
      .set_compute_data_type(frontend::DataType_t::FLOAT);
  // Recorded graphs need not keep the plan alive: it lives as long as the device, and they do not.
  plan->graph.set_cuda_graph_retention(frontend::CudaGraphRetention_t::NONE);
  const bool is_forward = pass == AttentionPass::kForward;
  is_forward ? describe_forward(plan->graph, problem) : describe_gradient(plan->graph, problem);
  frontend::error_t built = plan->graph.build(library_->handle, {frontend::HeurMode_t::A});
  i64 bytes = 0;
  if (built.is_bad() || plan->graph.get_workspace_size(bytes).is_bad()) {
    notes_.push_back(fmt::format("cuDNN {} has no plan for {}, own kernels compute it: {}", cudnn_version(),
                                 problem_text(pass, problem), built.get_message()));
    return false;
  }
  const i64 planned = is_forward ? fused_forward_workspace(problem) : fused_gradient_workspace(problem);
  if (bytes > planned) {
    notes_.push_back(
        fmt::format("cuDNN {} asks for {} bytes of scratch for {} and {} were planned, own kernels compute "
                    "it: please report it",
                    cudnn_version(), bytes, problem_text(pass, problem), planned));
    return false;
  }
  plans_[{pass, problem}] = std::move(plan);
  return true;
}

bool CudaAttention::prepare(AttentionPass pass, CUstream_st* stream, const FusedAttention& problem,
                            const AttentionOperands& operands) {
  if (!std::exchange(is_opened_, true)) {
    const std::string wrong = cudnn_problem();
    if (wrong.empty()) {
      library_ = std::make_unique<Library>();
    } else {
      notes_.push_back(fmt::format("attention runs on kernels of its own, which are slower: {}", wrong));
    }
  }
  if (!library_ || plans_.contains({pass, problem})) {
    return is_prepared(pass, problem);
  }
  plans_[{pass, problem}] = nullptr;  // tried
  build_seconds_ += time_host([&] {
    if (build(pass, problem)) {
      record(pass, stream, problem, operands);
    }
  });
  return is_prepared(pass, problem);
}

// Recorded once and thrown away: what the library loads when it first runs, it loads here.
void CudaAttention::record(AttentionPass pass, CUstream_st* stream, const FusedAttention& problem,
                           const AttentionOperands& operands) {
  WYCH_CUDA_CALL(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  std::string wrong;
  try {
    run(pass, stream, problem, operands);
  } catch (const DeviceError& error) {
    wrong = error.what();
  }
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (graph != nullptr) {
    WYCH_CUDA_CALL(cudaGraphDestroy(graph));
  }
  if (wrong.empty() && ended != cudaSuccess) {
    wrong = fmt::format("it cannot be recorded: {}", cudaGetErrorString(ended));
  }
  if (!wrong.empty()) {
    cudaGetLastError();  // what the recording left behind
    plans_[{pass, problem}] = nullptr;
    notes_.push_back(fmt::format("cuDNN {} cannot run {}, own kernels compute it: {}", cudnn_version(),
                                 problem_text(pass, problem), wrong));
  }
}

bool CudaAttention::is_prepared(AttentionPass pass, const FusedAttention& problem) const {
  const auto plan = plans_.find({pass, problem});
  return plan != plans_.end() && plan->second != nullptr;
}

i64 CudaAttention::num_plans() const {
  i64 count = 0;
  for (const auto& [key, plan] : plans_) {
    count += plan != nullptr ? 1 : 0;
  }
  return count;
}

void CudaAttention::run(AttentionPass pass, CUstream_st* stream, const FusedAttention& problem,
                        const AttentionOperands& operands) {
  WYCH_CHECK(is_prepared(pass, problem), "{}", problem_text(pass, problem));
  const Graph& graph = plans_.at({pass, problem})->graph;
  WYCH_CUDNN_CALL(cudnnSetStream(library_->handle, stream));
  const FusedAttention piece = pass == AttentionPass::kForward ? problem : gradient_piece(problem);
  const i64 head_bytes = problem.head_dim * kElementBytes;
  for (i64 sequence = 0; sequence < problem.sequences; sequence += piece.sequences) {
    for (i64 kv_head = 0; kv_head < problem.kv_heads; kv_head += piece.kv_heads) {
      const i64 query_head = kv_head * problem.group();
      const i64 token = sequence * problem.sequence;
      const i64 query = (token * problem.width() + query_head * problem.head_dim) * kElementBytes;
      const i64 key = token * problem.width() * kElementBytes + (problem.query_heads + kv_head) * head_bytes;
      const i64 value = key + problem.kv_heads * head_bytes;
      const i64 out = (token * problem.query_heads + query_head) * head_bytes;
      const i64 lse = (sequence * problem.query_heads + query_head) * problem.sequence * kLseBytes;
      std::unordered_map<i64, void*> pack = {{kQuery, operands.qkv + query},
                                             {kKey, operands.qkv + key},
                                             {kValue, operands.qkv + value},
                                             {kOut, operands.out + out},
                                             {kLse, operands.lse + lse}};
      if (pass == AttentionPass::kGradient) {
        pack.insert({{kDout, operands.dout + out},
                     {kDquery, operands.dqkv + query},
                     {kDkey, operands.dqkv + key},
                     {kDvalue, operands.dqkv + value}});
      }
      frontend::error_t status = graph.execute(library_->handle, pack, operands.workspace);
      if (status.is_bad()) {
        throw DeviceError(
            fmt::format("cuDNN failed in {}: {}", problem_text(pass, problem), status.get_message()));
      }
    }
  }
}

}  // namespace wych::device

#else  // a build without cuDNN's headers

namespace wych::device {

struct CudaAttention::Library {};
struct CudaAttention::Plan {};

CudaAttention::CudaAttention() = default;
CudaAttention::~CudaAttention() = default;

bool CudaAttention::prepare(AttentionPass /*pass*/, CUstream_st* /*stream*/,
                            const FusedAttention& /*problem*/, const AttentionOperands& /*operands*/) {
  if (!std::exchange(is_opened_, true)) {
    notes_.push_back("attention runs on kernels of its own, which are slower: " + cudnn_problem());
  }
  return false;
}

bool CudaAttention::is_prepared(AttentionPass /*pass*/, const FusedAttention& /*problem*/) const {
  return false;
}
i64 CudaAttention::num_plans() const { return 0; }

void CudaAttention::run(AttentionPass /*pass*/, CUstream_st* /*stream*/, const FusedAttention& /*problem*/,
                        const AttentionOperands& /*operands*/) {
  WYCH_CHECK(false, "nothing is prepared in a build without cuDNN");
}

}  // namespace wych::device

#endif
