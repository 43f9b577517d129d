// `rows.h`, row after row.
#include "abi.h"
#include "rows.h"

EXPORT int ENTRY(revision)(void) { return 1; }

EXPORT int ENTRY(run)(const int64_t* packed, const int64_t* bonus, int64_t* next, int32_t* selector, int64_t* length, const void* rows,
                      void* const* rings, const int64_t* slots, int layers, int count, int row_bytes) {
  if (layers > kMostLayers) return 1;
  const Commit o = commit_of(packed, bonus, next, selector, length, rows, rings, slots, layers, count, row_bytes);
  for (int block = 0; block < blocks_of(o); block++) store(o, block);
  return 0;
}
