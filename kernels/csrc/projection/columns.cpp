// Projection of a few rows on the CPU, ROWS outputs of a column at a time, in the order that columns.h states. The divisor
// of an NVFP4 weight, or the scale of an FP8 row, applies once, after the sum.
#include "abi.h"
#include "columns.h"

namespace {

struct Shape {
  Rows rows;
  float* out;
  int64_t out_stride, m, n;
  float divisor;
};

template <Format F, int R, class Weight> void tile(const Shape& s, const Weight& weight, int64_t row, int64_t column) {
  Sums<R, 1> sum;
  accumulate<F, R, 1>(s.rows, weight, row, column, 0, sum);
  for (int r = 0; r < R; r++) s.out[(row + r) * s.out_stride + column] = finished(sum_lanes(sum[r][0]), s.divisor, weight, column);
}

// Whole tiles of R rows, then the rest by halves.
template <Format F, int R, class Weight> void rows(const Shape& s, const Weight& weight, int64_t row, int64_t column) {
  for (; row + R <= s.m; row += R) tile<F, R>(s, weight, row, column);
  if constexpr (R > 1) rows<F, R / 2>(s, weight, row, column);
}

template <Format F, class Weight> void project(const Shape& s, const Weight& weight) {
  for (int64_t column = 0; column < s.n; column++) rows<F, ROWS>(s, weight, 0, column);
}

}  // namespace

EXPORT int ENTRY(revision)(void) { return 1; }

// x FP32 [m, k] and out FP32 [m, n], strides in elements; w [n, k] in `format`.
EXPORT int ENTRY(dense)(const float* x, int64_t x_stride, const void* w, int64_t w_stride, int format, float* out,
                        int64_t out_stride, int64_t m, int64_t n, int64_t k) {
  const Shape shape{{x, x_stride, k}, out, out_stride, m, n, 1.0f};
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
  project<F32>(Shape{{x, x_stride, k}, out, out_stride, m, n, divisor}, Nvfp4{packed, scales, k});
  return 0;
}

// codes E4M3 [n, k], scales FP32 [n].
EXPORT int ENTRY(fp8)(const float* x, int64_t x_stride, const uint8_t* codes, int64_t w_stride, const float* scales, float* out,
                      int64_t out_stride, int64_t m, int64_t n, int64_t k) {
  project<E4M3>(Shape{{x, x_stride, k}, out, out_stride, m, n, 1.0f}, Fp8{{codes, w_stride}, scales});
  return 0;
}
