// RMSNorm of heads times the SiLU of a gate on the CPU.
//
// Squares: lane l of eight takes values l, l + 8, ... by FMA, then the tree of lanes.h; (x * (1 / sqrt(sum / dim + eps))) * scale is
// rounded to the dtype of x, times gate / (1 + exp(-gate)), rounded by the caller.
#include <math.h>

#include "abi.h"
#include "exp8.h"
#include "lanes.h"
#include "rounding.h"

namespace {

template <Format X> void head(const float* x, const float* gate, const float* scale, float* y, int64_t dim, float eps) {
  __m256 squares = _mm256_setzero_ps();
  for (int64_t i = 0; i < dim; i += 8) {
    const __m256 v = load_up_to_8<F32>(x, i, dim - i);
    squares = _mm256_fmadd_ps(v, v, squares);
  }
  const __m256 one = _mm256_set1_ps(1.0f), inverse = _mm256_set1_ps(1.0f / sqrtf(sum_lanes(squares) / static_cast<float>(dim) + eps));
  for (int64_t i = 0; i < dim; i += 8) {
    const __m256 v = _mm256_mul_ps(load_up_to_8<F32>(x, i, dim - i), inverse), g = load_up_to_8<F32>(gate, i, dim - i);
    const __m256 normed = rounded<X>(_mm256_mul_ps(v, load_up_to_8<F32>(scale, i, dim - i)));
    const __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, exp8(_mm256_xor_ps(g, _mm256_set1_ps(-0.0f)))));
    alignas(32) float out[8];
    _mm256_store_ps(out, _mm256_mul_ps(normed, silu));
    for (int64_t j = i; j < dim && j < i + 8; j++) y[j] = out[j - i];
  }
}

template <Format X>
int all(const float* x, const float* gate, int64_t gate_stride, const float* scale, float* y, int64_t rows, int64_t heads, int64_t dim, float eps) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t h = 0; h < heads; h++) {
      const int64_t at = (r * heads + h) * dim;
      head<X>(x + at, gate + r * gate_stride + h * dim, scale, y + at, dim, eps);
    }
  return 0;
}

}  // namespace

EXPORT int ENTRY(revision)(void) { return 1; }

// x FP32 [rows, heads, dim] contiguous and gate FP32 [rows, heads * dim], values of `format`; scale [dim]; y as x.
EXPORT int ENTRY(run)(const float* x, const float* gate, int64_t gate_stride, const float* scale, float* y, int64_t rows, int64_t heads,
                      int64_t dim, int format, float eps) {
  switch (format) {
    case F32: return all<F32>(x, gate, gate_stride, scale, y, rows, heads, dim, eps);
    case BF16: return all<BF16>(x, gate, gate_stride, scale, y, rows, heads, dim, eps);
    case F16: return all<F16>(x, gate, gate_stride, scale, y, rows, heads, dim, eps);
  }
  return 1;
}
