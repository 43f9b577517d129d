// RMSNorm of heads of 128 values times the SiLU of a gate, a warp per head.
//
// Squares in the order of rms.cuh; scale * (x / rms) is rounded, times SiLU in FP32, rounded once more.
#include "abi.h"
#include "rms.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

using namespace rms;

constexpr int kWarps = 4, kDim = 128;

struct Operands {
  const void *x, *gate;
  const float* scale;
  void* y;
  int64_t gate_stride;
  int items, heads;
  float eps;
};

template <typename A>
__global__ void __launch_bounds__(kWarps * 32) norm(const __grid_constant__ Operands o) {
  sm90::launch_next();
  const int item = blockIdx.x * kWarps + threadIdx.x / 32, at = threadIdx.x % 32 * kPiece;
  const float4 scale = __ldg(reinterpret_cast<const float4*>(o.scale + at));
  sm90::wait_for_previous();
  if (item >= o.items) return;
  const int row = item / o.heads, head = item - row * o.heads;
  const int64_t to = static_cast<int64_t>(item) * kDim + at;
  Piece<A> x = load(static_cast<const A*>(o.x) + to);
  const Piece<A> gate = load(static_cast<const A*>(o.gate) + row * o.gate_stride + head * kDim + at);
  const float wide[kPiece] = {x[0], x[1], x[2], x[3]}, by[kPiece] = {scale.x, scale.y, scale.z, scale.w};
  const float inverse = inverse_root(over_lanes(square(wide, 0.0f)), kDim, o.eps);
#pragma unroll
  for (int i = 0; i < kPiece; i++) x.set(i, __fmul_rn(rounded<A>(__fmul_rn(by[i], __fmul_rn(inverse, wide[i]))), silu(gate[i])));
  store(static_cast<A*>(o.y) + to, x);
}

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

// x [rows][heads][128] contiguous, gate [rows][heads * 128], its stride in elements; y as x; type 0 FP16, 1 BF16.
EXPORT int ENTRY(run)(const void* x, const void* gate, const float* scale, void* y, int64_t gate_stride, int rows, int heads, int type, float eps,
                      void* stream) {
  const Operands o{x, gate, scale, y, gate_stride, rows * heads, heads, eps};
  const dim3 grid((o.items + kWarps - 1) / kWarps);
  return type == 0 ? launch(norm<__half>, grid, kWarps * 32, stream, o) : launch(norm<__nv_bfloat16>, grid, kWarps * 32, stream, o);
}
