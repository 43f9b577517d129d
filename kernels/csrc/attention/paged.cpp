// Verify attention over paged K and V on the CPU, FP32 throughout.
//
// One (row, head) meets its keys in blocks of 32. Per block: scores by eight FMA lanes over D and sum_lanes; a running
// maximum, and one rescale of sum and numerators where it rises; then p = exp(score - maximum), and sum and numerators
// take the keys in ascending order. GROUPED decodes a block of K and V once for all rows and heads of a KV head, the
// other schedule decodes it for every (row, head) anew; neither changes the order, so the bytes agree.
#include "abi.h"
#include "exp8.h"
#include "lanes.h"

#include <math.h>

namespace {

constexpr int BLOCK = 32, MAX_DIM = 256;

struct Pages {
  const char* base;
  int64_t page_stride, token_stride, head_stride;  // in elements
};

// Mirrors kernels/attention/cpu.py.
struct Arguments {
  const float* q;
  int64_t q_row_stride, q_head_stride;
  Pages k, v;
  const int32_t* table;
  const int32_t* lengths;
  float* out;    // [rows, q_heads, dim], holds the numerators meanwhile
  float* stats;  // [rows, q_heads, 2]: running maximum and sum
  int64_t format, rows, q_heads, kv_heads, dim, page_size, table_pages;
  double scale;
};

struct Tokens {
  const char* at[BLOCK];
};

template <Format F> Tokens locate(const Arguments& a, const Pages& pages, int64_t head, int64_t first, int64_t count) {
  Tokens tokens;
  for (int64_t i = 0; i < count; i++) {
    const int64_t token = first + i, page = a.table[token / a.page_size];
    tokens.at[i] = pages.base + size_of<F> * (page * pages.page_stride + (token % a.page_size) * pages.token_stride + head * pages.head_stride);
  }
  return tokens;
}

// A block decoded to FP32, or the stored tokens themselves.
struct Decoded {
  static constexpr Format format = F32;
  float values[BLOCK][MAX_DIM];
  template <Format F> void take(const Tokens& tokens, int64_t count, int64_t dim) {
    for (int64_t i = 0; i < count; i++)
      for (int64_t d = 0; d < dim; d += 8) _mm256_storeu_ps(values[i] + d, load8<F>(tokens.at[i], d));
  }
  const void* row(int64_t i) const { return values[i]; }
};

template <Format F> struct Stored {
  static constexpr Format format = F;
  Tokens tokens;
  const void* row(int64_t i) const { return tokens.at[i]; }
};

template <class Keys> float score(const float* q, const Keys& keys, int64_t i, int64_t dim) {
  __m256 sum = _mm256_setzero_ps();
  for (int64_t d = 0; d < dim; d += 8)
    sum = _mm256_fmadd_ps(_mm256_loadu_ps(q + d), load8<Keys::format>(keys.row(i), d), sum);
  return sum_lanes(sum);
}

// numerator[d] = numerator[d] * rescale + sum over keys of p * v[d], `W` vectors of d at a time.
template <int W, class Values>
void accumulate(float* numerator, const float* p, const Values& values, int64_t count, float rescale, int64_t d) {
  __m256 sum[W];
  for (int w = 0; w < W; w++) sum[w] = _mm256_mul_ps(_mm256_loadu_ps(numerator + d + 8 * w), _mm256_set1_ps(rescale));
  for (int64_t i = 0; i < count; i++)
    for (int w = 0; w < W; w++)
      sum[w] = _mm256_fmadd_ps(_mm256_set1_ps(p[i]), load8<Values::format>(values.row(i), d + 8 * w), sum[w]);
  for (int w = 0; w < W; w++) _mm256_storeu_ps(numerator + d + 8 * w, sum[w]);
}

template <class Keys, class Values>
void update(const Arguments& a, int64_t row, int64_t head, const Keys& keys, const Values& values, int64_t count) {
  const float* q = a.q + row * a.q_row_stride + head * a.q_head_stride;
  float* numerator = a.out + (row * a.q_heads + head) * a.dim;
  float* stats = a.stats + (row * a.q_heads + head) * 2;
  alignas(32) float p[BLOCK];
  float maximum = stats[0];
  for (int64_t i = 0; i < BLOCK; i++) {
    p[i] = i < count ? static_cast<float>(a.scale) * score(q, keys, i, a.dim) : -INFINITY;
    if (i < count && p[i] > maximum) maximum = p[i];
  }
  const float rescale = _mm256_cvtss_f32(exp8(_mm256_set1_ps(stats[0] - maximum)));
  for (int i = 0; i < BLOCK; i += 8)
    _mm256_store_ps(p + i, exp8(_mm256_sub_ps(_mm256_load_ps(p + i), _mm256_set1_ps(maximum))));
  float sum = stats[1] * rescale;
  for (int64_t i = 0; i < count; i++) sum += p[i];
  stats[0] = maximum;
  stats[1] = sum;
  int64_t d = 0;
  for (; d + 64 <= a.dim; d += 64) accumulate<8>(numerator, p, values, count, rescale, d);
  for (; d < a.dim; d += 8) accumulate<1>(numerator, p, values, count, rescale, d);
}

int64_t length_of(const Arguments& a, int64_t row) {
  const int64_t capacity = a.table_pages * a.page_size, length = a.lengths[row];
  return length > capacity ? capacity : length;
}

int64_t block_count(int64_t length, int64_t first) {
  const int64_t left = length - first;
  return left < 0 ? 0 : left > BLOCK ? BLOCK : left;
}

// One KV scan for every row and head of the group.
template <Format F> void grouped(const Arguments& a, int64_t kv_head) {
  const int64_t group = a.q_heads / a.kv_heads;
  int64_t longest = 0;
  for (int64_t row = 0; row < a.rows; row++) longest = length_of(a, row) > longest ? length_of(a, row) : longest;
  Decoded keys, values;
  for (int64_t first = 0; first < longest; first += BLOCK) {
    const int64_t whole = block_count(longest, first);
    keys.take<F>(locate<F>(a, a.k, kv_head, first, whole), whole, a.dim);
    values.take<F>(locate<F>(a, a.v, kv_head, first, whole), whole, a.dim);
    for (int64_t row = 0; row < a.rows; row++) {
      const int64_t count = block_count(length_of(a, row), first);
      for (int64_t head = kv_head * group; count && head < (kv_head + 1) * group; head++)
        update(a, row, head, keys, values, count);
    }
  }
}

// One KV scan for each row and head.
template <Format F> void scalar(const Arguments& a, int64_t row, int64_t head) {
  const int64_t length = length_of(a, row), kv_head = head / (a.q_heads / a.kv_heads);
  for (int64_t first = 0; first < length; first += BLOCK) {
    const int64_t count = block_count(length, first);
    const Stored<F> keys{locate<F>(a, a.k, kv_head, first, count)};
    const Stored<F> values{locate<F>(a, a.v, kv_head, first, count)};
    update(a, row, head, keys, values, count);
  }
}

template <Format F> void attend(const Arguments& a) {
  const int64_t pairs = a.rows * a.q_heads;
  for (int64_t i = 0; i < pairs; i++) {
    a.stats[2 * i] = -1e30f;
    a.stats[2 * i + 1] = 0.0f;
    for (int64_t d = 0; d < a.dim; d++) a.out[i * a.dim + d] = 0.0f;
  }
#if GROUPED
  for (int64_t kv_head = 0; kv_head < a.kv_heads; kv_head++) grouped<F>(a, kv_head);
#else
  for (int64_t i = 0; i < pairs; i++) scalar<F>(a, i / a.q_heads, i % a.q_heads);
#endif
  for (int64_t i = 0; i < pairs; i++) {
    const float sum = a.stats[2 * i + 1];
    for (int64_t d = 0; d < a.dim; d++) a.out[i * a.dim + d] = sum == 0.0f ? 0.0f : a.out[i * a.dim + d] / sum;
  }
}

}  // namespace

EXPORT int ENTRY(revision)(void) { return 1; }

EXPORT int ENTRY(run)(const Arguments* a) {
  if (a->dim > MAX_DIM || a->dim % 8) return 1;
  switch (a->format) {
    case F32: attend<F32>(*a); return 0;
    case BF16: attend<BF16>(*a); return 0;
    case F16: attend<F16>(*a); return 0;
    case E4M3: attend<E4M3>(*a); return 0;
  }
  return 2;
}
