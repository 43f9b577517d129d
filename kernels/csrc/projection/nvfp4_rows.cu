// NVFP4 x FP16 for M <= 8 rows from the checkpoint's own layout, one warp per weight row: the plain parent of the fast schedules.
//
// A lane takes 32 adjacent k out of every 1024. Codes are decoded by a table, times their scale exactly; products and sums are
// FP32 fma, k ascending within the lane, then a butterfly over lanes (distance 16, 8, 4, 2, 1), then the global scale; one
// rounding to FP16.
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>

#include "abi.h"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

constexpr int kWarps = 8, kRows = 8;

__constant__ float kValues[16] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6};

struct Operands {
  const uint8_t *packed, *scales;
  const __half* x;
  __half* y;
  int m, n, k, x_stride, y_stride;
  float scale;
};

__global__ void __launch_bounds__(kWarps * 32) rows(const __grid_constant__ Operands o) {
  __shared__ float value[16];
  if (threadIdx.x < 16) value[threadIdx.x] = kValues[threadIdx.x];
  __syncthreads();
  const int n = blockIdx.x * kWarps + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  if (n >= o.n) return;
  const uint8_t *packed = o.packed + static_cast<int64_t>(n) * (o.k / 2), *scales = o.scales + static_cast<int64_t>(n) * (o.k / 16);
  float sum[kRows] = {};
  for (int k = lane * 32; k < o.k; k += 1024) {
    const uint4 codes = __ldg(reinterpret_cast<const uint4*>(packed + k / 2));
    const uint16_t two = __ldg(reinterpret_cast<const uint16_t*>(scales + k / 16));
    const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      __nv_fp8_e4m3 e4m3;
      e4m3.__x = i < 2 ? two & 0xFF : two >> 8;
      const float scale = static_cast<float>(e4m3);
      float w[8];
#pragma unroll
      for (int j = 0; j < 8; j++) w[j] = value[word[i] >> (4 * j) & 15] * scale;
#pragma unroll
      for (int r = 0; r < kRows; r++) {
        if (r >= o.m) break;
        const uint4 x = __ldg(reinterpret_cast<const uint4*>(o.x + static_cast<int64_t>(r) * o.x_stride + k + i * 8));
        const uint32_t pair[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const float2 f = __half22float2(*reinterpret_cast<const __half2*>(&pair[j]));
          sum[r] = fmaf(w[2 * j], f.x, sum[r]), sum[r] = fmaf(w[2 * j + 1], f.y, sum[r]);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; r++) {
#pragma unroll
    for (int distance = 16; distance > 0; distance >>= 1) sum[r] += __shfl_xor_sync(~0u, sum[r], distance);
    if (lane == 0 && r < o.m) o.y[static_cast<int64_t>(r) * o.y_stride + n] = __float2half_rn(sum[r] * o.scale);
  }
}

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

// packed [>= n][k / 2], scales [>= n][k / 16], k a multiple of 32; x [m][k] and y [m][n] FP16, strides in elements.
EXPORT int ENTRY(run)(const void* packed, const void* scales, const void* x, void* y, int m, int n, int k, int x_stride, int y_stride,
                      float global_scale, void* stream) {
  const Operands o{static_cast<const uint8_t*>(packed), static_cast<const uint8_t*>(scales), static_cast<const __half*>(x),
                   static_cast<__half*>(y), m, n, k, x_stride, y_stride, global_scale};
  rows<<<(n + kWarps - 1) / kWarps, kWarps * 32, 0, static_cast<cudaStream_t>(stream)>>>(o);
  return cudaGetLastError();
}
