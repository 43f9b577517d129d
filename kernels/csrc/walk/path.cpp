// `path.h` by one thread.
#include "abi.h"
#include "path.h"

EXPORT int ENTRY(revision)(void) { return 1; }

EXPORT int ENTRY(run)(const float* scores, const int64_t* candidates, const int64_t* seed, const int64_t* start, const double* temperature,
                      int64_t* tokens, double* q, int64_t stride, int rows, int width, int greedy) {
  PathScratch scratch;
  walk(Path{scores, candidates, seed, start, temperature, tokens, q, stride, rows, width, greedy}, scratch);
  return 0;
}
