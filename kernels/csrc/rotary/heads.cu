// RMSNorm of q and k heads, rotary positions, and the cache write of k and v, in one launch with a warp per head.
//
// A lane holds values 4 l .. 4 l + 3 of each 128. Squares in the order of rms.cuh; scale * (x / rms) rounded; then, of the first
// `rotated` values, x cos + (-other half, half) sin, each product and the sum rounded to FP32, the result to the type of x. What is
// stored in E4M3 is rounded to nearest even and saturates at 448; a NaN keeps its sign, as in torch.
#include <cuda_fp8.h>

#include "abi.h"
#include "rms.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

using namespace rms;

constexpr int kWarps = 4;

struct Operands {
  const void* qkv;
  const float *q_scale, *k_scale, *cos, *sin;
  void *q, *k, *v;
  const int64_t* slots;  // of each row; without a cache k is [rows][kv_heads][dim] and v is not written
  int64_t row_stride;
  int rows, q_heads, kv_heads, rotated, gated, cache;  // cache: 0 none, 1 of the type of qkv, 2 E4M3
  float eps;
};

__device__ __forceinline__ uint32_t e4m3(float x) {
  const uint32_t byte = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  return byte | (__float_as_uint(x) >> 24 & 0x80u);
}

template <typename A>
__device__ __forceinline__ void write(void* to, int64_t at, const float (&x)[kPiece], bool narrow_cache) {
  if (narrow_cache) {
    static_cast<uint32_t*>(to)[at / kPiece] = e4m3(x[0]) | e4m3(x[1]) << 8 | e4m3(x[2]) << 16 | e4m3(x[3]) << 24;
  } else {
    Piece<A> v;
#pragma unroll
    for (int i = 0; i < kPiece; i++) v.set(i, x[i]);
    store(static_cast<A*>(to) + at, v);
  }
}

template <typename A, int kDim>
__global__ void __launch_bounds__(kWarps * 32) turn(const __grid_constant__ Operands o) {
  constexpr int kParts = kDim / 128;
  sm90::launch_next();
  const int of_row = o.q_heads + o.kv_heads * (o.cache ? 2 : 1), item = blockIdx.x * kWarps + threadIdx.x / 32, at = threadIdx.x % 32 * kPiece;
  const int row = item / of_row, place = item - row * of_row;
  const bool is_q = place < o.q_heads, is_v = place >= o.q_heads + o.kv_heads;
  const int head = is_q ? place : is_v ? place - o.q_heads - o.kv_heads : place - o.q_heads;
  const int q_width = o.q_heads * (o.gated ? 2 : 1) * kDim;
  const int from = is_q ? head * (o.gated ? 2 : 1) * kDim : q_width + ((is_v ? o.kv_heads : 0) + head) * kDim;
  float4 scale[kParts];
#pragma unroll
  for (int p = 0; p < kParts; p++) scale[p] = __ldg(reinterpret_cast<const float4*>((is_q ? o.q_scale : o.k_scale) + p * 128 + at));
  sm90::wait_for_previous();
  if (row >= o.rows) return;

  float x[kParts][kPiece];
#pragma unroll
  for (int p = 0; p < kParts; p++) {
    const Piece<A> v = load(static_cast<const A*>(o.qkv) + row * o.row_stride + from + p * 128 + at);
#pragma unroll
    for (int i = 0; i < kPiece; i++) x[p][i] = v[i];
  }
  const int64_t slot = o.cache ? __ldcg(reinterpret_cast<const long long*>(o.slots) + row) : row;
  if (!is_v) {
    const bool turns = at < o.rotated;
    float4 cos = make_float4(0, 0, 0, 0), sin = cos;
    if (turns) {
      cos = __ldcg(reinterpret_cast<const float4*>(o.cos + static_cast<int64_t>(row) * o.rotated + at));
      sin = __ldcg(reinterpret_cast<const float4*>(o.sin + static_cast<int64_t>(row) * o.rotated + at));
    }
    float sum = over_lanes(square(x[0], 0.0f));
    if constexpr (kParts == 2) sum += over_lanes(square(x[kParts - 1], 0.0f));
    const float inverse = inverse_root(sum, kDim, o.eps);
#pragma unroll
    for (int p = 0; p < kParts; p++) {
      const float by[kPiece] = {scale[p].x, scale[p].y, scale[p].z, scale[p].w};
#pragma unroll
      for (int i = 0; i < kPiece; i++) x[p][i] = rounded<A>(__fmul_rn(by[i], __fmul_rn(inverse, x[p][i])));
    }
    const float c[kPiece] = {cos.x, cos.y, cos.z, cos.w}, s[kPiece] = {sin.x, sin.y, sin.z, sin.w};
#pragma unroll
    for (int i = 0; i < kPiece; i++) {
      const float other = __shfl_xor_sync(~0u, x[0][i], o.rotated / (2 * kPiece));
      const float turned = __fadd_rn(__fmul_rn(x[0][i], c[i]), __fmul_rn(at < o.rotated / 2 ? -other : other, s[i]));
      if (turns) x[0][i] = rounded<A>(turned);
    }
  }
  void* to = is_q ? o.q : is_v ? o.v : o.k;
  const int64_t first = is_q ? (static_cast<int64_t>(row) * o.q_heads + head) * kDim : (slot * o.kv_heads + head) * kDim;
#pragma unroll
  for (int p = 0; p < kParts; p++) write<A>(to, first + p * 128 + at, x[p], !is_q && o.cache == 2);
}

template <typename A>
cudaError_t run(const Operands& o, int dim, void* stream) {
  const int items = o.rows * (o.q_heads + o.kv_heads * (o.cache ? 2 : 1));
  const dim3 grid((items + kWarps - 1) / kWarps);
  return dim == 128 ? launch(turn<A, 128>, grid, kWarps * 32, stream, o) : launch(turn<A, 256>, grid, kWarps * 32, stream, o);
}

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

// qkv: rows of q heads (each followed by its gate where gated), k heads, v heads of `dim` values, 128 or 256. cos, sin
// [rows][rotated]. q [rows][q_heads][dim]; k and v as `Operands` says. type: 0 FP16, 1 BF16.
EXPORT int ENTRY(run)(const void* qkv, const float* q_scale, const float* k_scale, const float* cos, const float* sin, void* q, void* k, void* v,
                      const int64_t* slots, int64_t row_stride, int rows, int q_heads, int kv_heads, int dim, int rotated, int gated, int cache,
                      int type, float eps, void* stream) {
  const Operands o{qkv, q_scale, k_scale, cos, sin, q, k, v, slots, row_stride, rows, q_heads, kv_heads, rotated, gated, cache, eps};
  return type == 0 ? ENTRY(code)::run<__half>(o, dim, stream) : ENTRY(code)::run<__nv_bfloat16>(o, dim, stream);
}
