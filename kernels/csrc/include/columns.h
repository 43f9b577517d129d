// Dot products of a few FP32 rows with weight rows in any format: R x C of them accumulated together in registers.
//
// Order of one sum, whatever the tile: lane l of eight adds x[k] * w[k] by FMA for k = l, l + 8, l + 16, …; then
// sum_lanes. NVFP4 weights enter as exact code-times-scale products; dividing by the global scale is `finished`'s, and so
// is the scale of an FP8 weight's row.
#pragma once
#include "lanes.h"

struct Dense {
  const void* w;
  int64_t stride;
  template <Format F, bool Whole> __m256 load(int64_t column, int64_t k, int64_t count) const {
    const int64_t index = column * stride + k;
    return Whole ? load8<F>(w, index) : load_head<F>(w, index, count);
  }
};

// E4M3 codes, loaded as Dense loads the format E4M3, and a scale a row.
struct Fp8 : Dense {
  const float* scales;
};

// The exact product of E2M1 codes with their group's E4M3 scale; `k` is a multiple of 8, so one scale serves all eight.
struct Nvfp4 {
  const uint8_t* packed;
  const uint8_t* scales;
  int64_t width;
  template <Format, bool> __m256 load(int64_t column, int64_t k, int64_t) const {
    uint32_t word;
    __builtin_memcpy(&word, packed + (column * width + k) / 2, 4);
    const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i codes = _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(word)), shifts);
    const __m256 magnitudes = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
    const __m256 magnitude = _mm256_permutevar8x32_ps(magnitudes, codes);  // uses the low three bits
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(codes, _mm256_set1_epi32(8)), 28);
    const __m128i scale = _mm_set1_epi8(static_cast<char>(scales[column * (width / 16) + k / 16]));
    return _mm256_mul_ps(_mm256_xor_ps(magnitude, _mm256_castsi256_ps(sign)), from_e4m3(scale));
  }
};

template <class Weight> inline float finished(float sum, float divisor, const Weight&, int64_t) { return sum / divisor; }
inline float finished(float sum, float, const Fp8& weight, int64_t column) { return sum * weight.scales[column]; }

struct Rows {
  const float* x;
  int64_t stride, k;
};

template <int R, int C> using Sums = __m256[R][C];

template <Format F, int R, int C, bool Whole, class Weight>
inline __attribute__((always_inline)) void step(const Rows& rows, const Weight& weight, int64_t row, int64_t column,
                                                int64_t apart, int64_t k, Sums<R, C>& sum) {
  const int64_t count = rows.k - k;
  __m256 w[C];
  for (int c = 0; c < C; c++) w[c] = weight.template load<F, Whole>(column + c * apart, k, count);
  for (int r = 0; r < R; r++) {
    const int64_t index = (row + r) * rows.stride + k;
    const __m256 x = Whole ? load8<F32>(rows.x, index) : load_head<F32>(rows.x, index, count);
    for (int c = 0; c < C; c++) sum[r][c] = _mm256_fmadd_ps(x, w[c], sum[r][c]);
  }
}

// Rows `row` … of x times columns `column`, `column + apart`, …, still in eight lanes.
template <Format F, int R, int C, class Weight>
inline __attribute__((always_inline)) void accumulate(const Rows& rows, const Weight& weight, int64_t row,
                                                      int64_t column, int64_t apart, Sums<R, C>& sum) {
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) sum[r][c] = _mm256_setzero_ps();
  int64_t k = 0;
  for (; k + 8 <= rows.k; k += 8) step<F, R, C, true>(rows, weight, row, column, apart, k, sum);
  if (k < rows.k) step<F, R, C, false>(rows, weight, row, column, apart, k, sum);
}
