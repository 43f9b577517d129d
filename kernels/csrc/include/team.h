// Loops that the threads of a block share, or that one CPU thread makes alone, so that a body is written once and runs on both.
#pragma once
#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define ANYWHERE __device__ __forceinline__
#else
#define ANYWHERE inline
#endif

namespace team {

#ifdef __CUDACC__
ANYWHERE int rank() { return static_cast<int>(threadIdx.x); }
ANYWHERE int size() { return static_cast<int>(blockDim.x); }
ANYWHERE void meet() { __syncthreads(); }
#else
ANYWHERE int rank() { return 0; }
ANYWHERE int size() { return 1; }
ANYWHERE void meet() {}
#endif

// `work(i)` for every i below `count`; then all meet.
template <typename Work> ANYWHERE void each(int count, Work work) {
  for (int i = rank(); i < count; i += size()) work(i);
  meet();
}
// `work()` by one of them; then all meet.
template <typename Work> ANYWHERE void once(Work work) {
  if (rank() == 0) work();
  meet();
}

// As torch's argmax takes them: the first of the largest, a NaN before all.
ANYWHERE bool above(double x, double best) { return x > best || (x != x && best == best); }

}  // namespace team
