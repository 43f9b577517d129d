// Rounds eight FP32 lanes to a narrower type and back: to nearest even, NaN stays NaN.
#pragma once
#include "lanes.h"

template <Format F> static inline __m256 rounded(__m256 v) {
  if constexpr (F == F32) return v;
  if constexpr (F == F16) return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256 value = _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32(static_cast<int>(0xFFFF0000))));
  return _mm256_blendv_ps(value, v, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}
