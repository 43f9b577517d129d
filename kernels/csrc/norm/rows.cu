// Residual sum and RMSNorm of rows of 16-bit values, a block of 128 threads per row.
//
// s = x + delta, rounded; the squares of s in the order of rms.cuh; y = scale * (s / rms), rounded once. The scale, which no kernel
// writes, is loaded before the previous kernel of the stream has finished.
#include "abi.h"
#include "rms.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

using namespace rms;

constexpr int kThreads = 128, kWarps = kThreads / 32, kStep = kThreads * kPiece;

struct Operands {
  const void *x, *delta;
  const float* scale;
  void *s, *y;
  int64_t x_stride, delta_stride;
  int width;
  float eps;
};

template <typename A, int kPieces, bool kDelta>
__global__ void __launch_bounds__(kThreads) norm(const __grid_constant__ Operands o) {
  __shared__ float of_warp[kWarps];
  sm90::launch_next();
  const int first = threadIdx.x * kPiece;
  float4 scale[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; i++)
    if (first + i * kStep < o.width) scale[i] = __ldg(reinterpret_cast<const float4*>(o.scale + first + i * kStep));
  const int64_t row = blockIdx.x;
  const A *x = static_cast<const A*>(o.x) + row * o.x_stride + first, *delta = static_cast<const A*>(o.delta) + row * o.delta_stride + first;
  sm90::wait_for_previous();

  Piece<A> v[kPieces], d[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; i++)
    if (first + i * kStep < o.width) {
      v[i] = load(x + i * kStep);
      if constexpr (kDelta) d[i] = load(delta + i * kStep);
    }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kPieces; i++)
    if (first + i * kStep < o.width) {
      float wide[kPiece];
#pragma unroll
      for (int j = 0; j < kPiece; j++) {
        if constexpr (kDelta) v[i].set(j, v[i][j] + d[i][j]);
        wide[j] = v[i][j];
      }
      if constexpr (kDelta) store(static_cast<A*>(o.s) + row * o.width + first + i * kStep, v[i]);
      sum = square(wide, sum);
    }
  sum = over_lanes(sum);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  const float inverse = inverse_root((of_warp[0] + of_warp[2]) + (of_warp[1] + of_warp[3]), o.width, o.eps);
#pragma unroll
  for (int i = 0; i < kPieces; i++)
    if (first + i * kStep < o.width) {
      const float by[kPiece] = {scale[i].x, scale[i].y, scale[i].z, scale[i].w};
#pragma unroll
      for (int j = 0; j < kPiece; j++) v[i].set(j, __fmul_rn(by[j], __fmul_rn(inverse, v[i][j])));
      store(static_cast<A*>(o.y) + row * o.width + first + i * kStep, v[i]);
    }
}

template <typename A, int kPieces>
cudaError_t run(const Operands& o, int rows, void* stream) {
  return o.delta ? launch(norm<A, kPieces, true>, dim3(rows), kThreads, stream, o) : launch(norm<A, kPieces, false>, dim3(rows), kThreads, stream, o);
}
template <typename A>
cudaError_t run(const Operands& o, int rows, void* stream) {
  const int pieces = (o.width + kStep - 1) / kStep;
  return pieces <= 1 ? run<A, 1>(o, rows, stream) : pieces <= 4 ? run<A, 4>(o, rows, stream) : pieces <= 10 ? run<A, 10>(o, rows, stream)
                                                                                            : run<A, 16>(o, rows, stream);
}

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

// x, delta (or null) [rows][width], strides in elements; s (not without delta) and y contiguous; type 0 FP16, 1 BF16; width a
// multiple of 4 and at most 8192.
EXPORT int ENTRY(run)(const void* x, const void* delta, const float* scale, void* s, void* y, int64_t x_stride, int64_t delta_stride, int rows,
                      int width, int type, float eps, void* stream) {
  const Operands o{x, delta, scale, s, y, x_stride, delta_stride, width, eps};
  return type == 0 ? ENTRY(code)::run<__half>(o, rows, stream) : ENTRY(code)::run<__nv_bfloat16>(o, rows, stream);
}
