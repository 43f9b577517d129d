// Sums of squares in the order of torch's RMSNorm (2.9 to 2.11: 128 threads, four values at once), and what the kernels that
// stand between projections share: types, roundings, the launch.
//
// Thread t of 128 takes values 4 t .. 4 t + 3, then those 512 further, by ascending fma from zero; lanes are added 16, 8, 4, 2, 1
// apart; then warps 0 + 2 and 1 + 3, then those two. Rows of 128 need one warp, rows of 256 two: one warp does them as both.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "sm90.cuh"

namespace rms {

constexpr int kPiece = 4;  // values a thread loads at once

__device__ __forceinline__ float widened(__half x) { return __half2float(x); }
__device__ __forceinline__ float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void narrow(float x, __half& to) { to = __float2half_rn(x); }
__device__ __forceinline__ void narrow(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }
template <typename A>
__device__ __forceinline__ float rounded(float x) {
  A out;
  narrow(x, out);
  return widened(out);
}

// Four values of 16 bits.
template <typename A>
struct alignas(8) Piece {
  A x[kPiece];
  __device__ __forceinline__ float operator[](int i) const { return widened(x[i]); }
  __device__ __forceinline__ void set(int i, float v) { narrow(v, x[i]); }
};
// Out of the second-level cache: another multiprocessor may have written it just now.
template <typename A>
__device__ __forceinline__ Piece<A> load(const A* from) {
  const uint2 v = __ldcg(reinterpret_cast<const uint2*>(from));
  return *reinterpret_cast<const Piece<A>*>(&v);
}
template <typename A>
__device__ __forceinline__ void store(A* to, const Piece<A>& v) { *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(&v); }

__device__ __forceinline__ float square(const float (&v)[kPiece], float sum) {
#pragma unroll
  for (int i = 0; i < kPiece; i++) sum = fmaf(v[i], v[i], sum);
  return sum;
}
// Every lane has the sum: both lanes of a pair add the same two values.
__device__ __forceinline__ float over_lanes(float sum) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
  return sum;
}
__device__ __forceinline__ float inverse_root(float sum, int width, float eps) { return rsqrtf(__fadd_rn(sum / static_cast<float>(width), eps)); }

// exp(-x) as torch's sigmoid and SiLU take it.
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float silu(float x) { return x / (1.0f + expf(-x)); }

// One launch of `kernel`, begun beside the previous kernel of the stream: each calls `sm90::wait_for_previous` before it reads
// what a kernel wrote, and before it writes.
template <typename K, typename... A>
cudaError_t launch(K kernel, dim3 grid, int threads, void* stream, const A&... operands) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = threads;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, operands...);
  return error != cudaSuccess ? error : cudaGetLastError();
}

}  // namespace rms
