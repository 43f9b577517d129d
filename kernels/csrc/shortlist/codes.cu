// The largest logits of M <= 8 rows of x, exactly, from 8-bit codes of the head's weight and few of its own rows.
//
//   approximate: codes stream through shared memory into the tensor cores, a unit (128 weight rows x 128 k, shortlist/table.py) at
//     a time; integers up to 127 and x are exact in FP16, sums FP32: even and odd steps of 16 k of a unit apart, added, times the
//     unit's scale, units ascending. Every warp keeps the largest `sum - bound |x|` of what it saw, a logit that is there for sure.
//   settle: of those sure logits the `wanted`-th largest (its upper 18 bits) is what a logit must reach. Where `sum + bound |x|` does
//     not, the logit is smaller than `wanted` others and becomes -inf; else its row of the weight is read: FP32 fma over ascending
//     k of a lane (k = 256 i + 8 lane + e), lanes by a butterfly. NaN reaches everything, so what has no bound is always read.
// Nothing can overflow: at worst all rows are read, which is the exact head and takes five times as long.
// Codes, bounds and the weight must not be written by a kernel still in flight on the stream.
#include <cuda_fp16.h>
#include <stdint.h>

#include "abi.h"
#include "sm90.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

constexpr int kRows = 128, kK = 128, kWarps = 8, kStages = 8, kMostK = 5120, kMostRows = 8;
constexpr int kCodeBytes = kRows * kK, kUnitBytes = kCodeBytes + kRows * 2;
constexpr int kXStride = kMostK * 2 + 64;  // bytes: eight lanes read two rows of x and meet no bank twice
constexpr int kConsumers = kWarps * 32, kThreads = kConsumers + 32, kSettling = 512;
constexpr int kMostGroups = 160 * kWarps, kAtOnce = 4, kListed = kAtOnce * kSettling;
constexpr int kLeastBit = 14;  // of a float's key: what is cut off below makes the threshold smaller, never larger

struct Stage {
  uint8_t codes[kCodeBytes], scales[kRows * 2];
};
struct Shared {
  Stage stage[kStages];
  uint8_t x[kMostRows][kXStride];
  uint64_t full[kStages], empty[kStages];
  float norm[kMostRows];
};
struct Settled {
  uint8_t x[kMostRows][kXStride];
  float norm[kMostRows], least[kMostRows];
  uint32_t listed[kListed];
  int count;
};

struct Operands {
  const __half* x;
  const __half* weight;
  const uint8_t* units;
  const float* bound;
  float *logits, *sure;          // [m][n]; [m][groups]
  unsigned long long* counts;
  int m, n, k, x_stride, row_blocks, wanted, groups, every;
  int64_t w_stride;
};

// |x| of a row in shared memory, never below it; the same in every lane.
__device__ __forceinline__ float norm_of(const uint8_t* row, int k) {
  float sum = 0;
  for (int at = (threadIdx.x & 31) * 8; at < k; at += 256) {
    const uint4 eight = *reinterpret_cast<const uint4*>(row + at * 2);
    const uint32_t two[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float2 f = __half22float2(*reinterpret_cast<const __half2*>(&two[i]));
      sum = fmaf(f.x, f.x, sum), sum = fmaf(f.y, f.y, sum);
    }
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance >>= 1) sum += __shfl_xor_sync(~0u, sum, distance);
  return sqrtf(sum) * 1.0001f;
}

__device__ __forceinline__ void load_x(const Operands& o, uint8_t (&to)[kMostRows][kXStride], int threads) {
  const int pieces = o.k / 8;
  for (int i = threadIdx.x; i < o.m * pieces; i += threads) {
    const int row = i / pieces, piece = i - row * pieces;
    sm90::copy_16(sm90::smem(&to[row][piece * 16]), o.x + static_cast<int64_t>(row) * o.x_stride + piece * 8);
  }
  sm90::copies_wait_all();
}

// Codes plus 128, four to a word, as FP16: a byte below 0x64 is 1024 and the byte.
__device__ __forceinline__ void decode(uint32_t four, uint32_t& low, uint32_t& high) {
  const __half2 middle = __floats2half2_rn(1152.0f, 1152.0f);
  uint32_t pair[2] = {__byte_perm(four, 0x64646464u, 0x4140), __byte_perm(four, 0x64646464u, 0x4342)};
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const __half2 code = __hsub2(*reinterpret_cast<const __half2*>(&pair[i]), middle);
    pair[i] = *reinterpret_cast<const uint32_t*>(&code);
  }
  low = pair[0], high = pair[1];
}

__global__ void __launch_bounds__(kThreads, 1) approximate(const __grid_constant__ Operands o) {
  extern __shared__ __align__(128) uint8_t raw[];
  Shared& s = *reinterpret_cast<Shared*>(raw);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, c = lane & 3, k_units = o.k / kK;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) sm90::barrier_init(&s.full[i], 1), sm90::barrier_init(&s.empty[i], kWarps);
    sm90::barrier_init_visible();
  }
  __syncthreads();
  sm90::launch_next();

  if (warp == kWarps) {
    if (lane != 0) return;
    int stage = 0, parity = 1, made = 0;
    for (int block = blockIdx.x; block < o.row_blocks; block += gridDim.x) {
      const uint8_t* unit = o.units + static_cast<int64_t>(block) * k_units * kUnitBytes;
      for (int i = 0; i < k_units; i++, unit += kUnitBytes, made++) {
        if (made >= kStages) sm90::barrier_wait(sm90::smem(&s.empty[stage]), parity);
        sm90::barrier_expect(&s.full[stage], kUnitBytes);
        sm90::bulk_copy(s.stage[stage].codes, unit, kUnitBytes, &s.full[stage]);
        if (++stage == kStages) stage = 0, parity ^= 1;
      }
    }
    return;
  }

  for (int i = threadIdx.x; i < (kMostRows - o.m) * (o.k / 8); i += kConsumers) {  // rows that x does not have
    const int row = o.m + i / (o.k / 8), piece = i % (o.k / 8);
    *reinterpret_cast<uint4*>(&s.x[row][piece * 16]) = make_uint4(0, 0, 0, 0);
  }
  sm90::wait_for_previous();
  load_x(o, s.x, kConsumers);
  sm90::named_barrier(1, kConsumers);
  const float own = norm_of(s.x[warp], o.k);
  if (lane == 0) s.norm[warp] = own;
  sm90::named_barrier(1, kConsumers);

  const uint32_t codes = sm90::smem(s.stage[0].codes) + warp * 16 * kK + lane * 16, x = sm90::smem(s.x[g]) + c * 16;
  const uint32_t scales = sm90::smem(s.stage[0].scales) + (warp * 16 + g) * 2;
  const float norm[2] = {s.norm[2 * c], s.norm[2 * c + 1]};
  float best[2] = {-INFINITY, -INFINITY};
  int stage = 0, parity = 0;
  for (int block = blockIdx.x; block < o.row_blocks; block += gridDim.x) {
    const int row = block * kRows + warp * 16 + g;
    const float bound[2] = {__ldg(o.bound + row), __ldg(o.bound + row + 8)};
    float total[4] = {};
    for (int i = 0; i < k_units; i++) {
      sm90::barrier_wait(sm90::smem(&s.full[stage]), parity);
      const uint32_t at = stage * static_cast<uint32_t>(sizeof(Stage));
      uint16_t scale[2];
      asm volatile("ld.shared.u16 %0, [%1];" : "=h"(scale[0]) : "r"(scales + at) : "memory");
      asm volatile("ld.shared.u16 %0, [%1];" : "=h"(scale[1]) : "r"(scales + at + 16) : "memory");
      float even[4] = {}, odd[4] = {};
#pragma unroll
      for (int pair = 0; pair < 4; pair++) {
        const uint4 q = sm90::load_16(codes + at + pair * 512), k = sm90::load_16(x + i * kK * 2 + pair * 64);
        uint32_t upper[4], lower[4];  // of rows g and g + 8
        decode(q.x, upper[0], upper[1]), decode(q.y, upper[2], upper[3]);
        decode(q.z, lower[0], lower[1]), decode(q.w, lower[2], lower[3]);
        sm90::mma_16816(even, upper[0], lower[0], upper[1], lower[1], k.x, k.y);
        sm90::mma_16816(odd, upper[2], lower[2], upper[3], lower[3], k.z, k.w);
      }
#pragma unroll
      for (int e = 0; e < 4; e++) {
        total[e] = fmaf(__uint_as_float(static_cast<uint32_t>(scale[e >> 1]) << 16), even[e] + odd[e], total[e]);
        asm volatile("" : "+f"(total[e]));  // everything read has been used before the stage is given back
      }
      __syncwarp();
      if (lane == 0) sm90::barrier_arrive(sm90::smem(&s.empty[stage]));
      if (++stage == kStages) stage = 0, parity ^= 1;
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int v = row + (e >> 1) * 8, m = 2 * c + (e & 1);
      if (v >= o.n || m >= o.m) continue;
      __stcg(o.logits + static_cast<int64_t>(m) * o.n + v, total[e]);
      best[e & 1] = fmaxf(best[e & 1], total[e] - bound[e >> 1] * norm[e & 1]);
    }
  }
#pragma unroll
  for (int e = 0; e < 2; e++) {
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2) best[e] = fmaxf(best[e], __shfl_xor_sync(~0u, best[e], distance));
    if (g == 0 && 2 * c + e < o.m) __stcg(o.sure + (2 * c + e) * o.groups + blockIdx.x * kWarps + warp, best[e]);
  }
}

// Orders as the floats do. The smallest key is a NaN's, which no number is below.
__device__ __forceinline__ uint32_t key_of(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits ^ (static_cast<int32_t>(bits) < 0 ? ~0u : 0x80000000u);
}
__device__ __forceinline__ float value_of(uint32_t key) { return __uint_as_float(key ^ (key >> 31 ? 0x80000000u : ~0u)); }

// What a row's logit must reach, by one warp.
__device__ __forceinline__ float least_of(const Operands& o, int m) {
  const int lane = threadIdx.x & 31;
  uint32_t key[kMostGroups / 32], least = 0;
#pragma unroll
  for (int i = 0; i < kMostGroups / 32; i++) key[i] = i * 32 + lane < o.groups ? key_of(__ldcg(o.sure + m * o.groups + i * 32 + lane)) : 0;
#pragma unroll 1
  for (int bit = 31; bit >= kLeastBit; bit--) {
    const uint32_t tried = least | 1u << bit;
    int reached = 0;
#pragma unroll
    for (int i = 0; i < kMostGroups / 32; i++) reached += key[i] >= tried;
    if (__reduce_add_sync(~0u, reached) >= o.wanted) least = tried;
  }
  return value_of(least);
}

__device__ __forceinline__ void exact(const Operands& o, const Settled& s, uint32_t entry) {
  const int lane = threadIdx.x & 31, v = entry & 0xFFFFFF;
  const uint4* from = reinterpret_cast<const uint4*>(o.weight + v * o.w_stride) + lane;
  uint4 w[kMostK / 256];
#pragma unroll
  for (int i = 0; i < kMostK / 256; i++) w[i] = i * 256 < o.k ? __ldcs(from + i * 32) : make_uint4(0, 0, 0, 0);
#pragma unroll 1
  for (uint32_t rows = entry >> 24; rows != 0; rows &= rows - 1) {
    const int m = __ffs(rows) - 1;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kMostK / 256; i++) {
      if (i * 256 >= o.k) break;
      const uint4 x = *reinterpret_cast<const uint4*>(&s.x[m][(i * 256 + lane * 8) * 2]);
      const uint32_t a[4] = {w[i].x, w[i].y, w[i].z, w[i].w}, b[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float2 f = __half22float2(*reinterpret_cast<const __half2*>(&a[e])), h = __half22float2(*reinterpret_cast<const __half2*>(&b[e]));
        sum = fmaf(f.x, h.x, sum), sum = fmaf(f.y, h.y, sum);
      }
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance >>= 1) sum += __shfl_xor_sync(~0u, sum, distance);
    if (lane == 0) o.logits[static_cast<int64_t>(m) * o.n + v] = sum;
  }
}

__global__ void __launch_bounds__(kSettling, 1) settle(const __grid_constant__ Operands o) {
  extern __shared__ __align__(128) uint8_t raw[];
  Settled& s = *reinterpret_cast<Settled*>(raw);
  constexpr int kAll = kSettling / 32;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  if (threadIdx.x == 0) s.count = 0;
  sm90::launch_next();
  sm90::wait_for_previous();
  load_x(o, s.x, kSettling);
  __syncthreads();
  if (warp < o.m) {
    const float norm = norm_of(s.x[warp], o.k), least = o.every ? -INFINITY : least_of(o, warp);
    if (lane == 0) {
      s.norm[warp] = norm, s.least[warp] = least;
      if (blockIdx.x == 0 && !(least > -INFINITY)) atomicAdd(o.counts + 2, 1ull);
    }
  }
  __syncthreads();
  if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(o.counts, 1ull);

  const int chunks = (o.n + 31) / 32, across = gridDim.x * kAll;
  for (int base = 0; base < chunks; base += across * kAtOnce) {
#pragma unroll 1
    for (int i = 0; i < kAtOnce; i++) {
      const int v = (base + (i * kAll + warp) * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x)) * 32 + lane;
      if (v >= o.n) continue;
      uint32_t mask = (1u << o.m) - 1;
      if (!o.every) {
        const float bound = __ldg(o.bound + v);
        float near[kMostRows];
#pragma unroll
        for (int m = 0; m < kMostRows; m++) near[m] = m < o.m ? __ldcg(o.logits + static_cast<int64_t>(m) * o.n + v) : 0;
#pragma unroll
        for (int m = 0; m < kMostRows; m++) {
          if (m >= o.m || !(near[m] + bound * s.norm[m] < s.least[m])) continue;
          mask &= ~(1u << m);
          __stcg(o.logits + static_cast<int64_t>(m) * o.n + v, -INFINITY);
        }
      }
      if (mask != 0) s.listed[atomicAdd(&s.count, 1)] = static_cast<uint32_t>(v) | mask << 24;
    }
    __syncthreads();
    const int count = s.count;
    for (int i = warp; i < count; i += kAll) exact(o, s, s.listed[i]);
    __syncthreads();
    if (threadIdx.x == 0) {
      if (count > 0) atomicAdd(o.counts + 1, static_cast<unsigned long long>(count));
      s.count = 0;
    }
    __syncthreads();
  }
}

template <typename Kernel>
cudaError_t launch(Kernel kernel, const Operands& o, int blocks, int threads, int size_bytes, void* stream) {
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, size_bytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = size_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, o);
}

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

// Bytes of workspace for `blocks` blocks.
EXPORT int64_t ENTRY(workspace_bytes)(int blocks) { return static_cast<int64_t>(blocks) * kWarps * kMostRows * 4; }

// x [m][k] and weight [n][k] FP16, k a multiple of 256; units and bound: shortlist/table.py; logits [m][n] FP32; counts [3].
// every: all rows of the weight, without codes. `wanted` <= n; strides count elements.
EXPORT int ENTRY(run)(const void* x, const void* weight, const void* units, const void* bound, void* logits, void* workspace, void* counts, int m,
                      int n, int k, int x_stride, int w_stride, int wanted, int every, int blocks, void* stream) {
  if (m > kMostRows || k > kMostK || k % 256 != 0 || blocks * kWarps > kMostGroups || n >= 1 << 24) return cudaErrorInvalidValue;
  const Operands o{static_cast<const __half*>(x), static_cast<const __half*>(weight), static_cast<const uint8_t*>(units),
                   static_cast<const float*>(bound), static_cast<float*>(logits), static_cast<float*>(workspace),
                   static_cast<unsigned long long*>(counts), m, n, k, x_stride, (n + kRows - 1) / kRows, wanted, blocks * kWarps, every, w_stride};
  if (!every)
    if (const cudaError_t error = launch(approximate, o, blocks, kThreads, sizeof(Shared), stream)) return error;
  const cudaError_t error = launch(settle, o, blocks, kSettling, sizeof(Settled), stream);
  return error != cudaSuccess ? error : cudaGetLastError();
}
