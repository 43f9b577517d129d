// Selection on the CPU: one pass over each row with the k + 1 best so far, kept sorted in the output itself.
//
// Ids ascend during the pass, so an equal value that comes later never displaces an earlier one: dense tie order.
// WIDE skips 32 logits at a time whose maximum does not exceed the worst kept value.
#include "abi.h"

#include <immintrin.h>
#include <stdint.h>

namespace {

// Put (value, id) behind every kept value that is not smaller; `kept` entries are in place, `limit` fit.
int64_t insert(float* values, int64_t* ids, int64_t kept, int64_t limit, float value, int64_t id) {
  int64_t place = kept < limit ? kept : limit - 1;
  for (; place > 0 && values[place - 1] < value; place--) {
    values[place] = values[place - 1];
    ids[place] = ids[place - 1];
  }
  values[place] = value;
  ids[place] = id;
  return kept < limit ? kept + 1 : limit;
}

#if WIDE
bool all_below(const float* x, float threshold) {
  const __m256 low = _mm256_set1_ps(threshold);
  const __m256 a = _mm256_max_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8));
  const __m256 b = _mm256_max_ps(_mm256_loadu_ps(x + 16), _mm256_loadu_ps(x + 24));
  return _mm256_movemask_ps(_mm256_cmp_ps(_mm256_max_ps(a, b), low, _CMP_GT_OQ)) == 0;
}
#endif

void choose(const float* row, int64_t vocab, int64_t limit, float* values, int64_t* ids) {
  int64_t kept = 0, id = 0;
  for (; kept < limit; id++) kept = insert(values, ids, kept, limit, row[id], id);
#if WIDE
  for (; id + 32 <= vocab; id += 32) {
    if (all_below(row + id, values[limit - 1])) continue;
    for (int64_t i = id; i < id + 32; i++)
      if (row[i] > values[limit - 1]) insert(values, ids, limit, limit, row[i], i);
  }
#endif
  for (; id < vocab; id++)
    if (row[id] > values[limit - 1]) insert(values, ids, limit, limit, row[id], id);
}

}  // namespace

EXPORT int ENTRY(revision)(void) { return 1; }

// logits [rows, vocab], `stride` elements apart; values and ids [rows, limit], limit = k + 1 <= vocab.
EXPORT int ENTRY(run)(const float* logits, int64_t stride, float* values, int64_t* ids, int64_t rows, int64_t vocab,
                      int64_t limit) {
  if (limit < 1 || limit > vocab) return 1;
  for (int64_t row = 0; row < rows; row++)
    choose(logits + row * stride, vocab, limit, values + row * limit, ids + row * limit);
  return 0;
}
