// Products of bfloat16 tiles on the tensor cores of sm_80 and later, for kernels that keep their results in
// registers: of the rows of two tiles in shared memory, and of weights in registers and the rows of a tile. A
// warp owns 16 kM rows of a result as kM x kN pieces of 16 x 8: float32 sums in the order of terms. Thread
// `lane` holds of each piece the rows lane / 4 and lane / 4 + 8 at the columns lane % 4 * 2 and the next:
// elements [0], [1] and [2], [3]. Instructions: PTX ISA, "mma.m16n8k16", "ldmatrix", "cp.async".
//
// Tiles lie in shared memory in rows of kColumns elements (64 or 128), whose chunks of 16 bytes are permuted
// by the row number, so that eight rows at one column fall into different banks.
#pragma once

#include "kernels/cuda_launch.cuh"

namespace wych::kernels {

template <int kM, int kN>
using Pieces = float[kM][kN][4];

__device__ inline u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// Queues a copy of 16 bytes to shared memory; zeros if `exists` is false.
__device__ inline void copy_async(u32 to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0)
               : "memory");
}
// Ends a group of copies of this thread.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kPending groups of this thread are under way.
template <int kPending>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Four matrices of 8 x 8: lanes 8 i to 8 i + 7 give the addresses of the rows of matrix i, and each lane gets
// two neighbours of row lane / 4 of each; transposed: of each one's transpose.
__device__ inline void load_matrices(u32 (&to)[4], u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
__device__ inline void load_matrices_transposed(u32 (&to)[4], u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

// c += a b for one piece and 16 terms.
__device__ inline void multiply_add(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 2^x within two units in the last place; denormals become zero.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two elements in one word, the first in the low half.
__device__ inline u32 pack_pair(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return static_cast<u32>(__bfloat16_as_ushort(pair.x)) | static_cast<u32>(__bfloat16_as_ushort(pair.y))
                                                              << 16U;
}

// The address of a chunk of 8 elements of a tile, which starts at a multiple of 256 bytes: so the chunk c
// further on is at that address ^ 16 c where the first one's number has no bit of c, and 8 rows on is 8 rows
// of bytes on.
template <int kColumns>
__device__ u32 chunk_address(u32 tile, int row, int chunk) {
  static_assert(kColumns == 64 || kColumns == 128);
  return tile + static_cast<u32>(row * kColumns * 2 + (chunk ^ row % 8) * 16);
}

// Keeps the compiler from computing what follows from an address ahead of the loop around it: registers are
// scarcer than integer instructions.
__device__ inline void compute_late(u32& address) { asm volatile("" : "+r"(address)); }

// Queues copies of `count` rows of `columns` elements, a multiple of 8, at 16-byte aligned addresses into a
// tile of kRows x kColumns; what lies beyond becomes zero.
template <int kThreads, int kRows, int kColumns>
__device__ void copy_tile(u32 tile, const __nv_bfloat16* from, i64 stride, int count, int columns) {
  constexpr int kChunks = kColumns / 8;
  constexpr int kStep = kThreads / kChunks;
  static_assert(kThreads % kChunks == 0 && kStep % 8 == 0 && kRows % kStep == 0);
  const int row = static_cast<int>(threadIdx.x) / kChunks;
  const int column = static_cast<int>(threadIdx.x) % kChunks * 8;
  const u32 to = chunk_address<kColumns>(tile, row, column / 8);
  const __nv_bfloat16* chunk = from + row * stride + column;
#pragma unroll
  for (int n = 0; n < kRows / kStep; ++n) {
    const bool exists = row + n * kStep < count && column < columns;
    copy_async(to + n * kStep * kColumns * 2, exists ? chunk : from, exists);
    chunk += kStep * stride;
  }
}

// products[i, j] = a_(row + i) . b_j for the rows of two tiles; `row` is a multiple of 16.
template <int kM, int kN, int kColumns>
__device__ void multiply_rows(u32 a, int row, u32 b, Pieces<kM, kN>& products) {
  constexpr u32 kRowBytes = kColumns * 2;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  u32 a_lane = chunk_address<kColumns>(a, row + lane % 16, lane / 16);
  u32 b_lane = chunk_address<kColumns>(b, lane / 16 * 8 + lane % 8, lane / 8 % 2);
  compute_late(a_lane);
  compute_late(b_lane);
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (float& product : products[m][n]) {
        product = 0;
      }
    }
  }
#pragma unroll
  for (u32 k = 0; k < kColumns / 16; ++k) {  // two chunks
    u32 left[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      load_matrices(left[m], (a_lane ^ 32 * k) + 16 * m * kRowBytes);
    }
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      u32 right[4];
      load_matrices(right, (b_lane ^ 32 * k) + 8 * n * kRowBytes);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add(products[m][n], left[m], right[0], right[1]);
        multiply_add(products[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

// sums[i] += sum_j weights[i, j] b_j for the rows of a tile; weights are rounded to bfloat16.
template <int kM, int kN, int kColumns>
__device__ void add_weighted_rows(const Pieces<kM, kN>& weights, u32 b, Pieces<kM, kColumns / 8>& sums) {
  constexpr u32 kRowBytes = kColumns * 2;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  u32 b_lane = chunk_address<kColumns>(b, lane % 16, lane / 16);
  compute_late(b_lane);
#pragma unroll
  for (int k = 0; k < kN / 2; ++k) {
    u32 left[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const float(&low)[4] = weights[m][2 * k];
      const float(&high)[4] = weights[m][2 * k + 1];
      left[m][0] = pack_pair(low[0], low[1]);
      left[m][1] = pack_pair(low[2], low[3]);
      left[m][2] = pack_pair(high[0], high[1]);
      left[m][3] = pack_pair(high[2], high[3]);
    }
#pragma unroll
    for (u32 n = 0; n < kColumns / 8; n += 2) {
      u32 right[4];
      load_matrices_transposed(right, (b_lane ^ 16 * n) + 16 * k * kRowBytes);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add(sums[m][n], left[m], right[0], right[1]);
        multiply_add(sums[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

// Writes sums[i] factors[i] to row i of `to` where it is below `count`, `columns` (even) elements at 4-byte
// aligned addresses; factors are those of rows lane / 4 and lane / 4 + 8 of each piece.
template <int kM, int kN>
__device__ void store_pieces(const Pieces<kM, kN>& sums, const float (&factors)[kM][2], int count,
                             int columns, i64 stride, __nv_bfloat16* to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * m + 8 * half + lane / 4;
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const int column = 8 * n + lane % 4 * 2;
        if (row < count && column < columns) {
          *reinterpret_cast<u32*>(to + row * stride + column) =
              pack_pair(sums[m][n][2 * half] * factors[m][half], sums[m][n][2 * half + 1] * factors[m][half]);
        }
      }
    }
  }
}

}  // namespace wych::kernels
