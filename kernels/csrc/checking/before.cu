// What may go before a launch that is checked: a kernel that finishes late, and one that leaves shared memory full of ones.
#include <stdint.h>

#include "abi.h"
#include "sm90.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

constexpr int kThreads = 256;

struct Copy {
  uint8_t* to;
  const uint8_t* from;
  int64_t bytes;
};

__device__ __forceinline__ uint64_t now_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Lets the next kernel of the stream begin at once, and writes only after `wait_ns`: too late for one that does not wait.
__global__ void __launch_bounds__(kThreads) late(const Copy* copies, int count, int64_t wait_ns) {
  sm90::launch_next();
  const uint64_t until = now_ns() + wait_ns;
  while (now_ns() < until) __nanosleep(500);
  for (int c = 0; c < count; c++)
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < copies[c].bytes; i += static_cast<int64_t>(gridDim.x) * kThreads)
      copies[c].to[i] = copies[c].from[i];
}

// A block fills what a multiprocessor has, and stays until every other has one too.
__global__ void __launch_bounds__(kThreads) fill(int bytes, int64_t wait_ns) {
  extern __shared__ uint8_t all[];
  const uint64_t until = now_ns() + wait_ns;
  for (int i = threadIdx.x; i < bytes; i += kThreads) reinterpret_cast<volatile uint8_t*>(all)[i] = 0xFF;
  while (now_ns() < until) __nanosleep(500);
}

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

// copies [count] of {to, from, bytes} on the device.
EXPORT int ENTRY(late)(const void* copies, int count, int blocks, int64_t wait_ns, void* stream) {
  late<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const Copy*>(copies), count, wait_ns);
  return cudaGetLastError();
}

EXPORT int ENTRY(fill)(int blocks, int64_t wait_ns, void* stream) {
  int device = 0, bytes = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error == cudaSuccess) error = cudaFuncSetAttribute(fill, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  fill<<<blocks, kThreads, bytes, static_cast<cudaStream_t>(stream)>>>(bytes, wait_ns);
  return cudaGetLastError();
}
