// The drafter's dynamic convolution over one block of rows of 16-bit values, four channels of a row a thread.
//
// Tap by tap: base + correction, rounded; times x of the row that many before (zero before the block), rounded for the first tap and
// added by fma, rounded, for the others.
#include "abi.h"
#include "rms.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

using namespace rms;

constexpr int kThreads = 128;

struct Operands {
  const void *x, *dynamic, *base;
  void* y;
  int64_t row_stride, tap_stride;  // of the corrections
  int width, taps, size;           // channels of a row, taps, channels of a group
};

template <typename A>
__global__ void __launch_bounds__(kThreads) convolve(const __grid_constant__ Operands o) {
  sm90::launch_next();
  const int row = blockIdx.y, channel = (blockIdx.x * kThreads + threadIdx.x) * kPiece;
  sm90::wait_for_previous();
  if (channel >= o.width) return;
  const A* dynamic = static_cast<const A*>(o.dynamic) + row * o.row_stride + channel / o.size;
  Piece<A> sum;
  for (int tap = 0; tap < o.taps; tap++) {
    const Piece<A> base = load(static_cast<const A*>(o.base) + tap * o.width + channel);
    Piece<A> x{};
    if (row >= tap) x = load(static_cast<const A*>(o.x) + static_cast<int64_t>(row - tap) * o.width + channel);
    const unsigned short bits = __ldcg(reinterpret_cast<const unsigned short*>(dynamic + tap * o.tap_stride));
    const float correction = widened(*reinterpret_cast<const A*>(&bits));
#pragma unroll
    for (int i = 0; i < kPiece; i++) {
      const float kernel = rounded<A>(base[i] + correction);
      sum.set(i, tap == 0 ? kernel * x[i] : fmaf(kernel, x[i], sum[i]));
    }
  }
  store(static_cast<A*>(o.y) + static_cast<int64_t>(row) * o.width + channel, sum);
}

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

// x [rows][width] contiguous; dynamic [rows][taps][groups], strides in elements; base [taps][width]; y as x; type 0 FP16, 1 BF16.
EXPORT int ENTRY(run)(const void* x, const void* dynamic, const void* base, void* y, int64_t row_stride, int64_t tap_stride, int rows, int width,
                      int taps, int groups, int type, void* stream) {
  const Operands o{x, dynamic, base, y, row_stride, tap_stride, width, taps, width / groups};
  const dim3 grid((width / kPiece + kThreads - 1) / kThreads, rows);
  return type == 0 ? launch(convolve<__half>, grid, kThreads, stream, o) : launch(convolve<__nv_bfloat16>, grid, kThreads, stream, o);
}
