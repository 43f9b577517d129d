// Residual sum and RMSNorm on the CPU, row by row.
//
// The sum is rounded to the dtype of x. Squares: lane l of eight takes values l, l + 8, ... by FMA, then the tree of lanes.h;
// y = (s * (1 / sqrt(sum / width + eps))) * scale, rounded by the caller.
#include <math.h>

#include "abi.h"
#include "lanes.h"
#include "rounding.h"

namespace {

struct Operands {
  const float *x, *delta;
  int64_t x_stride, delta_stride;
  const float* scale;
  float *s, *y;
  int64_t rows, width;
  float eps;
};

void store(float* to, __m256 v, int64_t count) {
  alignas(32) float block[8];
  _mm256_store_ps(block, v);
  for (int64_t i = 0; i < (count < 8 ? count : 8); i++) to[i] = block[i];
}

template <Format X> void row(const Operands& o, int64_t r) {
  const float *x = o.x + r * o.x_stride, *delta = o.delta ? o.delta + r * o.delta_stride : nullptr;
  float *s = o.s + r * o.width, *y = o.y + r * o.width;
  __m256 squares = _mm256_setzero_ps();
  for (int64_t i = 0; i < o.width; i += 8) {
    __m256 v = load_up_to_8<F32>(x, i, o.width - i);
    if (delta) v = rounded<X>(_mm256_add_ps(v, load_up_to_8<F32>(delta, i, o.width - i)));
    squares = _mm256_fmadd_ps(v, v, squares);
    store(s + i, v, o.width - i);
  }
  const __m256 inverse = _mm256_set1_ps(1.0f / sqrtf(sum_lanes(squares) / static_cast<float>(o.width) + o.eps));
  for (int64_t i = 0; i < o.width; i += 8) {
    const __m256 v = _mm256_mul_ps(load_up_to_8<F32>(s, i, o.width - i), inverse);
    store(y + i, _mm256_mul_ps(v, load_up_to_8<F32>(o.scale, i, o.width - i)), o.width - i);
  }
}

template <Format X> int all(const Operands& o) {
  for (int64_t r = 0; r < o.rows; r++) row<X>(o, r);
  return 0;
}

}  // namespace

EXPORT int ENTRY(revision)(void) { return 1; }

// x and delta (or null) FP32 [rows, width], values of `format`; scale [width]; s and y FP32 [rows, width], contiguous.
EXPORT int ENTRY(run)(const float* x, const float* delta, int64_t x_stride, int64_t delta_stride, const float* scale, float* s, float* y,
                      int64_t rows, int64_t width, int format, float eps) {
  const Operands o{x, delta, x_stride, delta_stride, scale, s, y, rows, width, eps};
  switch (format) {
    case F32: return all<F32>(o);
    case BF16: return all<BF16>(o);
    case F16: return all<F16>(o);
  }
  return 1;
}
