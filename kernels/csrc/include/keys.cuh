// A logit and its id as one 64-bit key: the dense tie order is the order of keys. Knows no schedule.
#pragma once
#include <stdint.h>

namespace keys {

// Ordered like the floats, -0 like 0; a smaller id gives a larger key.
__device__ __forceinline__ uint64_t key_of(float x, int id) {
  const uint32_t bits = __float_as_uint(x + 0.0f);
  const uint32_t ordered = bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
  return static_cast<uint64_t>(ordered) << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(id));
}
// The float of a key, 0 for -0.
__device__ __forceinline__ float value_of(uint64_t key) {
  const uint32_t ordered = static_cast<uint32_t>(key >> 32);
  return __uint_as_float(ordered & 0x80000000u ? ordered ^ 0x80000000u : ~ordered);
}
__device__ __forceinline__ int id_of(uint64_t key) { return static_cast<int>(0xFFFFFFFFu - static_cast<uint32_t>(key)); }

// How many of `count` keys, an even number, are larger than `key`.
__device__ __forceinline__ int rank_of(uint64_t key, const uint64_t* keys, int count) {
  int rank = 0;
#pragma unroll 8
  for (int i = 0; i < count; i += 2) {
    const ulonglong2 two = *reinterpret_cast<const ulonglong2*>(keys + i);
    rank += (two.x > key) + (two.y > key);
  }
  return rank;
}

}  // namespace keys
