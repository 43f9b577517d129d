// `verdict.h` by one block: what lies between the best logits and the verdict in one launch.
#include "abi.h"
#include "verdict.h"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) all(const __grid_constant__ Verdict v) {
  __shared__ VerdictScratch scratch;
  judge(v, scratch);
}

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

EXPORT int ENTRY(run)(const float* values, const int64_t* ids, const float* largest, const int64_t* tokens, const int64_t* draft_ids,
                      const double* q, const int64_t* bonus, int64_t* packed, double temperature, double top_p, double min_p, int64_t stride,
                      int rows, int support, int width, int top_k, int greedy, int complete, void* stream) {
  const Verdict v{values, ids, largest, tokens, draft_ids, q, bonus, packed, temperature, top_p, min_p, stride, rows, support, width, top_k, greedy,
                  complete};
  all<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(v);
  return cudaGetLastError();
}
