// `rows.h` in one launch. `rings` and `slots` lie on the host: they travel with the launch.
#include "abi.h"
#include "rows.h"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) all(const __grid_constant__ Commit o) { store(o, static_cast<int>(blockIdx.x)); }

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

EXPORT int ENTRY(run)(const int64_t* packed, const int64_t* bonus, int64_t* next, int32_t* selector, int64_t* length, const void* rows,
                      void* const* rings, const int64_t* slots, int layers, int count, int row_bytes, void* stream) {
  if (layers > kMostLayers) return cudaErrorInvalidValue;
  const Commit o = commit_of(packed, bonus, next, selector, length, rows, rings, slots, layers, count, row_bytes);
  all<<<blocks_of(o), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(o);
  return cudaGetLastError();
}
