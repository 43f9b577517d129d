// Eight FP32 lanes (AVX2 + FMA) and the loads that fill them from FP32, BF16, FP16, E4M3.
#pragma once
#include <immintrin.h>
#include <stdint.h>

enum Format { F32 = 0, BF16 = 1, F16 = 2, E4M3 = 3 };

// The order is part of the contract: lane l meets lane l + 4, then l + 2, then l + 1.
static inline float sum_lanes(__m256 v) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// E4M3FN by bits: placed in an FP16 pattern it is the value times 2^-8, subnormals included; NaN (S.1111.111) apart.
static inline __m256 from_e4m3(__m128i bytes) {
  const __m128i wide = _mm_cvtepu8_epi16(bytes);
  const __m128i magnitude = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x7F)), 7);
  const __m128i sign = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x80)), 8);
  const __m256 value = _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(magnitude, sign)), _mm256_set1_ps(256.0f));
  const __m256i is_nan = _mm256_cvtepi16_epi32(_mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x3F80)));
  return _mm256_or_ps(value, _mm256_castsi256_ps(is_nan));
}

template <Format F> constexpr int size_of = F == F32 ? 4 : F == E4M3 ? 1 : 2;

template <Format F> static inline __m256 load8(const void* base, int64_t index) {
  const char* p = static_cast<const char*>(base) + index * size_of<F>;
  if constexpr (F == F32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  if constexpr (F == E4M3) return from_e4m3(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  if constexpr (F == F16) return _mm256_cvtph_ps(half);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

// The first `count` of eight, zeros behind them; touches no byte beyond.
template <Format F> static inline __m256 load_head(const void* base, int64_t index, int64_t count) {
  alignas(32) char block[8 * size_of<F>] = {};
  const char* p = static_cast<const char*>(base) + index * size_of<F>;
  for (int64_t i = 0; i < count * size_of<F>; i++) block[i] = p[i];
  return load8<F>(block, 0);
}

template <Format F> static inline __m256 load_up_to_8(const void* base, int64_t index, int64_t count) {
  return count >= 8 ? load8<F>(base, index) : load_head<F>(base, index, count);
}
