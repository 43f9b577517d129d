// NVFP4 codes of the checkpoint's own layout as 16-bit values, code times scale, exactly.
//
// A thread has eight codes of one group, half of what one scale is for: four bytes in, one byte of scale, sixteen bytes out.
// The bits of a code, sign over three of magnitude, lie in an FP16 word so that its value is the code's times 2^-14.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>

#include "abi.h"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

constexpr int kThreads = 256;

__device__ uint32_t rounded(__half2 pair, __half) { return *reinterpret_cast<const uint32_t*>(&pair); }
__device__ uint32_t rounded(__half2 pair, __nv_bfloat16) {
  const float2 wide = __half22float2(pair);
  const __nv_bfloat162 narrow = __floats2bfloat162_rn(wide.x, wide.y);
  return *reinterpret_cast<const uint32_t*>(&narrow);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) decode(const uint32_t* __restrict__ codes, const uint8_t* __restrict__ scales, uint4* out, int64_t pieces) {
  const int64_t piece = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (piece >= pieces) return;
  const uint32_t word = __ldg(codes + piece);
  const __half scale(__nv_cvt_fp8_to_halfraw(__ldg(scales + piece / 2), __NV_E4M3));
  const __half2 raise = __float2half2_rn(16384.0f), by = __half2half2(scale);
  uint32_t pair[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint32_t two = word >> (8 * i);
    const uint32_t bits = (two & 0x8) << 12 | (two & 0x7) << 9 | (two & 0x80) << 24 | (two & 0x70) << 21;
    pair[i] = rounded(__hmul2(__hmul2(*reinterpret_cast<const __half2*>(&bits), raise), by), T());
  }
  out[piece] = make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

// codes [pieces][4 bytes], scales [pieces / 2], out [pieces][8] of type 0 FP16, 1 BF16, 16-byte aligned.
EXPORT int ENTRY(run)(const void* codes, const void* scales, void* out, int64_t pieces, int type, void* stream) {
  const auto blocks = static_cast<unsigned>((pieces + kThreads - 1) / kThreads);
  const auto *words = static_cast<const uint32_t*>(codes);
  const auto *bytes = static_cast<const uint8_t*>(scales);
  auto *values = static_cast<uint4*>(out);
  const auto its = static_cast<cudaStream_t>(stream);
  if (type == 0) decode<__half><<<blocks, kThreads, 0, its>>>(words, bytes, values, pieces);
  else decode<__nv_bfloat16><<<blocks, kThreads, 0, its>>>(words, bytes, values, pieces);
  return cudaGetLastError();
}
