// Gated projection of a few rows on the CPU: silu(x · gateᵀ) * (x · upᵀ), ROWS rows of one output at a time.
//
// Sums are those of columns.h. Gate and up are rounded to the dtype of x, so is the SiLU of the rounded gate; the caller
// rounds the product. With PAIRED a gate and its up are summed side by side, else one after the other; the order within a
// sum is the same, and so are the bytes.
#include "abi.h"
#include "columns.h"
#include "exp8.h"
#include "rounding.h"

namespace {

struct Shape {
  Rows rows;
  float* out;
  int64_t out_stride, m, n;
  float divisor;
};

template <int R, int C, class Weight>
__m256 totals(const Sums<R, C>& sum, int c, float divisor, const Weight& weight, int64_t column) {
  alignas(32) float total[8] = {};
  for (int r = 0; r < R; r++) total[r] = finished(sum_lanes(sum[r][c]), divisor, weight, column);
  return _mm256_load_ps(total);
}

template <Format X> __m256 gated(__m256 gate, __m256 up) {
  const __m256 one = _mm256_set1_ps(1.0f), g = rounded<X>(gate);
  const __m256 e = exp8(_mm256_xor_ps(g, _mm256_set1_ps(-0.0f)));
  const __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, e));
  return _mm256_mul_ps(rounded<X>(silu), rounded<X>(up));
}

template <Format X, Format F, int R, class Weight>
void tile(const Shape& s, const Weight& weight, int64_t row, int64_t column) {
  __m256 gate, up;
  if constexpr (PAIRED) {
    Sums<R, 2> sum;
    accumulate<F, R, 2>(s.rows, weight, row, column, s.n, sum);
    gate = totals<R, 2>(sum, 0, s.divisor, weight, column), up = totals<R, 2>(sum, 1, s.divisor, weight, s.n + column);
  } else {
    Sums<R, 1> sum;
    accumulate<F, R, 1>(s.rows, weight, row, column, 0, sum);
    gate = totals<R, 1>(sum, 0, s.divisor, weight, column);
    accumulate<F, R, 1>(s.rows, weight, row, s.n + column, 0, sum);
    up = totals<R, 1>(sum, 0, s.divisor, weight, s.n + column);
  }
  alignas(32) float out[8];
  _mm256_store_ps(out, gated<X>(gate, up));
  for (int r = 0; r < R; r++) s.out[(row + r) * s.out_stride + column] = out[r];
}

// Whole tiles of R rows, then the rest by halves.
template <Format X, Format F, int R, class Weight>
void rows(const Shape& s, const Weight& weight, int64_t row, int64_t column) {
  for (; row + R <= s.m; row += R) tile<X, F, R>(s, weight, row, column);
  if constexpr (R > 1) rows<X, F, R / 2>(s, weight, row, column);
}

template <Format X, Format F, class Weight> void columns(const Shape& s, const Weight& weight) {
  for (int64_t column = 0; column < s.n; column++) rows<X, F, ROWS>(s, weight, 0, column);
}

template <Format F, class Weight> int project(const Shape& s, const Weight& weight, int x_format) {
  switch (x_format) {
    case F32: columns<F32, F>(s, weight); return 0;
    case BF16: columns<BF16, F>(s, weight); return 0;
    case F16: columns<F16, F>(s, weight); return 0;
  }
  return 1;
}

}  // namespace

EXPORT int ENTRY(revision)(void) { return 1; }

// x FP32 [m, k], rounded to `x_format` before, and out FP32 [m, n], strides in elements; w [2 n, k] in `format`, its
// first n rows the gates.
EXPORT int ENTRY(dense)(const float* x, int64_t x_stride, int x_format, const void* w, int64_t w_stride, int format,
                        float* out, int64_t out_stride, int64_t m, int64_t n, int64_t k) {
  const Shape shape{{x, x_stride, k}, out, out_stride, m, n, 1.0f};
  const Dense weight{w, w_stride};
  switch (format) {
    case F32: return project<F32>(shape, weight, x_format);
    case BF16: return project<BF16>(shape, weight, x_format);
    case F16: return project<F16>(shape, weight, x_format);
  }
  return 1;
}

// packed [physical rows, k / 2], scales E4M3 [physical rows, k / 16]; the first 2 n rows are used.
EXPORT int ENTRY(nvfp4)(const float* x, int64_t x_stride, int x_format, const uint8_t* packed, const uint8_t* scales,
                        float divisor, float* out, int64_t out_stride, int64_t m, int64_t n, int64_t k) {
  if (k % 16) return 1;
  return project<F32>(Shape{{x, x_stride, k}, out, out_stride, m, n, divisor}, Nvfp4{packed, scales, k}, x_format);
}

// codes E4M3 [2 n, k], scales FP32 [2 n].
EXPORT int ENTRY(fp8)(const float* x, int64_t x_stride, int x_format, const uint8_t* codes, int64_t w_stride, const float* scales,
                      float* out, int64_t out_stride, int64_t m, int64_t n, int64_t k) {
  return project<E4M3>(Shape{{x, x_stride, k}, out, out_stride, m, n, 1.0f}, Fp8{{codes, w_stride}, scales}, x_format);
}
