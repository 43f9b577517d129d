// GDN verification in two launches: `convolve` per head, then `recur` per value head and tile of value columns.
//
// Columns of the state do not mix, so the tile is free; the order of every sum over the 128 keys is fixed for all tiles:
// 16 chunks of 8 consecutive keys by ascending fma from zero, then a balanced tree over the chunks, neighbours first.
// A thread holds kColumns adjacent columns of kChunks chunks; the state stays in registers through the rows and is written
// once per row. `recur` reads its first state while `convolve` still runs.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "abi.h"
#include "gdn.cuh"
#include "sm90.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

using namespace gdn;

__device__ __forceinline__ void store(void* to, int64_t at, int type, float x) {
  if (type == kFloat16) static_cast<__half*>(to)[at] = __float2half_rn(x);
  else if (type == kBfloat16) static_cast<__nv_bfloat16*>(to)[at] = __float2bfloat16_rn(x);
  else static_cast<float*>(to)[at] = x;
}
__device__ __forceinline__ float rounded(float x, int type) {
  return type == kFloat16 ? __half2float(__float2half_rn(x)) : type == kBfloat16 ? __bfloat162float(__float2bfloat16_rn(x)) : x;
}

// `unit` [rows][channels] FP32: q and k of length 1 (q / sqrt 128), v as convolved.

// One head of q, k or v: a channel per thread.
__global__ void __launch_bounds__(kD) convolve(const __grid_constant__ Operands o, float* unit) {
  __shared__ float part[kRows][kD / 32];
  sm90::wait_for_previous();
  sm90::launch_next();
  const int channel = blockIdx.x * kD + threadIdx.x, channels = (2 * o.key_heads + o.value_heads) * kD, columns = kTaps - 1 + o.slots - 1;
  const int64_t row = static_cast<int64_t>(channel) * columns;
  const int start = __ldg(o.selector) - 1;
  float input[kTaps - 1 + kRows], tap[kTaps], y[kRows];
#pragma unroll
  for (int i = 0; i < kTaps - 1; i++) input[i] = load(o.window, row + start + i, o.type);
#pragma unroll
  for (int r = 0; r < kRows; r++) input[kTaps - 1 + r] = r < o.rows ? load(o.qkv, r * o.qkv_stride + channel, o.type) : 0.0f;
#pragma unroll
  for (int i = 0; i < kTaps; i++) tap[i] = load(o.conv_weight, static_cast<int64_t>(channel) * kTaps + i, o.weight_type);
#pragma unroll
  for (int i = 1; i < kTaps - 1 + kRows; i++)
    if (i < kTaps - 1 + o.rows) store(o.window, row + i - 1, o.type, input[i]);
#pragma unroll
  for (int r = 0; r < kRows; r++) {
    float sum = input[r] * tap[0];
#pragma unroll
    for (int i = 1; i < kTaps; i++) sum = fmaf(input[r + i], tap[i], sum);
    y[r] = rounded(sum / (1.0f + expf(-sum)), o.type);
  }
  if (blockIdx.x < 2 * o.key_heads) {
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      float square = y[r] * y[r];
#pragma unroll
      for (int distance = 16; distance > 0; distance >>= 1) square += __shfl_xor_sync(~0u, square, distance);
      if ((threadIdx.x & 31) == 0) part[r][threadIdx.x >> 5] = square;
    }
    __syncthreads();
    const float scale = blockIdx.x < o.key_heads ? kRootOfKeys : 1.0f;
#pragma unroll
    for (int r = 0; r < kRows; r++) y[r] = y[r] / sqrtf((part[r][0] + part[r][1]) + (part[r][2] + part[r][3]) + kEpsilon) * scale;
  }
#pragma unroll
  for (int r = 0; r < kRows; r++)
    if (r < o.rows) unit[static_cast<int64_t>(r) * channels + channel] = y[r];
}

template <int kColumns, int kLanes, int kChunks, int kWarps>
__global__ void __launch_bounds__(kWarps * 32) recur(const __grid_constant__ Operands o, const float* unit) {
  constexpr int kTile = kColumns * kLanes, kSlots = 32 / kLanes, kThreads = kWarps * 32;
  static_assert(kSlots * kChunks * kWarps * kChunk == kD, "chunks of 8 keys");
  __shared__ __align__(16) float q_s[kRows][kD], k_s[kRows][kD], v_s[kRows][kTile];
  __shared__ float decay_s[kRows], beta_s[kRows];
  __shared__ int slot_s[kRows];
  __shared__ Columns<kColumns> sums[2][kWarps][kLanes];
  const int head = blockIdx.y, tile = blockIdx.x * kTile, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int key_head = head / (o.value_heads / o.key_heads), channels = (2 * o.key_heads + o.value_heads) * kD;
  const int slot = lane / kLanes, column = lane % kLanes, key = (warp * kSlots + slot) * kChunks * kChunk;

  Columns<kColumns> s[kChunks * kChunk];
  const int64_t at = static_cast<int64_t>(head) * kD * kD + key * kD + tile + column * kColumns, slot_size = static_cast<int64_t>(o.value_heads) * kD * kD;
  const float* from = o.pool + __ldg(o.slot_table + __ldg(o.selector) - 1) * slot_size + at;
#pragma unroll
  for (int i = 0; i < kChunks * kChunk; i++) s[i] = *reinterpret_cast<const Columns<kColumns>*>(from + i * kD);
  if (threadIdx.x < o.rows) {
    const int r = threadIdx.x;
    slot_s[r] = o.slot_table[r];
    decay_s[r] = expf(-expf(load(o.a_log, head, o.a_log_type)) * softplus(load(o.a, r * o.a_stride + head, o.type) + load(o.dt_bias, head, o.dt_bias_type)));
    beta_s[r] = 1.0f / (1.0f + expf(-load(o.b, r * o.b_stride + head, o.type)));
  }
  sm90::wait_for_previous();
  sm90::launch_next();
  constexpr int kQuads = kRows * kD / 4 / kThreads, kSingles = (kRows * kTile + kThreads - 1) / kThreads;
  float4 q_own[kQuads], k_own[kQuads];
  float v_own[kSingles];
#pragma unroll
  for (int i = 0; i < kQuads; i++) {
    const int r = (i * kThreads + threadIdx.x) / (kD / 4), at = (i * kThreads + threadIdx.x) % (kD / 4);
    const float4* q = reinterpret_cast<const float4*>(unit + static_cast<int64_t>(r) * channels + key_head * kD) + at;
    if (r < o.rows) q_own[i] = __ldcg(q), k_own[i] = __ldcg(q + o.key_heads * (kD / 4));
  }
#pragma unroll
  for (int i = 0; i < kSingles; i++) {
    const int r = (i * kThreads + threadIdx.x) / kTile, at = (i * kThreads + threadIdx.x) % kTile;
    if (r < o.rows) v_own[i] = __ldcg(unit + static_cast<int64_t>(r) * channels + (2 * o.key_heads + head) * kD + tile + at);
  }
#pragma unroll
  for (int i = 0; i < kQuads; i++) {
    const int r = (i * kThreads + threadIdx.x) / (kD / 4), at = (i * kThreads + threadIdx.x) % (kD / 4);
    if (r < o.rows) reinterpret_cast<float4*>(q_s[r])[at] = q_own[i], reinterpret_cast<float4*>(k_s[r])[at] = k_own[i];
  }
#pragma unroll
  for (int i = 0; i < kSingles; i++) {
    const int r = (i * kThreads + threadIdx.x) / kTile, at = (i * kThreads + threadIdx.x) % kTile;
    if (r < o.rows) v_s[r][at] = v_own[i];
  }
  __syncthreads();

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
    const float decay = decay_s[r], beta = beta_s[r];
    float chunk[kChunks][kColumns] = {};
#pragma unroll
    for (int i = 0; i < kChunks * kChunk; i++) {
      const float k = k_s[r][key + i];
#pragma unroll
      for (int j = 0; j < kColumns; j++) s[i].x[j] = decay * s[i].x[j], chunk[i / kChunk][j] = fmaf(k, s[i].x[j], chunk[i / kChunk][j]);
    }
    Columns<kColumns> delta = total(chunk, 0);
#pragma unroll
    for (int j = 0; j < kColumns; j++) delta.x[j] = beta * (v_s[r][column * kColumns + j] - delta.x[j]);
    float* to = o.pool + slot_s[r] * slot_size + at;
    const bool kept = slot_s[r] >= 0;
#pragma unroll
    for (int i = 0; i < kChunks; i++)
#pragma unroll
      for (int j = 0; j < kColumns; j++) chunk[i][j] = 0;
#pragma unroll
    for (int i = 0; i < kChunks * kChunk; i++) {
      const float k = k_s[r][key + i], q = q_s[r][key + i];
#pragma unroll
      for (int j = 0; j < kColumns; j++) s[i].x[j] = fmaf(k, delta.x[j], s[i].x[j]), chunk[i / kChunk][j] = fmaf(q, s[i].x[j], chunk[i / kChunk][j]);
      if (kept) *reinterpret_cast<Columns<kColumns>*>(to + i * kD) = s[i];
    }
    const Columns<kColumns> out = total(chunk, 1);
    if (warp == 0 && slot == 0)
#pragma unroll
      for (int j = 0; j < kColumns; j++)
        store(o.out, (static_cast<int64_t>(r) * o.value_heads + head) * kD + tile + column * kColumns + j, o.type, out.x[j]);
  }
}

cudaError_t launch_on(const Operands& o, void* workspace, void* stream) {
  float* unit = static_cast<float*>(workspace);
  const cudaError_t error = launch(convolve, dim3(2 * o.key_heads + o.value_heads), kD, 0, stream, o, unit);
  if (error != cudaSuccess) return error;
#if GDN_TILE == 2
  constexpr auto kernel = recur<1, 2, 1, 1>;
#elif GDN_TILE == 8
  constexpr auto kernel = recur<4, 2, 1, 1>;
#elif GDN_TILE == 16
  constexpr auto kernel = recur<4, 4, 2, 1>;
#else
  constexpr auto kernel = recur<4, 8, 1, 4>;
#endif
  return launch(kernel, dim3(kD / GDN_TILE, o.value_heads), GDN_TILE == 32 ? 128 : 32, 0, stream, o, static_cast<const float*>(unit));
}

}

EXPORT int ENTRY(revision)() { return 1; }

// Bytes of workspace; nothing is kept in it between runs.
EXPORT int64_t ENTRY(workspace_bytes)(int key_heads, int value_heads) { return static_cast<int64_t>(gdn::kRows) * (2 * key_heads + value_heads) * gdn::kD * 4; }

#include "gdn_entry.cuh"
