// silu(gate) * up of rows that hold gates, then ups, 16-bit values; SiLU is rounded, then the product, as two operations round.
//
// A thread has eight neighbouring outputs of one row.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "abi.h"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

constexpr int kThreads = 256, kPiece = 8;

__device__ float widened(__half x) { return __half2float(x); }
__device__ float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __half narrow(float x, __half) { return __float2half_rn(x); }
__device__ __nv_bfloat16 narrow(float x, __nv_bfloat16) { return __float2bfloat16_rn(x); }

template <typename T>
struct alignas(16) Piece {
  T x[kPiece];
};

template <typename T>
__global__ void __launch_bounds__(kThreads) product(const T* __restrict__ both, T* y, int64_t pieces, int64_t width) {
  const int64_t piece = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (piece >= pieces) return;
  const int64_t row = piece * kPiece / width, at = piece * kPiece - row * width;
  const T* from = both + row * 2 * width + at;
  const auto gate = *reinterpret_cast<const Piece<T>*>(from), up = *reinterpret_cast<const Piece<T>*>(from + width);
  Piece<T> out;
#pragma unroll
  for (int i = 0; i < kPiece; i++) {
    const float x = widened(gate.x[i]);
    const float silu = widened(narrow(x / (1.0f + expf(-x)), T()));
    out.x[i] = narrow(__fmul_rn(silu, widened(up.x[i])), T());
  }
  *reinterpret_cast<Piece<T>*>(y + piece * kPiece) = out;
}

template <typename T>
cudaError_t run(const void* both, void* y, int64_t pieces, int64_t width, void* stream) {
  const auto blocks = static_cast<unsigned>((pieces + kThreads - 1) / kThreads);
  product<T><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const T*>(both), static_cast<T*>(y), pieces, width);
  return cudaGetLastError();
}

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

// both [rows][2 * width], y [rows][width], contiguous, width a multiple of 8; type 0 FP16, 1 BF16.
EXPORT int ENTRY(run)(const void* both, void* y, int64_t rows, int64_t width, int type, void* stream) {
  const int64_t pieces = rows * width / ENTRY(code)::kPiece;
  return type == 0 ? ENTRY(code)::run<__half>(both, y, pieces, width, stream) : ENTRY(code)::run<__nv_bfloat16>(both, y, pieces, width, stream);
}
