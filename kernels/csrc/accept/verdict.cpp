// `verdict.h` by one thread.
#include "abi.h"
#include "verdict.h"

EXPORT int ENTRY(revision)(void) { return 1; }

EXPORT int ENTRY(run)(const float* values, const int64_t* ids, const float* largest, const int64_t* tokens, const int64_t* draft_ids,
                      const double* q, const int64_t* bonus, int64_t* packed, double temperature, double top_p, double min_p, int64_t stride,
                      int rows, int support, int width, int top_k, int greedy, int complete) {
  VerdictScratch scratch;
  judge(Verdict{values, ids, largest, tokens, draft_ids, q, bonus, packed, temperature, top_p, min_p, stride, rows, support, width, top_k, greedy,
                complete}, scratch);
  return 0;
}
