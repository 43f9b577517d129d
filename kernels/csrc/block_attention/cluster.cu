// Attention of a block of up to 8 rows over a context and itself under a mask, D = 128: a cluster of 8 blocks has a KV head, a block
// an eighth of the keys, and up to 32 columns m = row * group + member share them.
//
// Keys of a block lie in shared memory. A warp has 16 columns (warp % 2) and every fourth tile of 16 keys (warp / 2):
//   scores: FP32 sums of exact products by mma.m16n8k16, k ascending
//   probabilities: exp2(score * scale * log2 e - m) in FP32, m the running maximum of the warp's tiles, split into FP16 and the FP16
//   of what that leaves; both multiply V
//   sums: FP32, a warp's tiles ascending; then its block's warps in order, then the cluster's blocks, each against their largest m
// The context is copied before the previous kernel of the stream has finished; the block's own keys, mask and queries after it.
#include <cuda_fp16.h>
#include <stdint.h>

#include "abi.h"
#include "sm90.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

constexpr int kD = 128, kBlocks = 8, kWarps = 8, kThreads = kWarps * 32, kKeys = 272, kColumns = 32, kRows = 8, kParts = 4;
constexpr int kStride = kD + 8, kWide = kD + 4;  // halves, floats between rows: fragments and pairs without bank conflicts
constexpr float kNone = -1e30f;

struct Shared {
  __half k[kKeys][kStride], v[kKeys][kStride];
  float of_block[kColumns][kWide], block_maximum[kColumns], block_sum[kColumns];
  float maximum[kParts][kColumns], sum[kParts][kColumns];
  uint8_t mask[kRows][kKeys];
};
static_assert(sizeof(float) * kParts * kColumns * kWide <= sizeof(__half) * kKeys * kStride, "the warps' results fit where the keys were");

struct Operands {
  const __half *q, *context_k, *context_v, *k, *v;
  const uint8_t* mask;
  __half* out;
  int64_t k_stride, v_stride;
  int rows, q_heads, kv_heads, context, run;  // run: keys of a block
  float scale;                                // times log2 e
};

__device__ __forceinline__ void matrices(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
__device__ __forceinline__ void transposed(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
__device__ __forceinline__ uint32_t pair(float low, float high) {
  const __half2 two = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&two);
}
// What rounding to FP16 left of a pair.
__device__ __forceinline__ uint32_t residual(float low, float high, uint32_t rounded) {
  const float2 had = __half22float2(*reinterpret_cast<const __half2*>(&rounded));
  return pair(low - had.x, high - had.y);
}
__device__ __forceinline__ float of_other(const float* own, uint32_t block) {
  float v;
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %1, %2;\nld.shared::cluster.f32 %0, [there];\n}" : "=f"(v) : "r"(sm90::smem(own)), "r"(block) : "memory");
  return v;
}

// Keys [begin, end) of the context, or of the block where `own`, into rows of shared memory; the 16-byte pieces of a key side by side.
__device__ __forceinline__ void load(const Operands& o, Shared& s, int head, int first, int begin, int end, bool own) {
  for (int i = threadIdx.x; i < (end - begin) * (kD / 8); i += kThreads) {
    const int key = begin + i / (kD / 8), piece = i % (kD / 8) * 8;
    const __half* k = own ? o.k + (key - o.context) * o.k_stride + head * kD : o.context_k + (static_cast<int64_t>(key) * o.kv_heads + head) * kD;
    const __half* v = own ? o.v + (key - o.context) * o.v_stride + head * kD : o.context_v + (static_cast<int64_t>(key) * o.kv_heads + head) * kD;
    sm90::copy_16(sm90::smem(&s.k[key - first][piece]), k + piece);
    sm90::copy_16(sm90::smem(&s.v[key - first][piece]), v + piece);
  }
}

__global__ void __launch_bounds__(kThreads, 1) attend(const __grid_constant__ Operands o) {
  extern __shared__ __align__(128) uint8_t raw[];
  Shared& s = *reinterpret_cast<Shared*>(raw);
  const int block = blockIdx.x, head = blockIdx.y, keys = o.context + o.rows, group = o.q_heads / o.kv_heads;
  const int first = min(keys, block * o.run), end = min(keys, first + o.run), count = end - first, tiles = (count + 15) / 16;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, c = lane & 3, m_tile = warp % 2, part = warp / 2;
  sm90::launch_next();
  load(o, s, head, first, first, min(end, o.context), false);
  for (int i = threadIdx.x; i < (tiles * 16 - count) * (kD / 8); i += kThreads) {  // a probability of zero meets a finite value
    const int row = count + i / (kD / 8), piece = i % (kD / 8) * 8;
    *reinterpret_cast<uint4*>(&s.k[row][piece]) = *reinterpret_cast<uint4*>(&s.v[row][piece]) = make_uint4(0, 0, 0, 0);
  }
  sm90::wait_for_previous();
  load(o, s, head, first, max(first, o.context), end, true);
  for (int i = threadIdx.x; i < kRows * tiles * 16; i += kThreads) {
    const int row = i / (tiles * 16), at = i % (tiles * 16);
    s.mask[row][at] = row < o.rows && at < count ? __ldcg(o.mask + static_cast<int64_t>(row) * keys + first + at) : 0;
  }
  uint32_t q[kD / 16][4];
  const int column[2] = {m_tile * 16 + g, m_tile * 16 + g + 8};
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = column[half] / group, member = column[half] - row * group;
    const uint32_t* from = reinterpret_cast<const uint32_t*>(o.q + (static_cast<int64_t>(row) * o.q_heads + head * group + member) * kD) + c;
#pragma unroll
    for (int k = 0; k < kD / 16; k++)
#pragma unroll
      for (int j = 0; j < 2; j++) q[k][half + 2 * j] = row < o.rows ? __ldcg(from + k * 8 + j * 4) : 0;
  }
  sm90::copies_wait_all();
  __syncthreads();

  float acc[kD / 8][4] = {}, maximum[2] = {kNone, kNone}, sum[2] = {0, 0};
  const int row_of[2] = {min(column[0] / group, kRows - 1), min(column[1] / group, kRows - 1)};
  for (int tile = part; tile < tiles; tile += kParts) {
    const uint32_t k_from = sm90::smem(&s.k[tile * 16 + (lane >> 4) * 8 + (lane & 7)][(lane >> 3 & 1) * 8]);
    float score[2][4] = {};
#pragma unroll
    for (int k = 0; k < kD / 16; k++) {
      uint32_t b[4];
      matrices(b, k_from + k * 32);
      sm90::mma_16816(score[0], q[k][0], q[k][1], q[k][2], q[k][3], b[0], b[1]);
      sm90::mma_16816(score[1], q[k][0], q[k][1], q[k][2], q[k][3], b[2], b[3]);
    }
    float top[2] = {maximum[0], maximum[1]};
    bool seen[2][4];
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        seen[n][i] = s.mask[row_of[i >> 1]][tile * 16 + n * 8 + c * 2 + (i & 1)] != 0;
        score[n][i] *= o.scale;
        if (seen[n][i]) top[i >> 1] = fmaxf(top[i >> 1], score[n][i]);
      }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 1));
      top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 2));
      const float by = sm90::exp2_approx(maximum[h] - top[h]);
      maximum[h] = top[h], sum[h] *= by;
#pragma unroll
      for (int n = 0; n < kD / 8; n++) acc[n][2 * h] *= by, acc[n][2 * h + 1] *= by;
    }
    float p[2][4];
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        p[n][i] = seen[n][i] ? sm90::exp2_approx(score[n][i] - maximum[i >> 1]) : 0.0f;
        sum[i >> 1] += p[n][i];
      }
    const uint32_t a[4] = {pair(p[0][0], p[0][1]), pair(p[0][2], p[0][3]), pair(p[1][0], p[1][1]), pair(p[1][2], p[1][3])};
    const uint32_t left[4] = {residual(p[0][0], p[0][1], a[0]), residual(p[0][2], p[0][3], a[1]), residual(p[1][0], p[1][1], a[2]),
                              residual(p[1][2], p[1][3], a[3])};
    const uint32_t v_from = sm90::smem(&s.v[tile * 16 + (lane >> 3 & 1) * 8 + (lane & 7)][(lane >> 4) * 8]);
#pragma unroll
    for (int d = 0; d < kD / 16; d++) {
      uint32_t b[4];
      transposed(b, v_from + d * 32);
      sm90::mma_16816(acc[2 * d], a[0], a[1], a[2], a[3], b[0], b[1]);
      sm90::mma_16816(acc[2 * d], left[0], left[1], left[2], left[3], b[0], b[1]);
      sm90::mma_16816(acc[2 * d + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
      sm90::mma_16816(acc[2 * d + 1], left[0], left[1], left[2], left[3], b[2], b[3]);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
    sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
    if (c == 0) s.maximum[part][column[h]] = maximum[h], s.sum[part][column[h]] = sum[h];
  }
  __syncthreads();  // the keys have been read
  float* of_warp = reinterpret_cast<float*>(s.k);  // [part][column][kWide]
#pragma unroll
  for (int n = 0; n < kD / 8; n++)
#pragma unroll
    for (int h = 0; h < 2; h++)
      *reinterpret_cast<float2*>(of_warp + (part * kColumns + column[h]) * kWide + n * 8 + c * 2) = make_float2(acc[n][2 * h], acc[n][2 * h + 1]);
  __syncthreads();
  for (int i = threadIdx.x; i < kColumns * kD; i += kThreads) {
    const int at = i / kD, d = i % kD;
    float top = s.maximum[0][at], total = 0, value = 0;
#pragma unroll
    for (int w = 1; w < kParts; w++) top = fmaxf(top, s.maximum[w][at]);
#pragma unroll
    for (int w = 0; w < kParts; w++) {
      const float by = sm90::exp2_approx(s.maximum[w][at] - top);
      value = fmaf(by, of_warp[(w * kColumns + at) * kWide + d], value), total = fmaf(by, s.sum[w][at], total);
    }
    s.of_block[at][d] = value;
    if (d == 0) s.block_maximum[at] = top, s.block_sum[at] = total;
  }
  sm90::cluster_arrive();
  sm90::cluster_wait();
  // Each block finishes four columns: value d of two of them a thread.
  const int d = threadIdx.x % kD;
  for (int i = threadIdx.x / kD; i < kColumns / kBlocks; i += kThreads / kD) {
    const int at = block * (kColumns / kBlocks) + i, row = at / group, member = at - row * group;
    float tops[kBlocks], top = kNone, total = 0, value = 0;
#pragma unroll
    for (int b = 0; b < kBlocks; b++) tops[b] = of_other(&s.block_maximum[at], b), top = fmaxf(top, tops[b]);
#pragma unroll
    for (int b = 0; b < kBlocks; b++) {
      const float by = sm90::exp2_approx(tops[b] - top);
      value = fmaf(by, of_other(&s.of_block[at][d], b), value), total = fmaf(by, of_other(&s.block_sum[at], b), total);
    }
    if (row < o.rows) o.out[(static_cast<int64_t>(row) * o.q_heads + head * group + member) * kD + d] = __float2half_rn(value / total);
  }
  sm90::cluster_arrive();
  sm90::cluster_wait();  // nobody leaves while others read its shared memory
}

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

// q, out [rows][q_heads][128] and the context's K and V [context][kv_heads][128] contiguous; k and v [rows][kv_heads][128], strides of
// rows in elements; mask [rows][context + rows] bytes. At most 8 rows, 32 rows and heads of a KV head, 8 * 272 keys.
EXPORT int ENTRY(run)(const void* q, const void* context_k, const void* context_v, const void* k, const void* v, const void* mask, void* out,
                      int64_t k_stride, int64_t v_stride, int rows, int q_heads, int kv_heads, int context, float scale, void* stream) {
  const int run = (context + rows + kBlocks - 1) / kBlocks;
  if (run > kKeys || rows > kRows || rows * (q_heads / kv_heads) > kColumns) return cudaErrorInvalidValue;
  Operands o{static_cast<const __half*>(q), static_cast<const __half*>(context_k), static_cast<const __half*>(context_v), static_cast<const __half*>(k),
             static_cast<const __half*>(v), static_cast<const uint8_t*>(mask), static_cast<__half*>(out), k_stride, v_stride, rows, q_heads, kv_heads,
             context, run, scale * 1.4426950408889634f};
  cudaError_t error = cudaFuncSetAttribute(attend, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = kBlocks, attributes[0].val.clusterDim.y = 1, attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kBlocks, kv_heads);
  config.blockDim = kThreads;
  config.dynamicSmemBytes = sizeof(Shared);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = 2;
  error = cudaLaunchKernelEx(&config, attend, o);
  return error != cudaSuccess ? error : cudaGetLastError();
}
