// Projection of a few rows on the CPU. ROWS x COLUMNS outputs are accumulated together in registers.
//
// Order of one output, whatever the tile: lane l of eight adds x[k] * w[k] by FMA for k = l, l + 8, l + 16, …; then
// sum_lanes. NVFP4 weights enter as exact code-times-scale products and the divisor applies once, after the sum.
#include "abi.h"
#include "lanes.h"

namespace {

struct Dense {
  const void* w;
  int64_t stride;
  template <Format F, bool Whole> __m256 load(int64_t column, int64_t k, int64_t count) const {
    const int64_t index = column * stride + k;
    return Whole ? load8<F>(w, index) : load_head<F>(w, index, count);
  }
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

struct Shape {
  const float* x;
  int64_t x_stride;
  float* out;
  int64_t out_stride, m, n, k;
  float divisor;
};

template <int R, int C> using Sums = __m256[R][C];

template <Format F, int R, int C, bool Whole, class Weight>
inline __attribute__((always_inline)) void step(const Shape& s, const Weight& weight, int64_t row, int64_t column,
                                                int64_t k, Sums<R, C>& sum) {
  const int64_t count = s.k - k;
  __m256 w[C];
  for (int c = 0; c < C; c++) w[c] = weight.template load<F, Whole>(column + c, k, count);
  for (int r = 0; r < R; r++) {
    const int64_t index = (row + r) * s.x_stride + k;
    const __m256 x = Whole ? load8<F32>(s.x, index) : load_head<F32>(s.x, index, count);
    for (int c = 0; c < C; c++) sum[r][c] = _mm256_fmadd_ps(x, w[c], sum[r][c]);
  }
}

template <Format F, int R, int C, class Weight>
void tile(const Shape& s, const Weight& weight, int64_t row, int64_t column) {
  Sums<R, C> sum;
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) sum[r][c] = _mm256_setzero_ps();
  int64_t k = 0;
  for (; k + 8 <= s.k; k += 8) step<F, R, C, true>(s, weight, row, column, k, sum);
  if (k < s.k) step<F, R, C, false>(s, weight, row, column, k, sum);
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) s.out[(row + r) * s.out_stride + column + c] = sum_lanes(sum[r][c]) / s.divisor;
}

// Whole tiles of R rows, then the rest by halves.
template <Format F, int R, int C, class Weight>
void rows(const Shape& s, const Weight& weight, int64_t row, int64_t column) {
  for (; row + R <= s.m; row += R) tile<F, R, C>(s, weight, row, column);
  if constexpr (R > 1) rows<F, R / 2, C>(s, weight, row, column);
}

template <Format F, class Weight> void project(const Shape& s, const Weight& weight) {
  int64_t column = 0;
  for (; column + COLUMNS <= s.n; column += COLUMNS) rows<F, ROWS, COLUMNS>(s, weight, 0, column);
  for (; column < s.n; column++) rows<F, ROWS, 1>(s, weight, 0, column);
}

}  // namespace

EXPORT int ENTRY(revision)(void) { return 1; }

// x FP32 [m, k] and out FP32 [m, n], strides in elements; w [n, k] in `format`.
EXPORT int ENTRY(dense)(const float* x, int64_t x_stride, const void* w, int64_t w_stride, int format, float* out,
                        int64_t out_stride, int64_t m, int64_t n, int64_t k) {
  const Shape shape{x, x_stride, out, out_stride, m, n, k, 1.0f};
  const Dense weight{w, w_stride};
  switch (format) {
    case F32: project<F32>(shape, weight); return 0;
    case BF16: project<BF16>(shape, weight); return 0;
    case F16: project<F16>(shape, weight); return 0;
  }
  return 1;
}

// packed [physical n, k / 2], scales E4M3 [physical n, k / 16]; the first n columns are computed.
EXPORT int ENTRY(nvfp4)(const float* x, int64_t x_stride, const uint8_t* packed, const uint8_t* scales, float divisor,
                        float* out, int64_t out_stride, int64_t m, int64_t n, int64_t k) {
  if (k % 16) return 1;
  project<F32>(Shape{x, x_stride, out, out_stride, m, n, k, divisor}, Nvfp4{packed, scales, k});
  return 0;
}
