// Attention by cuDNN on a device: that it takes the problems which the plan gives it, and that large
// problems, whose gradient goes in pieces, agree with kernels of our own. Small ones are cases of the op
// suite. Needs a Hopper device with cuDNN; without, the tests are skipped by name.
#include "ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "device/cuda.h"
#include "device/cuda_attention.h"
#include "device/cuda_cudnn.h"
#include "ir/interpret.h"
#include "kernels/cuda_random.h"

namespace wych::ops {
namespace {

using Bytes = std::vector<std::byte>;

constexpr i64 kPlaceAlignment = 256;

// One problem with its buffers: forward and gradient, by either kernels.
class Bench {
 public:
  struct Results {
    Bytes out;
    Bytes lse;
    Bytes dqkv;
  };

  Bench(device::CudaDevice& device, const AttentionShape& shape, i64 sequences)
      : device_(device),
        shape_(shape),
        qkv_({DType::kBF16, {sequences * shape.sequence, shape.layout.width()}}),
        starts_({DType::kI32, {sequences * shape.sequence}}) {
    out_ = forward_.infer(std::vector{qkv_, starts_}).value()[0];
    lse_ = forward_.infer(std::vector{qkv_, starts_}).value()[1];
    const i64 workspace =
        std::max(forward_.cuda_workspace(std::vector{qkv_, starts_}, {}, device.target()),
                 gradient_.cuda_workspace(std::vector{out_, qkv_, out_, lse_, starts_}, {}, device.target()));
    i64 bytes = 0;
    const auto place = [&](i64 size) {
      const i64 begin = bytes;
      bytes += round_up(size, kPlaceAlignment);
      return begin;
    };
    const i64 places[] = {place(qkv_.bytes()), place(starts_.bytes()), place(out_.bytes()),
                          place(out_.bytes()), place(lse_.bytes()),    place(qkv_.bytes()),
                          place(workspace)};
    arena_ = device::CudaArena::create(device, "tests", bytes).value();
    const auto view = [&](int index, const ir::TensorType& type) {
      return ir::View{arena_.data() + places[index], &type};
    };
    forward_inputs_ = {view(0, qkv_), view(1, starts_)};
    forward_outputs_ = {view(2, out_), view(4, lse_)};
    gradient_inputs_ = {view(3, out_), view(0, qkv_), view(2, out_), view(4, lse_), view(1, starts_)};
    gradient_outputs_ = {view(5, qkv_)};
    workspace_ = arena_.data() + places[6];
    kernels::cuda_fill_normal(device.stream(), 1, 1.0F, qkv_.elements(),
                              reinterpret_cast<__nv_bfloat16*>(arena_.data() + places[0]));
    kernels::cuda_fill_normal(device.stream(), 2, 1.0F, out_.elements(),
                              reinterpret_cast<__nv_bfloat16*>(arena_.data() + places[3]));
  }

  [[nodiscard]] device::FusedAttention problem() const {
    return fused_attention(shape_, qkv_, device_.target()).value();
  }

  Results run(device::CudaAttention* cudnn) {
    const auto context = [&](const std::vector<ir::View>& inputs, const std::vector<ir::View>& outputs) {
      return ir::CudaContext{.inputs = inputs,
                             .outputs = outputs,
                             .workspace = workspace_,
                             .stream = device_.stream(),
                             .target = device_.target(),
                             .matmul = &device_.matmul(),
                             .attention = cudnn};
    };
    forward_.prepare_cuda(context(forward_inputs_, forward_outputs_));
    gradient_.prepare_cuda(context(gradient_inputs_, gradient_outputs_));
    for (const std::vector<ir::View>& outputs : {forward_outputs_, gradient_outputs_}) {
      for (const ir::View& view : outputs) {
        device_.fill(view.data, 0xff, view.type->bytes());
      }
    }
    const device::CudaGraph graph = device::CudaGraph::capture(device_, [&] {
      forward_.launch_cuda(context(forward_inputs_, forward_outputs_));
      gradient_.launch_cuda(context(gradient_inputs_, gradient_outputs_));
    });
    graph.launch(device_);
    return {read(forward_outputs_[0]), read(forward_outputs_[1]), read(gradient_outputs_[0])};
  }

 private:
  Bytes read(const ir::View& view) {
    Bytes bytes(static_cast<std::size_t>(view.type->bytes()));
    device_.copy_to_host(bytes.data(), view.data, view.type->bytes());
    device_.synchronize();
    return bytes;
  }

  device::CudaDevice& device_;
  AttentionShape shape_;
  Attention forward_{shape_};
  AttentionDqkv gradient_{shape_};
  ir::TensorType qkv_;
  ir::TensorType starts_;
  ir::TensorType out_;
  ir::TensorType lse_;
  device::CudaArena arena_;
  std::vector<ir::View> forward_inputs_;
  std::vector<ir::View> forward_outputs_;
  std::vector<ir::View> gradient_inputs_;
  std::vector<ir::View> gradient_outputs_;
  std::byte* workspace_ = nullptr;
};

// ||a - b|| / ||b||, a NaN if there is one.
double relative_norm(const Bytes& a, const Bytes& b, DType dtype) {
  double difference = 0;
  double norm = 0;
  for (i64 i = 0; i < static_cast<i64>(a.size()) / dtype_bytes(dtype); ++i) {
    const double x = ir::load_element(a.data(), dtype, i);
    const double y = ir::load_element(b.data(), dtype, i);
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(difference / norm);
}

struct Problem {
  i64 sequences;
  AttentionShape shape;
};

AttentionShape shape_of(i64 sequence, const HeadLayout& layout, i64 window, bool deterministic = true) {
  return {.layout = layout,
          .sequence = sequence,
          .window = window,
          .scale = 1.0 / std::sqrt(static_cast<double>(layout.head_dim)),
          .documents = false,
          .deterministic = deterministic};
}

class CudnnAttention : public testing::Test {
 protected:
  void SetUp() override {
    if (device::num_cuda_devices() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
    device_ = device::CudaDevice::open().value();
    if (device_->target().architecture != 90) {
      GTEST_SKIP() << device_->name() << " is not a Hopper device";
    }
    if (const std::string problem = device::cudnn_problem(); !problem.empty()) {
      GTEST_SKIP() << problem;
    }
  }

  // By cuDNN twice and by our own kernels, which round elsewhere: p and ds to bfloat16 before a product, the
  // result after it, 2^-9 each where independent.
  void check(i64 sequences, const AttentionShape& shape) {
    Bench bench(*device_, shape, sequences);
    const Bench::Results fused = bench.run(&device_->attention());
    for (const std::string& note : device_->attention().take_notes()) {
      ADD_FAILURE() << note;
    }
    ASSERT_TRUE(device_->attention().is_prepared(device::AttentionPass::kForward, bench.problem()));
    ASSERT_TRUE(device_->attention().is_prepared(device::AttentionPass::kGradient, bench.problem()));
    const Bench::Results again = bench.run(&device_->attention());
    EXPECT_EQ(again.out, fused.out);
    EXPECT_EQ(again.lse, fused.lse);
    if (shape.deterministic) {
      EXPECT_EQ(again.dqkv, fused.dqkv);
    }
    const Bench::Results own = bench.run(nullptr);
    EXPECT_LE(relative_norm(fused.out, own.out, DType::kBF16), 0.01);
    EXPECT_LE(relative_norm(fused.lse, own.lse, DType::kF32), 1e-4);
    EXPECT_LE(relative_norm(fused.dqkv, own.dqkv, DType::kBF16), 0.02);
    EXPECT_NE(fused.dqkv, own.dqkv) << "the same kernels twice?";
  }

  std::unique_ptr<device::CudaDevice> device_;
};

TEST_F(CudnnAttention, OnePiece) { check(2, shape_of(1024, {16, 4, 128}, 0)); }

TEST_F(CudnnAttention, PiecesOfSequences) {
  const AttentionShape shape = shape_of(4096, {8, 8, 128}, 0);
  check(6, shape);
}

TEST_F(CudnnAttention, PiecesOfHeads) { check(2, shape_of(8192, {16, 4, 128}, 0)); }

TEST_F(CudnnAttention, PiecesWithAWindow) { check(2, shape_of(8192, {16, 4, 128}, 1000)); }

TEST_F(CudnnAttention, HeadsOf64) { check(3, shape_of(2048, {16, 16, 64}, 0)); }

TEST_F(CudnnAttention, InAnyOrder) { check(2, shape_of(4096, {16, 4, 128}, 0, false)); }

TEST_F(CudnnAttention, InAnyOrderWithAWindow) { check(1, shape_of(4096, {8, 8, 64}, 512, false)); }

}  // namespace
}  // namespace wych::ops
