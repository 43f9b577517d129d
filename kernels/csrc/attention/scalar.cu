// Verify attention per query head in FP32 scalars: the plain parent that the tensor-core schedule is measured against.
//
// A block takes one query head and one run of tokens; its warps take every eighth token, a lane D / 32 adjacent dims. Per row:
//   score = FP32 fma over the lane's dims ascending, then a butterfly over lanes (distance 16, 8, 4, 2, 1), times scale * log2 e
//   online softmax with the running maximum; value sums by FP32 fma, tokens ascending within a warp
//   warps in order, then splits in order by the last block of the head to arrive. One rounding. Lengths are read on the device.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>

#include "abi.h"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

constexpr int kWarps = 8, kRows = 8;
constexpr float kNone = -1e30f;

struct Operands {
  const void *q, *k, *v;
  const int *page_table, *row_lengths;
  void* out;
  float *partial, *maximum, *sum;  // [q heads][splits][8][D], [q heads][splits][8] twice
  unsigned int* arrived;           // [q heads], zero between launches
  int64_t k_page, v_page, k_token, v_token, k_head, v_head;  // strides in elements
  int rows, q_heads, group, page_size;
  float scale;  // times log2 e
};

template <typename T>
__device__ __forceinline__ float widen(T x) { return static_cast<float>(x); }

// `kCount` adjacent values at `from`, aligned to their size.
template <typename T, int kCount>
__device__ __forceinline__ void load(const T* from, float (&to)[kCount]) {
  struct alignas(sizeof(T) * kCount) Pack { T value[kCount]; };
  const Pack p = *reinterpret_cast<const Pack*>(from);
#pragma unroll
  for (int i = 0; i < kCount; i++) to[i] = widen(p.value[i]);
}

// Sums of eight values over the warp, all of them in every lane.
__device__ __forceinline__ void sum_over_lanes(float (&x)[kRows]) {
#pragma unroll
  for (int distance = 16; distance > 0; distance >>= 1)
#pragma unroll
    for (int r = 0; r < kRows; r++) x[r] += __shfl_xor_sync(~0u, x[r], distance);
}

template <typename Q, typename KV, int kD>
__global__ void __launch_bounds__(kWarps * 32) scalar(const Operands o) {
  constexpr int kLane = kD / 32;
  __shared__ float acc_s[kWarps][kD], max_s[kWarps][kRows], sum_s[kWarps][kRows];
  __shared__ bool last;
  const int q_head = blockIdx.y, head = q_head / o.group, split = blockIdx.x, splits = gridDim.x;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  float q[kRows][kLane], acc[kRows][kLane] = {}, top[kRows], sum[kRows] = {};
  int length[kRows], longest = 0;
#pragma unroll
  for (int r = 0; r < kRows; r++) {
    length[r] = r < o.rows ? __ldg(o.row_lengths + r) : 0;
    longest = max(longest, length[r]), top[r] = kNone;
    if (r < o.rows) load(static_cast<const Q*>(o.q) + (static_cast<int64_t>(r) * o.q_heads + q_head) * kD + lane * kLane, q[r]);
    else for (int i = 0; i < kLane; i++) q[r][i] = 0;
  }
  const int each = (longest + splits - 1) / splits, end = min(longest, (split + 1) * each);
  for (int token = split * each + warp; token < end; token += kWarps) {
    const int page = token / o.page_size, at = token - page * o.page_size;
    const int64_t id = __ldg(o.page_table + page);
    float k[kLane], v[kLane], score[kRows];
    load(static_cast<const KV*>(o.k) + id * o.k_page + at * o.k_token + head * o.k_head + lane * kLane, k);
    load(static_cast<const KV*>(o.v) + id * o.v_page + at * o.v_token + head * o.v_head + lane * kLane, v);
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      score[r] = 0;
#pragma unroll
      for (int i = 0; i < kLane; i++) score[r] = fmaf(q[r][i], k[i], score[r]);
    }
    sum_over_lanes(score);
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      if (token >= length[r]) continue;
      const float s = score[r] * o.scale;
      if (s > top[r]) {
        const float shrink = exp2f(top[r] - s);
        top[r] = s, sum[r] *= shrink;
#pragma unroll
        for (int i = 0; i < kLane; i++) acc[r][i] *= shrink;
      }
      const float p = exp2f(s - top[r]);
      sum[r] += p;
#pragma unroll
      for (int i = 0; i < kLane; i++) acc[r][i] = fmaf(p, v[i], acc[r][i]);
    }
  }

  const int64_t slot = (static_cast<int64_t>(q_head) * splits + split) * kRows;
  if (lane == 0)
    for (int r = 0; r < kRows; r++) max_s[warp][r] = top[r], sum_s[warp][r] = sum[r];
#pragma unroll
  for (int r = 0; r < kRows; r++) {
    if (r >= o.rows) break;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kLane; i++) acc_s[warp][lane * kLane + i] = acc[r][i];
    __syncthreads();
    float m = kNone, l = 0;
    for (int w = 0; w < kWarps; w++) m = fmaxf(m, max_s[w][r]);
    for (int d = threadIdx.x; d < kD; d += kWarps * 32) {
      float a = 0;
      for (int w = 0; w < kWarps; w++) a = fmaf(exp2f(max_s[w][r] - m), acc_s[w][d], a);
      __stcg(o.partial + (slot + r) * kD + d, a);
    }
    if (threadIdx.x == 0) {
      for (int w = 0; w < kWarps; w++) l = fmaf(exp2f(max_s[w][r] - m), sum_s[w][r], l);
      __stcg(o.maximum + slot + r, m), __stcg(o.sum + slot + r, l);
    }
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(o.arrived + q_head, 1u) == static_cast<unsigned>(splits - 1);
    if (last) o.arrived[q_head] = 0;
    __threadfence();
  }
  __syncthreads();
  if (!last) return;
  const int64_t first = static_cast<int64_t>(q_head) * splits * kRows;
  for (int i = threadIdx.x; i < o.rows * kD; i += kWarps * 32) {
    const int r = i / kD, d = i % kD;
    float m = kNone, l = 0, a = 0;
    for (int s = 0; s < splits; s++) m = fmaxf(m, __ldcg(o.maximum + first + s * kRows + r));
#pragma unroll 4
    for (int s = 0; s < splits; s++) {
      const float weight = exp2f(__ldcg(o.maximum + first + s * kRows + r) - m);
      l = fmaf(weight, __ldcg(o.sum + first + s * kRows + r), l), a = fmaf(weight, __ldcg(o.partial + (first + s * kRows + r) * kD + d), a);
    }
    static_cast<Q*>(o.out)[(static_cast<int64_t>(r) * o.q_heads + q_head) * kD + d] = static_cast<Q>(l > 0 ? a / l : 0.0f);
  }
}

int64_t counter_bytes(int heads) { return (static_cast<int64_t>(heads) * 4 + 127) / 128 * 128; }

template <typename Q, typename KV>
auto kernel_for(int head_dim) {
  return head_dim == 64 ? scalar<Q, KV, 64> : head_dim == 128 ? scalar<Q, KV, 128> : head_dim == 256 ? scalar<Q, KV, 256> : nullptr;
}
template <typename Q>
auto kernel_for(int kv_type, int head_dim) {
  return kv_type == 0 ? kernel_for<Q, __nv_fp8_e4m3>(head_dim) : kv_type == 1 ? kernel_for<Q, __half>(head_dim) : kernel_for<Q, __nv_bfloat16>(head_dim);
}

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

// Bytes of workspace; it must be zero before its first use, and one stream at a time may use it.
EXPORT int64_t ENTRY(workspace_bytes)(int q_heads, int head_dim, int splits) {
  return counter_bytes(q_heads) + static_cast<int64_t>(q_heads) * splits * kRows * (head_dim + 2) * 4;
}

// q_type: 0 FP16, 1 BF16; kv_type: 0 E4M3, 1 FP16, 2 BF16; strides [page, token, head] in elements, dims contiguous.
EXPORT int ENTRY(run)(const void* q, const void* k, const void* v, const void* page_table, const void* row_lengths, void* out, void* workspace,
                      const int64_t* k_strides, const int64_t* v_strides, int q_type, int kv_type, int rows, int q_heads, int kv_heads,
                      int head_dim, int page_size, float scale, int splits, void* stream) {
  float* partial = reinterpret_cast<float*>(static_cast<uint8_t*>(workspace) + counter_bytes(q_heads));
  float* maximum = partial + static_cast<int64_t>(q_heads) * splits * kRows * head_dim;
  Operands o{q, k, v, static_cast<const int*>(page_table), static_cast<const int*>(row_lengths), out, partial, maximum,
             maximum + static_cast<int64_t>(q_heads) * splits * kRows, static_cast<unsigned int*>(workspace), k_strides[0], v_strides[0],
             k_strides[1], v_strides[1], k_strides[2], v_strides[2], rows, q_heads, q_heads / kv_heads, page_size, scale * 1.4426950408889634f};
  auto kernel = q_type == 0 ? kernel_for<__half>(kv_type, head_dim) : kernel_for<__nv_bfloat16>(kv_type, head_dim);
  if (kernel == nullptr) return cudaErrorInvalidValue;
  kernel<<<dim3(splits, q_heads), kWarps * 32, 0, static_cast<cudaStream_t>(stream)>>>(o);
  return cudaGetLastError();
}
