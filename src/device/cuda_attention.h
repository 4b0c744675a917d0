// Attention by cuDNN on Hopper (attention_plan.h says which). Plans are built ahead, because building one
// allocates and takes a good part of a second: afterwards a pass is a few launches that a graph may record. A
// plan serves all layers of its shape. Exists in builds with WYCH_CUDA; without cuDNN's headers there,
// nothing is ever prepared.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/attention_plan.h"

struct CUstream_st;

namespace wych::device {

enum class AttentionPass { kForward, kGradient };

// Dense matrices in bfloat16, lse in float32; width = (query_heads + 2 kv_heads) head_dim.
struct AttentionOperands {
  std::byte* qkv = nullptr;   // [tokens, width], queries, keys, values; read
  std::byte* out = nullptr;   // [tokens, query_heads head_dim]; written by the forward, read by the gradient
  std::byte* lse = nullptr;   // [sequences, query_heads, sequence]; likewise
  std::byte* dout = nullptr;  // of the shape of out; the gradient alone
  std::byte* dqkv = nullptr;  // of the shape of qkv; written by the gradient
  std::byte* workspace = nullptr;  // fused_forward_workspace() or fused_gradient_workspace() bytes
};

class CudaAttention {
 public:
  CudaAttention();
  ~CudaAttention();
  CudaAttention(const CudaAttention&) = delete;
  CudaAttention& operator=(const CudaAttention&) = delete;

  // Builds the plan of a problem that fused_attention_takes(), unless it is there. Not while `stream` is
  // recording; runs nothing. False if cuDNN is missing or too old, has no way to do it, or needs more scratch
  // than was planned: notes say why, once.
  bool prepare(AttentionPass pass, CUstream_st* stream, const FusedAttention& problem,
               const AttentionOperands& operands);
  [[nodiscard]] bool is_prepared(AttentionPass pass, const FusedAttention& problem) const;
  // Queues a prepared problem.
  void run(AttentionPass pass, CUstream_st* stream, const FusedAttention& problem,
           const AttentionOperands& operands);

  // Seconds spent on building plans so far, and how many there are.
  [[nodiscard]] double build_seconds() const { return build_seconds_; }
  [[nodiscard]] i64 num_plans() const;
  // Lines for people, since the last call: why cuDNN is not used.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  struct Plan;
  struct Library;
  bool build(AttentionPass pass, const FusedAttention& problem);
  void record(AttentionPass pass, CUstream_st* stream, const FusedAttention& problem,
              const AttentionOperands& operands);

  std::unique_ptr<Library> library_;  // null: not opened yet, or not usable
  bool is_opened_ = false;
  std::map<std::pair<AttentionPass, FusedAttention>, std::unique_ptr<Plan>> plans_;  // null: there is no way
  std::vector<std::string> notes_;
  double build_seconds_ = 0;
};

}  // namespace wych::device
