// What may go before a launch that is checked: a kernel that finishes late, one that leaves shared memory full of ones, and two that
// leave one multiprocessor free, or a part of it.
#include <stdint.h>

#include "abi.h"
#include "sm90.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

constexpr int kThreads = 256, kHalf = 1024;  // kHalf: of the threads that a multiprocessor has

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

// A block of each of two launches fills a multiprocessor. Of the first one that block leaves which `leaves`, once all of its launch are
// there (`told[0]`); the others stay until `stay_ns` after the host has set `told[1]`, at most `longest_ns`: then comes what needs more.
__global__ void __launch_bounds__(kHalf, 2) crowd(unsigned int* there, volatile int* told, int leaves, int64_t stay_ns, int64_t longest_ns) {
  if (threadIdx.x == 0) {
    unsigned int place;
    asm volatile("mov.u32 %0, %smid;" : "=r"(place));
    const uint64_t latest = now_ns() + longest_ns;
    atomicAdd(there, 1u);
    while (__ldcg(there) < gridDim.x && now_ns() < latest) __nanosleep(500);
    told[0] = 1;
    if (place != 0 || !leaves) {
      while (!told[1] && now_ns() < latest) __nanosleep(10000);
      const uint64_t until = now_ns() + stay_ns;
      while (now_ns() < until) __nanosleep(500);
    }
  }
  __syncthreads();
}

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 2; }

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

// A block a multiprocessor, which takes `room` bytes of its shared memory, or all but these where `rest`. there: zero, on the device;
// told [2]: zeros in the host's memory.
EXPORT int ENTRY(crowd)(void* there, void* told, int room, int rest, int leaves, int64_t stay_ns, int64_t longest_ns, void* stream) {
  int device = 0, multiprocessors = 0, bytes = 0, reserved = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, device);
  bytes = rest ? bytes - room - reserved : room - reserved;
  if (error == cudaSuccess) error = cudaFuncSetAttribute(crowd, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  // Or a multiprocessor may be set up with no more than the first launch takes.
  if (error == cudaSuccess) error = cudaFuncSetAttribute(crowd, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (error != cudaSuccess) return error;
  crowd<<<multiprocessors, kHalf, bytes, static_cast<cudaStream_t>(stream)>>>(static_cast<unsigned int*>(there), static_cast<volatile int*>(told),
                                                                              leaves, stay_ns, longest_ns);
  return cudaGetLastError();
}
