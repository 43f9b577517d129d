// `path.h` by one block: a round's whole walk in one launch.
#include "abi.h"
#include "path.h"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

constexpr int kThreads = 512;

__global__ void __launch_bounds__(kThreads) all(const __grid_constant__ Path p) {
  __shared__ PathScratch scratch;
  walk(p, scratch);
}

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

EXPORT int ENTRY(run)(const float* scores, const int64_t* candidates, const int64_t* seed, const int64_t* start, const double* temperature,
                      int64_t* tokens, double* q, int64_t stride, int rows, int width, int greedy, void* stream) {
  all<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(Path{scores, candidates, seed, start, temperature, tokens, q, stride, rows, width, greedy});
  return cudaGetLastError();
}
