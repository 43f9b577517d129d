// x * sigmoid(gate) for heads of 16-bit values, four values a thread: the sigmoid rounded, then the product.
#include "abi.h"
#include "rms.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

using namespace rms;

constexpr int kThreads = 128;

struct Operands {
  const void *x, *gate;
  void* y;
  int64_t row_stride, head_stride;
  int pieces, heads, of_head;  // pieces in all, and of a head
};

template <typename A>
__global__ void __launch_bounds__(kThreads) multiply(const __grid_constant__ Operands o) {
  sm90::launch_next();
  const int piece = blockIdx.x * kThreads + threadIdx.x;
  const int head = piece / o.of_head, row = head / o.heads;
  const int64_t from = row * o.row_stride + (head - row * o.heads) * o.head_stride + (piece - head * o.of_head) * kPiece;
  sm90::wait_for_previous();
  if (piece >= o.pieces) return;
  Piece<A> x = load(static_cast<const A*>(o.x) + static_cast<int64_t>(piece) * kPiece);
  const Piece<A> gate = load(static_cast<const A*>(o.gate) + from);
#pragma unroll
  for (int i = 0; i < kPiece; i++) x.set(i, __fmul_rn(x[i], rounded<A>(sigmoid(gate[i]))));
  store(static_cast<A*>(o.y) + static_cast<int64_t>(piece) * kPiece, x);
}

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

// x [rows][heads][dim] contiguous, strides of the gate in elements, y as x; type 0 FP16, 1 BF16; dim a multiple of 4.
EXPORT int ENTRY(run)(const void* x, const void* gate, void* y, int64_t row_stride, int64_t head_stride, int rows, int heads, int dim, int type,
                      void* stream) {
  const Operands o{x, gate, y, row_stride, head_stride, rows * heads * (dim / kPiece), heads, dim / kPiece};
  const dim3 grid((o.pieces + kThreads - 1) / kThreads);
  return type == 0 ? launch(multiply<__half>, grid, kThreads, stream, o) : launch(multiply<__nv_bfloat16>, grid, kThreads, stream, o);
}
