// Tiles of 128 x 256 outputs with 64 terms a step. Warpgroup 0 keeps four steps of both operands in flight;
// warpgroups 1 and 2 each multiply 64 x 256 and have 128 sums a thread. A step is 48 KiB for 4.2 MFLOP. Every
// block walks its share of all experts' tiles: tile i, i + blocks, ... in the order expert, column tile, row
// tile, so that the tiles that run at one time share an expert's weights in the second-level cache.
//
// Both operand orders that training needs are read in place (wgmma transposes bfloat16 as it reads): no
// transposed copies. Outputs in bfloat16 leave through shared memory by TMA while the next tile's copies are
// under way. The weight gradient's are four times as many bytes for a term (float32, few rows an expert):
// added to memory at the pace of memory they would keep the tensor cores waiting for as long as these
// multiply. So a whole tile has room in shared memory and leaves while the next is multiplied, and steps are
// 32 terms to make that room.
#include "kernels/cuda_grouped_sm90.h"

#include <cudaTypedefs.h>

#include "kernels/cuda_launch.cuh"
#include "kernels/sm90.cuh"

namespace wych::kernels {
namespace {

constexpr int kBlockM = 128;
constexpr int kBlockN = 256;
constexpr int kMaxGroups = 512;
constexpr int kThreads = 384;
constexpr int kPart = 64;              // elements in a swizzled row of 128 bytes
constexpr u32 kStoreBytes = 64 * 128;  // 64 rows of 128 bytes on their way out
constexpr u32 kRowGroup = 8 * 128;     // eight swizzled rows

enum class Form {
  kForward,  // A rows x K, B outputs x K
  kDx,       // A rows x K, B K x outputs
  kDw,       // A K x rows, B K x outputs, K = rows of the expert
};

constexpr u32 kStages = 4;
// Terms of a step.
template <Form kForm>
constexpr int kBlockK = kForm == Form::kDw ? 32 : 64;
template <Form kForm>
constexpr u32 kPartBytes = kPart* kBlockK<kForm> * 2;  // a box of 64 columns
template <Form kForm>
constexpr u32 kBytesA = kBlockM* kBlockK<kForm> * 2;
template <Form kForm>
constexpr u32 kStageBytes = (kBlockM + kBlockN) * kBlockK<kForm> * 2;
// Buffers of a consumer on their way out.
constexpr u32 kStoreBuffers = 2;
// A row of the tile in float32; 16 bytes more, so that rows begin in different banks.
constexpr u32 kSumRowBytes = kBlockN * 4 + 16;
// On their way out, of one consumer; for kDw the whole tile: 64 x 256 sums in float32.
template <Form kForm>
constexpr u32 kLeavingBytes = kForm == Form::kDw ? 64 * kSumRowBytes : kStoreBuffers* kStoreBytes;
// Offsets of experts in shared memory; for kDw they stay where they are, two are read a tile.
template <Form kForm>
constexpr u32 kOffsetBytes = kForm == Form::kDw ? 0 : (kMaxGroups + 1) * 4;

struct Params {
  CUtensorMap a;
  CUtensorMap b;
  CUtensorMap out;  // but for kDw
  float* dw;
  const i32* offsets;
  i32 groups;
  i32 out_columns;
  i32 terms;     // of a sum; kDw: from the offsets
  i32 out_rows;  // kDw: of one expert
  bool accumulate;
};

struct Shared {
  u32 stages;  // of A, B
  u32 stores;  // of consumer 0, of consumer 1
  u32 full;    // a barrier a stage
  u32 empty;
  const i32* offsets;
};

template <Form kForm>
constexpr u32 kSharedBytes = kStages*(kStageBytes<kForm> + 16) +
                             2 * kLeavingBytes<kForm> + kOffsetBytes<kForm>;
static_assert(kSharedBytes<Form::kForward> <= 232448 && kSharedBytes<Form::kDw> <= 232448);

// One tile: outputs from (row, column) of the expert's matrix.
struct Tile {
  i32 expert;
  i32 begin;  // kDw: the expert's first row
  i32 row;
  i32 column;
  i32 steps;
};

// Walks the tiles of this block; the same sequence in every warp.
template <Form kForm>
class Tiles {
 public:
  __device__ Tiles(const Params& params, const i32* offsets)
      : params_(params), offsets_(offsets), next_(blockIdx.x) {
    column_tiles_ = (params.out_columns + kBlockN - 1) / kBlockN;
    if constexpr (kForm == Form::kDw) {
      fetch_offsets();
    }
  }

  __device__ bool next(Tile& tile) {
    if constexpr (kForm == Form::kDw) {
      return next_gradient(tile);
    } else {
      return next_segment(tile);
    }
  }

 private:
  __device__ bool next_segment(Tile& tile) {
    while (expert_ < params_.groups) {
      const i32 begin = offsets_[expert_];
      const i32 row_tiles = (offsets_[expert_ + 1] - begin + kBlockM - 1) / kBlockM;
      const i64 tiles = static_cast<i64>(row_tiles) * column_tiles_;
      if (next_ - before_ < tiles) {
        const auto index = static_cast<i32>(next_ - before_);
        tile.expert = expert_;
        tile.row = begin + index % row_tiles * kBlockM;
        tile.column = index / row_tiles * kBlockN;
        tile.steps = (params_.terms + kBlockK<kForm> - 1) / kBlockK<kForm>;
        next_ += gridDim.x;
        return true;
      }
      before_ += tiles;
      ++expert_;
    }
    return false;
  }

  // Every expert has equally many tiles. The offsets of a tile are on their way while the one before is
  // computed.
  __device__ bool next_gradient(Tile& tile) {
    const i32 row_tiles = (params_.out_rows + kBlockM - 1) / kBlockM;
    const i64 tiles = static_cast<i64>(row_tiles) * column_tiles_;
    if (next_ >= tiles * params_.groups) {
      return false;
    }
    const auto index = static_cast<i32>(next_ % tiles);
    tile.expert = static_cast<i32>(next_ / tiles);
    tile.row = index % row_tiles * kBlockM;
    tile.column = index / row_tiles * kBlockN;
    tile.begin = begin_;
    tile.steps = (end_ - begin_ + kBlockK<kForm> - 1) / kBlockK<kForm>;
    next_ += gridDim.x;
    fetch_offsets();
    return true;
  }

  __device__ void fetch_offsets() {
    const i32 row_tiles = (params_.out_rows + kBlockM - 1) / kBlockM;
    const i64 expert = next_ / (static_cast<i64>(row_tiles) * column_tiles_);
    if (expert < params_.groups) {
      begin_ = __ldg(offsets_ + expert);
      end_ = __ldg(offsets_ + expert + 1);
    }
  }

  const Params& params_;
  const i32* offsets_;
  i64 next_;
  i64 before_ = 0;
  i32 expert_ = 0;
  i32 column_tiles_;
  i32 begin_ = 0;  // kDw: of the next tile
  i32 end_ = 0;
};

// A place in the ring of stages.
struct Ring {
  u32 stage = 0;
  u32 parity = 0;
  __device__ void advance() {
    stage = stage + 1 == kStages ? 0 : stage + 1;
    parity ^= stage == 0 ? 1 : 0;
  }
};

template <Form kForm>
__device__ void load_step(const Params& params, const Tile& tile, i32 step, u32 to, u32 barrier) {
  const i32 term = step * kBlockK<kForm>;
  if constexpr (kForm == Form::kDw) {
    const i32 row = tile.begin + term;
#pragma unroll
    for (int part = 0; part < kBlockM / kPart; ++part) {
      sm90::tensor_load(to + part * kPartBytes<kForm>, &params.a, barrier, tile.row + part * kPart, row);
    }
#pragma unroll
    for (int part = 0; part < kBlockN / kPart; ++part) {
      sm90::tensor_load(to + kBytesA<kForm> + part * kPartBytes<kForm>, &params.b, barrier,
                        tile.column + part * kPart, row);
    }
    return;
  }
  sm90::tensor_load(to, &params.a, barrier, term, tile.row);
  if constexpr (kForm == Form::kForward) {
    sm90::tensor_load(to + kBytesA<kForm>, &params.b, barrier, term,
                      tile.expert * params.out_columns + tile.column);
  } else {
#pragma unroll
    for (int part = 0; part < kBlockN / kPart; ++part) {
      sm90::tensor_load(to + kBytesA<kForm> + part * kPartBytes<kForm>, &params.b, barrier,
                        tile.column + part * kPart, tile.expert * params.terms + term);
    }
  }
}

template <Form kForm>
__device__ void produce(const Params& params, const Shared& shared) {
  Ring ring;
  Tiles<kForm> tiles(params, shared.offsets);
  Tile tile;
  while (tiles.next(tile)) {
    for (i32 step = 0; step < tile.steps; ++step) {
      sm90::barrier_wait(shared.empty + 8 * ring.stage, ring.parity ^ 1);
      const u32 barrier = shared.full + 8 * ring.stage;
      sm90::barrier_expect(barrier, kStageBytes<kForm>);
      load_step<kForm>(params, tile, step, shared.stages + ring.stage * kStageBytes<kForm>, barrier);
      ring.advance();
    }
  }
}

// The products of one step, 16 terms each.
template <Form kForm>
__device__ void multiply_step(float (&sums)[128], u32 stage, int consumer, bool add) {
#pragma unroll
  for (int i = 0; i < kBlockK<kForm> / 16; ++i) {
    u64 a = 0;
    u64 b = 0;
    if constexpr (kForm == Form::kDw) {  // 16 terms are 16 rows of 128 bytes
      a = sm90::operand(stage + consumer * kPartBytes<kForm> + i * 2048, kPartBytes<kForm>, kRowGroup);
    } else {  // 16 terms are 32 bytes of every row
      a = sm90::operand(stage + consumer * 64 * 128 + i * 32, 16, kRowGroup);
    }
    if constexpr (kForm == Form::kForward) {
      b = sm90::operand(stage + kBytesA<kForm> + i * 32, 16, kRowGroup);
    } else {
      b = sm90::operand(stage + kBytesA<kForm> + i * 2048, kPartBytes<kForm>, kRowGroup);
    }
    sm90::multiply_64x256x16<kForm == Form::kDw, kForm != Form::kForward>(sums, a, b, add || i > 0);
  }
}

__device__ u32 pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const u32*>(&both);
}

// 64 x 256 sums to bfloat16 and out by TMA, 64 columns at a time through two buffers.
__device__ void store_bf16(const Params& params, const Tile& tile, const float (&sums)[128], u32 buffers,
                           int consumer) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int warp = thread / 32;
  const int lane = thread % 32;
  const u32 row = static_cast<u32>(warp * 16 + (lane / 8 % 2) * 8 + lane % 8);
  const u32 half = static_cast<u32>(lane / 16);
  constexpr u32 kBuffers = kStoreBuffers;
#pragma unroll
  for (int part = 0; part < kBlockN / kPart; ++part) {
    const u32 buffer = buffers + (static_cast<u32>(part) % kBuffers) * kStoreBytes;
    if (thread == 0) {
      sm90::store_wait_read<kBuffers - 1>();  // the store that read this buffer
    }
    sm90::named_barrier(1 + consumer, 128);
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // 16 columns
      const float* s = &sums[part * 32 + i * 8];
      const u32 chunk = (static_cast<u32>(2 * i) + half) ^ (row % 8);
      sm90::store_matrices(buffer + row * 128 + chunk * 16, pack(s[0], s[1]), pack(s[2], s[3]),
                           pack(s[4], s[5]), pack(s[6], s[7]));
    }
    sm90::fence_async();
    sm90::named_barrier(1 + consumer, 128);
    if (thread == 0) {
      if (tile.column + part * kPart < params.out_columns) {
        sm90::tensor_store(&params.out, buffer, tile.column + part * kPart, tile.row + consumer * 64);
      }
      sm90::store_commit();
    }
  }
}

// 64 x 256 sums in float32 on their way out, row by row: 1 KiB of memory at a time. They leave a few at each
// step of the next tile; all at once they would hold up its copies, which go through the same unit.
class Leaving {
 public:
  __device__ Leaving(const Params& params, u32 rows, int consumer)
      : params_(params), rows_(rows), consumer_(consumer), thread_(static_cast<int>(threadIdx.x) % 128) {}

  // All threads of the consumer.
  __device__ void put(const Tile& tile, const float (&sums)[128]) {
    finish();
    if (thread_ < kLanes) {
      sm90::store_wait_read<0>();
    }
    sm90::named_barrier(1 + consumer_, 128);
    const u32 to = rows_ + static_cast<u32>(thread_ / 32 * 16 + thread_ % 32 / 4) * kSumRowBytes +
                   static_cast<u32>(thread_ % 4) * 8;
#pragma unroll
    for (u32 i = 0; i < kBlockN / 8; ++i) {
      sm90::store_pair(to + i * 32, sums[4 * i], sums[4 * i + 1]);
      sm90::store_pair(to + i * 32 + 8 * kSumRowBytes, sums[4 * i + 2], sums[4 * i + 3]);
    }
    sm90::fence_async();
    sm90::named_barrier(1 + consumer_, 128);
    const i32 columns = min(kBlockN, params_.out_columns - tile.column);
    const i32 row = tile.row + consumer_ * 64;  // the expert's rows are a multiple of 64
    bytes_ = static_cast<u32>(columns) * 4;
    out_ = params_.dw + (static_cast<i64>(tile.expert) * params_.out_rows + row) * params_.out_columns +
           tile.column;
    next_ = row < params_.out_rows ? 0 : kRows;
  }

  // The next rows, if there are any: added to what is there if asked for, each element once a launch, so the
  // result is the same every time.
  __device__ void send_some() {
    if (next_ == kRows) {
      return;
    }
    if (thread_ < kLanes) {
      const i32 row = next_ + thread_;
      float* to = out_ + static_cast<i64>(row) * params_.out_columns;
      const u32 from = rows_ + static_cast<u32>(row) * kSumRowBytes;
      if (params_.accumulate) {
        sm90::bulk_add(to, from, bytes_);
      } else {
        sm90::bulk_store(to, from, bytes_);
      }
      sm90::store_commit();
    }
    next_ += kLanes;
  }

  __device__ void finish() {
    while (next_ < kRows) {
      send_some();
    }
  }

  // Shared memory must outlive the stores.
  __device__ void end() {
    finish();
    if (thread_ < kLanes) {
      sm90::store_wait();
    }
  }

 private:
  static constexpr int kRows = 64;
  static constexpr int kLanes = 4;
  const Params& params_;
  u32 rows_;
  int consumer_;
  int thread_;
  float* out_ = nullptr;
  u32 bytes_ = 0;
  int next_ = kRows;
};

template <Form kForm>
__device__ void consume(const Params& params, const Shared& shared, int consumer) {
  Ring ring;
  Tiles<kForm> tiles(params, shared.offsets);
  Tile tile;
  float sums[128];
  const bool releases = threadIdx.x % 128 == 0;
  const u32 buffers = shared.stores + static_cast<u32>(consumer) * kLeavingBytes<kForm>;
  Leaving leaving(params, buffers, consumer);
  while (tiles.next(tile)) {
    u32 unreleased = 0;  // the stage of the step before, which its products may still read
    for (i32 step = 0; step < tile.steps; ++step) {
      sm90::barrier_wait(shared.full + 8 * ring.stage, ring.parity);
      sm90::products_begin();
      multiply_step<kForm>(sums, shared.stages + ring.stage * kStageBytes<kForm>, consumer, step > 0);
      sm90::products_commit();
      sm90::products_wait<1>();
      if (step > 0 && releases) {
        sm90::barrier_arrive(shared.empty + 8 * unreleased);
      }
      unreleased = ring.stage;
      ring.advance();
      if constexpr (kForm == Form::kDw) {
        leaving.send_some();
      }
    }
    sm90::products_wait<0>();
    if (tile.steps > 0 && releases) {
      sm90::barrier_arrive(shared.empty + 8 * unreleased);
    }
    if (tile.steps == 0) {
#pragma unroll
      for (float& sum : sums) {
        sum = 0;
      }
    }
    if constexpr (kForm == Form::kDw) {
      leaving.put(tile, sums);
    } else {
      store_bf16(params, tile, sums, buffers, consumer);
    }
  }
  if constexpr (kForm == Form::kDw) {
    leaving.end();
  } else if (releases) {
    sm90::store_wait();  // shared memory must outlive the stores
  }
}

template <Form kForm>
__global__ void __launch_bounds__(kThreads, 1) grouped_sm90_kernel(const __grid_constant__ Params params) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::byte dynamic[];  // the swizzle counts from multiples of 1024
  const u32 start = sm90::shared_address(dynamic);
  if (start % 1024 != 0) {
    __trap();
  }
  Shared shared;
  shared.stages = start;
  shared.stores = start + kStages * kStageBytes<kForm>;
  shared.full = shared.stores + 2 * kLeavingBytes<kForm>;
  shared.empty = shared.full + kStages * 8;
  shared.offsets = params.offsets;
  if constexpr (kForm != Form::kDw) {
    auto* offsets = reinterpret_cast<i32*>(dynamic + (shared.empty + kStages * 8 - start));
    shared.offsets = offsets;
    for (i32 i = static_cast<i32>(threadIdx.x); i <= params.groups; i += kThreads) {
      offsets[i] = params.offsets[i];
    }
  }
  if (threadIdx.x == 0) {
    sm90::prefetch_map(&params.a);
    sm90::prefetch_map(&params.b);
    for (u32 stage = 0; stage < kStages; ++stage) {
      sm90::barrier_init(shared.full + 8 * stage, 1);
      sm90::barrier_init(shared.empty + 8 * stage, 2);
    }
    sm90::fence_async();
  }
  __syncthreads();
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  if (warpgroup == 0) {
    sm90::registers_release<40>();
    if (threadIdx.x == 0) {
      produce<kForm>(params, shared);
    }
  } else {
    sm90::registers_take<232>();
    consume<kForm>(params, shared, warpgroup - 1);
  }
#endif
}

PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  WYCH_CUDA_CALL(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                  cudaEnableDefault, &found));
  WYCH_CHECK(found == cudaDriverEntryPointSuccess, "the driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

// A row-major matrix [rows, columns], read or written in boxes of box_rows rows of 128 bytes.
template <class T>
CUtensorMap tensor_map(const T* data, i64 rows, i64 columns, u32 box_rows) {
  CUtensorMap map{};
  const cuuint64_t extents[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(columns) * sizeof(T)};
  const cuuint32_t box[2] = {128 / sizeof(T), box_rows};
  constexpr CUtensorMapDataType kType =
      sizeof(T) == 4 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const cuuint32_t steps[2] = {1, 1};
  const CUresult status = encoder()(&map, kType, 2, const_cast<T*>(data), extents, strides, box, steps,
                                    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                    CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  WYCH_CHECK(status == CUDA_SUCCESS, "no tensor map for [{}, {}]: CUDA driver error {}", rows, columns,
             static_cast<int>(status));
  return map;
}

template <Form kForm>
void launch(CUstream_st* stream, const CudaTarget& target, const Params& params) {
  constexpr u32 kBytes = kSharedBytes<kForm>;
  WYCH_CUDA_CALL(
      cudaFuncSetAttribute(grouped_sm90_kernel<kForm>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  grouped_sm90_kernel<kForm><<<static_cast<unsigned>(target.num_sms), kThreads, kBytes, stream>>>(params);
  WYCH_CUDA_LAUNCHED();
}

}  // namespace

bool grouped_sm90_supports(const CudaTarget& target, const GroupedShape& shape) {
  constexpr i64 kMaxExtent = i64{1} << 31U;
  return target.architecture == 90 && shape.groups > 0 && shape.groups <= kMaxGroups && shape.rows > 0 &&
         shape.rows < kMaxExtent && shape.n > 0 && shape.k > 0 && shape.n % kPart == 0 &&
         shape.k % kPart == 0 && shape.alignment % kBlockM == 0 && shape.groups * shape.n < kMaxExtent;
}

void grouped_sm90_forward(CUstream_st* stream, const CudaTarget& target, const GroupedShape& shape,
                          const i32* offsets, const __nv_bfloat16* x, const __nv_bfloat16* w,
                          __nv_bfloat16* y) {
  Params params{};
  params.a = tensor_map(x, shape.rows, shape.k, kBlockM);
  params.b = tensor_map(w, shape.groups * shape.n, shape.k, kBlockN);
  params.out = tensor_map(y, shape.rows, shape.n, 64);
  params.offsets = offsets;
  params.groups = static_cast<i32>(shape.groups);
  params.out_columns = static_cast<i32>(shape.n);
  params.terms = static_cast<i32>(shape.k);
  launch<Form::kForward>(stream, target, params);
}

void grouped_sm90_dx(CUstream_st* stream, const CudaTarget& target, const GroupedShape& shape,
                     const i32* offsets, const __nv_bfloat16* dy, const __nv_bfloat16* w, __nv_bfloat16* dx) {
  Params params{};
  params.a = tensor_map(dy, shape.rows, shape.n, kBlockM);
  params.b = tensor_map(w, shape.groups * shape.n, shape.k, kBlockK<Form::kDx>);
  params.out = tensor_map(dx, shape.rows, shape.k, 64);
  params.offsets = offsets;
  params.groups = static_cast<i32>(shape.groups);
  params.out_columns = static_cast<i32>(shape.k);
  params.terms = static_cast<i32>(shape.n);
  launch<Form::kDx>(stream, target, params);
}

void grouped_sm90_dw(CUstream_st* stream, const CudaTarget& target, const GroupedShape& shape,
                     const i32* offsets, const __nv_bfloat16* dy, const __nv_bfloat16* x, bool accumulate,
                     float* dw) {
  Params params{};
  params.a = tensor_map(dy, shape.rows, shape.n, kBlockK<Form::kDw>);
  params.b = tensor_map(x, shape.rows, shape.k, kBlockK<Form::kDw>);
  params.offsets = offsets;
  params.groups = static_cast<i32>(shape.groups);
  params.out_columns = static_cast<i32>(shape.k);
  params.out_rows = static_cast<i32>(shape.n);
  params.accumulate = accumulate;
  params.dw = dw;
  launch<Form::kDw>(stream, target, params);
}

}  // namespace wych::kernels
