// GDN verification in one launch: a block convolves what it needs of q, k and v, then runs the recurrence on its tile of value
// columns of one head.
//
// Columns of the state do not mix, so the tile is free; the order of every sum over the 128 keys is fixed for all tiles:
// 16 chunks of 8 consecutive keys by ascending fma from zero, then a balanced tree over the chunks, neighbours first. The
// squares of q and k are summed by a butterfly over each 32 channels (distance 16, 8, 4, 2, 1), then (0 + 1) + (2 + 3).
// A thread holds kColumns adjacent columns of kChunks chunks; the state stays in registers through the rows and is written
// once per row. Blocks of one key head convolve the same q and k; the last of them to arrive shifts the window of both, when
// none still reads it. The window of a value column is its own block's.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "abi.h"
#include "sm90.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

constexpr int kD = 128, kRows = 8, kTaps = 4, kChunk = 8;
constexpr float kEpsilon = 1e-6f;

enum Type { kFloat16 = 0, kBfloat16 = 1, kFloat32 = 2 };

__device__ __forceinline__ float widened(__half x) { return __half2float(x); }
__device__ __forceinline__ float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float widened(float x) { return x; }
__device__ __forceinline__ void narrow(float x, __half& to) { to = __float2half_rn(x); }
__device__ __forceinline__ void narrow(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }
// For the few values whose type is not part of the kernel's.
__device__ __forceinline__ float load(const void* from, int64_t at, int type) {
  if (type == kFloat16) return widened(static_cast<const __half*>(from)[at]);
  if (type == kBfloat16) return widened(static_cast<const __nv_bfloat16*>(from)[at]);
  return static_cast<const float*>(from)[at];
}

struct Operands {
  const void *qkv, *a, *b, *conv_weight, *a_log, *dt_bias;
  void *window, *out;
  float* pool;
  unsigned int* arrived;  // [key heads], zero between launches
  const int *slot_table, *selector;
  int rows, key_heads, value_heads, slots;
  int64_t qkv_stride, a_stride, b_stride;
  int type, weight_type, a_log_type, dt_bias_type;
};

// The inputs of one channel, oldest first: three from the window, then the rows; and its taps.
template <typename A, typename W>
struct Channel {
  A x[kTaps - 1 + kRows];
  W tap[kTaps];
  __device__ __forceinline__ void load_all(const Operands& o, int channel, int start) {
    const A* window = static_cast<const A*>(o.window) + static_cast<int64_t>(channel) * (kTaps + o.slots - 2) + start;
#pragma unroll
    for (int i = 0; i < kTaps - 1; i++) x[i] = window[i];
#pragma unroll
    for (int r = 0; r < kRows; r++) x[kTaps - 1 + r] = static_cast<const A*>(o.qkv)[min(r, o.rows - 1) * o.qkv_stride + channel];
#pragma unroll
    for (int i = 0; i < kTaps; i++) tap[i] = static_cast<const W*>(o.conv_weight)[static_cast<int64_t>(channel) * kTaps + i];
  }
  // The window afterwards: all inputs but the oldest.
  __device__ __forceinline__ void shift(const Operands& o, int channel) const {
    A* window = static_cast<A*>(o.window) + static_cast<int64_t>(channel) * (kTaps + o.slots - 2);
#pragma unroll
    for (int i = 1; i < kTaps - 1 + kRows; i++)
      if (i < kTaps - 1 + o.rows) window[i - 1] = x[i];
  }
  // SiLU of the convolution of row r, rounded.
  __device__ __forceinline__ float convolved(int r) const {
    float sum = widened(x[r]) * widened(tap[0]);
#pragma unroll
    for (int i = 1; i < kTaps; i++) sum = fmaf(widened(x[r + i]), widened(tap[i]), sum);
    A out;
    narrow(__fdividef(sum, 1.0f + __expf(-sum)), out);
    return widened(out);
  }
};

__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

template <int kCount>
struct alignas(4 * kCount) Columns { float x[kCount]; };

template <typename A, typename W, int kColumns, int kLanes, int kChunks, int kWarps>
__global__ void __launch_bounds__(kWarps * 32) verify(const __grid_constant__ Operands o) {
  constexpr int kTile = kColumns * kLanes, kSlots = 32 / kLanes, kThreads = kWarps * 32;
  static_assert(kSlots * kChunks * kWarps * kChunk == kD, "chunks of 8 keys");
  __shared__ __align__(16) float q_s[kRows][kD], k_s[kRows][kD], v_s[kRows][kTile];
  __shared__ float part[2][kRows][kD / 32], decay_s[kRows], beta_s[kRows];
  __shared__ bool last;
  __shared__ Columns<kColumns> sums[2][kWarps][kLanes];
  const int head = blockIdx.y, tile = blockIdx.x * kTile, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int group = o.value_heads / o.key_heads, key_head = head / group;
  const int slot = lane / kLanes, column = lane % kLanes, key = (warp * kSlots + slot) * kChunks * kChunk;
  sm90::wait_for_previous();
  sm90::launch_next();
  const int entry = lane < o.slots ? __ldg(o.slot_table + lane) : -1, start = __ldg(o.selector) - 1;

  Columns<kColumns> s[kChunks * kChunk];
  const int64_t at = static_cast<int64_t>(head) * kD * kD + key * kD + tile + column * kColumns, slot_size = static_cast<int64_t>(o.value_heads) * kD * kD;
  const float* from = o.pool + __shfl_sync(~0u, entry, start) * slot_size + at;
  constexpr int kEach = kD / kThreads;
  const int q_channel = key_head * kD + threadIdx.x, k_channel = q_channel + o.key_heads * kD, v_channel = (2 * o.key_heads + head) * kD + tile + threadIdx.x;
  Channel<A, W> q_own[kEach], k_own[kEach], v_own;
#pragma unroll
  for (int i = 0; i < kEach; i++) q_own[i].load_all(o, q_channel + i * kThreads, start), k_own[i].load_all(o, k_channel + i * kThreads, start);
  if (threadIdx.x < kTile) v_own.load_all(o, v_channel, start);
#pragma unroll
  for (int i = 0; i < kChunks * kChunk; i++) s[i] = *reinterpret_cast<const Columns<kColumns>*>(from + i * kD);
  if (threadIdx.x < o.rows) {
    const int r = threadIdx.x;
    decay_s[r] = expf(-expf(load(o.a_log, head, o.a_log_type)) * softplus(widened(static_cast<const A*>(o.a)[r * o.a_stride + head]) + load(o.dt_bias, head, o.dt_bias_type)));
    beta_s[r] = 1.0f / (1.0f + expf(-widened(static_cast<const A*>(o.b)[r * o.b_stride + head])));
  }
  if (threadIdx.x < kTile) {
#pragma unroll
    for (int r = 0; r < kRows; r++) v_s[r][threadIdx.x] = v_own.convolved(r);
    v_own.shift(o, v_channel);
  }
#pragma unroll
  for (int i = 0; i < kEach; i++)
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      const float q = q_own[i].convolved(r), k = k_own[i].convolved(r);
      float q_square = q * q, k_square = k * k;
#pragma unroll
      for (int distance = 16; distance > 0; distance >>= 1) q_square += __shfl_xor_sync(~0u, q_square, distance), k_square += __shfl_xor_sync(~0u, k_square, distance);
      q_s[r][i * kThreads + threadIdx.x] = q, k_s[r][i * kThreads + threadIdx.x] = k;
      if (lane == 0) part[0][r][i * kWarps + warp] = q_square, part[1][r][i * kWarps + warp] = k_square;
    }
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(o.arrived + key_head, 1u) == static_cast<unsigned>(group * gridDim.x - 1);
    if (last) o.arrived[key_head] = 0;
  }
  // 1 / |q| and 1 / |k| of every row; q also by 128^-1/2.
  auto inverse = [&](const float (&squares)[kD / 32]) { return rsqrtf((squares[0] + squares[1]) + (squares[2] + squares[3]) + kEpsilon); };

  // The tree over the chunks: chunks of this thread, then lanes `kLanes` apart, then warps.
  auto total = [&](float (&chunk)[kChunks][kColumns], int buffer) {
    Columns<kColumns> sum;
#pragma unroll
    for (int i = 0; i < kColumns; i++) {
      float x = chunk[0][i];
      if constexpr (kChunks == 2) x += chunk[1][i];
#pragma unroll
      for (int distance = kLanes; distance < 32; distance *= 2) x += __shfl_xor_sync(~0u, x, distance);
      sum.x[i] = x;
    }
    if constexpr (kWarps == 4) {
      if (slot == 0) sums[buffer][warp][column] = sum;
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kColumns; i++)
        sum.x[i] = (sums[buffer][0][column].x[i] + sums[buffer][1][column].x[i]) + (sums[buffer][2][column].x[i] + sums[buffer][3][column].x[i]);
    }
    return sum;
  };
  for (int r = 0; r < o.rows; r++) {
    const float decay = decay_s[r], beta = beta_s[r], q_scale = inverse(part[0][r]) * 0.08838834764831845f, k_scale = inverse(part[1][r]);
    const int its_slot = __shfl_sync(~0u, entry, r);
    float chunk[kChunks][kColumns] = {};
#pragma unroll
    for (int i = 0; i < kChunks * kChunk; i++) {
      const float k = k_s[r][key + i] * k_scale;
#pragma unroll
      for (int j = 0; j < kColumns; j++) s[i].x[j] = decay * s[i].x[j], chunk[i / kChunk][j] = fmaf(k, s[i].x[j], chunk[i / kChunk][j]);
    }
    Columns<kColumns> delta = total(chunk, 0);
#pragma unroll
    for (int j = 0; j < kColumns; j++) delta.x[j] = beta * (v_s[r][column * kColumns + j] - delta.x[j]);
    float* to = o.pool + its_slot * slot_size + at;
#pragma unroll
    for (int i = 0; i < kChunks; i++)
#pragma unroll
      for (int j = 0; j < kColumns; j++) chunk[i][j] = 0;
#pragma unroll
    for (int i = 0; i < kChunks * kChunk; i++) {
      const float k = k_s[r][key + i] * k_scale, q = q_s[r][key + i] * q_scale;
#pragma unroll
      for (int j = 0; j < kColumns; j++) s[i].x[j] = fmaf(k, delta.x[j], s[i].x[j]), chunk[i / kChunk][j] = fmaf(q, s[i].x[j], chunk[i / kChunk][j]);
      if (its_slot >= 0) *reinterpret_cast<Columns<kColumns>*>(to + i * kD) = s[i];
    }
    const Columns<kColumns> out = total(chunk, 1);
    if (warp == 0 && slot == 0) {
      A* its_out = static_cast<A*>(o.out) + (static_cast<int64_t>(r) * o.value_heads + head) * kD + tile + column * kColumns;
#pragma unroll
      for (int j = 0; j < kColumns; j++) narrow(out.x[j], its_out[j]);
    }
  }
  __syncthreads();
  if (!last) return;
#pragma unroll
  for (int i = 0; i < kEach; i++) q_own[i].load_all(o, q_channel + i * kThreads, start), k_own[i].load_all(o, k_channel + i * kThreads, start);
#pragma unroll
  for (int i = 0; i < kEach; i++) q_own[i].shift(o, q_channel + i * kThreads), k_own[i].shift(o, k_channel + i * kThreads);
}

#if GDN_TILE == 16
constexpr int kBlock = 32;
template <typename A, typename W> constexpr auto kKernel = verify<A, W, 4, 4, 2, 1>;
#else
constexpr int kBlock = 128;
template <typename A, typename W> constexpr auto kKernel = verify<A, W, 4, 8, 1, 4>;
#endif

template <typename A>
auto kernel_for(int weight_type) { return weight_type == kFloat32 ? kKernel<A, float> : kKernel<A, A>; }

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

// Bytes of workspace; it must be zero before its first use, and one stream at a time may use it.
EXPORT int64_t ENTRY(workspace_bytes)(int key_heads, int) { return static_cast<int64_t>(key_heads) * 4; }

// Strides count elements between rows; types: 0 FP16, 1 BF16, 2 FP32, in the order activations (not FP32), conv_weight (that of
// the activations or FP32), a_log, dt_bias; at most 32 slots.
EXPORT int ENTRY(run)(const void* qkv, const void* a, const void* b, const void* conv_weight, const void* a_log, const void* dt_bias, void* window,
                      void* pool, const void* slot_table, const void* selector, void* out, void* workspace, const int64_t* strides,
                      const int* types, int rows, int key_heads, int value_heads, int slots, void* stream) {
  Operands o{qkv, a, b, conv_weight, a_log, dt_bias, window, out, static_cast<float*>(pool), static_cast<unsigned int*>(workspace),
             static_cast<const int*>(slot_table), static_cast<const int*>(selector), rows, key_heads, value_heads, slots,
             strides[0], strides[1], strides[2], types[0], types[1], types[2], types[3]};
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  auto kernel = types[0] == kFloat16 ? kernel_for<__half>(types[1]) : kernel_for<__nv_bfloat16>(types[1]);
  config.blockDim = kBlock;
  config.gridDim = dim3(kD / GDN_TILE, value_heads);
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, o);
  return error != cudaSuccess ? error : cudaGetLastError();
}
