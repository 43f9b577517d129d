// What the kernels of GDN verification share: operands, the arithmetic of the convolution and the gates, how rows of q and k lie
// in shared memory, and the launch.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "sm90.cuh"

namespace gdn {

constexpr int kD = 128, kRows = 8, kTaps = 4, kChunk = 8, kMostSlots = 8;
constexpr float kEpsilon = 1e-6f, kRootOfKeys = 0.08838834764831845f;  // 128^-1/2
// Rows of q and k in shared memory: four words after every 16, so that neither reader meets a bank twice.
constexpr int kWide = kD + kD / 16 * 4 + 4;
__device__ __forceinline__ constexpr int place(int key) { return key + key / 16 * 4; }

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

// x / d for d from 1 to 2^120, correctly rounded but for one in millions: the library's division without its slow path.
__device__ __forceinline__ float quotient(float x, float d) {
  float r = sm90::reciprocal_approx(d);
  r = fmaf(r, fmaf(-d, r, 1.0f), r);
  const float q = x * r;
  return fmaf(fmaf(-d, q, x), r, q);
}
// 1 / sqrt(x), to the last bit or the one before it.
__device__ __forceinline__ float inverse_root(float x) {
  const float r = rsqrtf(x);
  return fmaf(0.5f * r, fmaf(-x * r, r, 1.0f), r);
}

struct Operands {
  const void *qkv, *a, *b, *conv_weight, *a_log, *dt_bias;
  void *window, *out;
  float* pool;
  unsigned int* arrived;  // [key heads], zero between launches, where one launch does everything
  const int *slot_table, *selector;
  int rows, key_heads, value_heads, slots;
  int64_t qkv_stride, a_stride, b_stride;
  int type, weight_type, a_log_type, dt_bias_type;
};

template <int kCount>
struct alignas(4 * kCount) Columns { float x[kCount]; };

// Four taps of a channel.
template <typename W>
struct alignas(4 * sizeof(W)) Taps { W x[kTaps]; };

// SiLU of a convolution, rounded.
template <typename A>
__device__ __forceinline__ float silu(float x) {
  A out;
  narrow(quotient(x, 1.0f + expf(fminf(-x, 80.0f))), out);
  return widened(out);
}

__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

// One launch of `kernel`, begun beside the previous kernel of the stream.
template <typename K, typename... A>
cudaError_t launch(K kernel, dim3 grid, int threads, int size_bytes, void* stream, const A&... operands) {
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, size_bytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = threads;
  config.dynamicSmemBytes = size_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  error = cudaLaunchKernelEx(&config, kernel, operands...);
  return error != cudaSuccess ? error : cudaGetLastError();
}

}  // namespace gdn
