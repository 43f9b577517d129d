// exp for eight FP32 lanes, relative error below 2 units of the last place; below -87 it is 0, NaN stays NaN.
#pragma once
#include <immintrin.h>

static inline __m256 exp8(__m256 x) {
  const __m256 low = _mm256_set1_ps(-87.0f), high = _mm256_set1_ps(88.0f);
  const __m256 vanishes = _mm256_cmp_ps(x, low, _CMP_LT_OQ);
  const __m256 bounded = _mm256_min_ps(high, _mm256_max_ps(low, x));  // a NaN becomes `low` here and is restored below
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(bounded, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // x = n ln2 + r in two pieces of ln2, the first exact for these n.
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145751953125f), bounded);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860682e-6f), r);
  // The Taylor sum to r^7; |r| <= 0.347 leaves 6e-9.
  __m256 p = _mm256_set1_ps(1.0f / 5040);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  const __m256 value = _mm256_andnot_ps(vanishes, _mm256_mul_ps(p, _mm256_castsi256_ps(exponent)));
  return _mm256_blendv_ps(value, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}
