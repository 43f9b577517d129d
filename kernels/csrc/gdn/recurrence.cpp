// GDN verification on the CPU: convolution, gates, and the recurrence of up to sixteen rows, one state kept per row.
//
// A tile of BV value columns of one value head runs all rows in sequence; each column is a chain of its own over the key
// axis in ascending order, written with fmaf, so the width of the tile changes no bit. Gates are computed in FP64 and
// rounded once. `work` is FP32 scratch: convolved rows [R, C], then exp(g) and beta [R, Hv, 2].
#include "abi.h"
#include "exp8.h"
#include "lanes.h"

#include <math.h>

namespace {

constexpr int MAX_DIM = 256, MAX_ROWS = 16, MAX_WIDTH = 8;

// Mirrors kernels/gdn/cpu.py.
struct Arguments {
  const void *qkv, *a, *b;
  int64_t qkv_stride, a_stride, b_stride;  // elements between rows
  const float* conv_weight;                // [C, width]
  const float *a_log, *dt_bias;            // [Hv]
  void* window;                            // [C, width - 1 + slots - 1]
  float* pool;                             // [.., Hv, Dk, Dv]
  const int32_t *slot_table, *selector;
  void* out;  // [R, Hv, Dv] in the dtype of qkv
  float* work;
  int64_t format, rows, key_heads, value_heads, key_dim, value_dim, width, slots;

  int64_t channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
};

template <Format F> float get(const void* base, int64_t index) {
  if constexpr (F == F32) return static_cast<const float*>(base)[index];
  const uint16_t bits = static_cast<const uint16_t*>(base)[index];
  if constexpr (F == F16) return _cvtsh_ss(bits);
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  __builtin_memcpy(&value, &wide, 4);
  return value;
}

// Rounds to nearest even.
template <Format F> void put(void* base, int64_t index, float value) {
  if constexpr (F == F32) {
    static_cast<float*>(base)[index] = value;
  } else if constexpr (F == F16) {
    static_cast<uint16_t*>(base)[index] = _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  } else {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, 4);
    const uint32_t rounded = bits + 0x7FFF + ((bits >> 16) & 1);
    static_cast<uint16_t*>(base)[index] = value == value ? rounded >> 16 : 0x7FC0;
  }
}

float exponential(float x) { return _mm256_cvtss_f32(exp8(_mm256_set1_ps(x))); }

// SiLU of one channel's convolution for every row, rounded to the dtype of qkv, and the window moved on.
template <Format F> void convolve(const Arguments& a, int64_t channel) {
  const int64_t history = a.width - 1, columns = history + a.slots - 1, from = channel * columns + *a.selector - 1;
  float inputs[MAX_WIDTH + MAX_ROWS];
  for (int64_t i = 0; i < history; i++) inputs[i] = get<F>(a.window, from + i);
  for (int64_t row = 0; row < a.rows; row++) inputs[history + row] = get<F>(a.qkv, row * a.qkv_stride + channel);
  for (int64_t row = 0; row < a.rows; row++) {
    float sum = 0.0f;
    for (int64_t tap = 0; tap < a.width; tap++)
      sum = fmaf(inputs[row + tap], a.conv_weight[channel * a.width + tap], sum);
    float* place = a.work + row * a.channels() + channel;
    put<F>(place, 0, sum / (1.0f + exponential(-sum)));
    *place = get<F>(place, 0);
  }
  for (int64_t i = 1; i < history + a.rows; i++) put<F>(a.window, channel * columns + i - 1, inputs[i]);
}

// x / sqrt(sum of squares + 1e-6) * scale, in place.
void normalise(float* x, int64_t dim, float scale) {
  __m256 sum = _mm256_setzero_ps();
  for (int64_t d = 0; d < dim; d += 8) {
    const __m256 value = _mm256_loadu_ps(x + d);
    sum = _mm256_fmadd_ps(value, value, sum);
  }
  const float factor = scale / sqrtf(sum_lanes(sum) + 1e-6f);
  for (int64_t d = 0; d < dim; d++) x[d] *= factor;
}

template <Format F> void gates(const Arguments& a, int64_t row, float* decay_and_beta) {
  for (int64_t head = 0; head < a.value_heads; head++) {
    const double x = static_cast<double>(get<F>(a.a, row * a.a_stride + head)) + a.dt_bias[head];
    const double softplus = (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
    decay_and_beta[2 * head] = static_cast<float>(exp(-exp(static_cast<double>(a.a_log[head])) * softplus));
    decay_and_beta[2 * head + 1] = static_cast<float>(1 / (1 + exp(-static_cast<double>(get<F>(a.b, row * a.b_stride + head)))));
  }
}

// All rows of `width` <= BV value columns of one head.
template <Format F> void tile(const Arguments& a, const float* gate, int64_t head, int64_t column, int64_t width) {
  const int64_t keys = a.key_heads * a.key_dim, key_head = head / (a.value_heads / a.key_heads);
  const int64_t slot_size = a.value_heads * a.key_dim * a.value_dim;
  const int64_t place = head * a.key_dim * a.value_dim + column;
  float state[MAX_DIM][BV];
  const float* before = a.pool + a.slot_table[*a.selector - 1] * slot_size + place;
  for (int64_t i = 0; i < a.key_dim; i++)
    for (int64_t j = 0; j < BV; j++) state[i][j] = j < width ? before[i * a.value_dim + j] : 0.0f;
  for (int64_t row = 0; row < a.rows; row++) {
    const float* rows = a.work + row * a.channels();
    const float *q = rows + key_head * a.key_dim, *k = q + keys, *v = rows + 2 * keys + head * a.value_dim + column;
    const float decay = gate[(row * a.value_heads + head) * 2], beta = gate[(row * a.value_heads + head) * 2 + 1];
    float seen[BV] = {}, delta[BV], out[BV] = {};
    for (int64_t i = 0; i < a.key_dim; i++)
      for (int64_t j = 0; j < BV; j++) {
        state[i][j] *= decay;
        seen[j] = fmaf(state[i][j], k[i], seen[j]);
      }
    for (int64_t j = 0; j < BV; j++) delta[j] = j < width ? beta * (v[j] - seen[j]) : 0.0f;
    for (int64_t i = 0; i < a.key_dim; i++)
      for (int64_t j = 0; j < BV; j++) {
        state[i][j] = fmaf(k[i], delta[j], state[i][j]);
        out[j] = fmaf(state[i][j], q[i], out[j]);
      }
    for (int64_t j = 0; j < width; j++) put<F>(a.out, (row * a.value_heads + head) * a.value_dim + column + j, out[j]);
    const int64_t slot = a.slot_table[row];
    if (slot < 0) continue;
    float* after = a.pool + slot * slot_size + place;
    for (int64_t i = 0; i < a.key_dim; i++)
      for (int64_t j = 0; j < width; j++) after[i * a.value_dim + j] = state[i][j];
  }
}

template <Format F> void verify(const Arguments& a) {
  const int64_t channels = a.channels(), keys = a.key_heads * a.key_dim;
  for (int64_t channel = 0; channel < channels; channel++) convolve<F>(a, channel);
  float* gate = a.work + a.rows * channels;
  for (int64_t row = 0; row < a.rows; row++) {
    gates<F>(a, row, gate + row * a.value_heads * 2);
    for (int64_t head = 0; head < a.key_heads; head++) {
      float* q = a.work + row * channels + head * a.key_dim;
      normalise(q, a.key_dim, 1.0f / sqrtf(static_cast<float>(a.key_dim)));
      normalise(q + keys, a.key_dim, 1.0f);
    }
  }
  for (int64_t head = 0; head < a.value_heads; head++)
    for (int64_t column = 0; column < a.value_dim; column += BV)
      tile<F>(a, gate, head, column, a.value_dim - column < BV ? a.value_dim - column : BV);
}

}  // namespace

EXPORT int ENTRY(revision)(void) { return 2; }

EXPORT int ENTRY(run)(const Arguments* a) {
  if (a->key_dim > MAX_DIM || a->key_dim % 8 || a->rows > MAX_ROWS || a->width > MAX_WIDTH) return 1;
  if (*a->selector < 1 || *a->selector > a->slots || a->slot_table[*a->selector - 1] < 0) return 2;
  switch (a->format) {
    case F32: verify<F32>(*a); return 0;
    case BF16: verify<BF16>(*a); return 0;
    case F16: verify<F16>(*a); return 0;
  }
  return 3;
}
