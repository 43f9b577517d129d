// The k + 1 largest logits of each row in dense tie order (larger value, then smaller id), in one launch.
//
// A logit and its id make one 64-bit key, so the order is total and ties need no second thought. A block takes a run of a row,
// each pair of lanes finds its own largest key, and the (k + 1)-th largest of those bounds the answer from below: the logits
// at or above it belong to at most k + 1 pairs, so they always fit. They are ranked by counting; the last block of a row to
// arrive ranks what all blocks kept. Values are copied.
#include <stdint.h>

#include "abi.h"
#include "keys.cuh"
#include "sm90.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

constexpr int kThreads = 256, kPairs = kThreads / 2, kQuads = 16, kRun = kThreads * kQuads * 4;  // logits of a block at most
constexpr int kMost = 65;                                                                       // k + 1
constexpr int kPair = kQuads * 4 * 2;                                                           // logits of a pair of lanes

struct Operands {
  const float* logits;
  float* values;
  long long* ids;
  uint64_t* kept;         // [rows][blocks][k + 1], zero where a run has fewer
  unsigned int* arrived;  // [rows], zero between launches
  int64_t stride;
  int vocab, count, run;  // count = k + 1
};

__global__ void __launch_bounds__(kThreads) threshold(const __grid_constant__ Operands o) {
  extern __shared__ __align__(16) uint64_t kept[];  // those of k + 1 pairs
  __shared__ __align__(16) uint64_t best[kPairs];
  __shared__ uint64_t bound;
  __shared__ int size;
  __shared__ bool last;
  const int row = blockIdx.y, blocks = gridDim.x, first = blockIdx.x * o.run, end = min(o.vocab, first + o.run);
  const float* logits = o.logits + row * o.stride;
  const bool aligned = (reinterpret_cast<uintptr_t>(logits) & 15) == 0;
  if (threadIdx.x == 0) size = 0;

  float x[kQuads][4], top = -INFINITY;
  int top_id = end;  // past every id: the key of a thread that has none stays below all others
#pragma unroll
  for (int i = 0; i < kQuads; i++) {
    const int id = first + (i * kThreads + threadIdx.x) * 4;
    float4 v = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
    if (aligned && id + 4 <= end) {
      v = __ldg(reinterpret_cast<const float4*>(logits + id));
    } else {
      if (id < end) v.x = __ldg(logits + id);
      if (id + 1 < end) v.y = __ldg(logits + id + 1);
      if (id + 2 < end) v.z = __ldg(logits + id + 2);
      if (id + 3 < end) v.w = __ldg(logits + id + 3);
    }
    x[i][0] = v.x, x[i][1] = v.y, x[i][2] = v.z, x[i][3] = v.w;
  }
#pragma unroll
  for (int i = 0; i < kQuads; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int id = first + (i * kThreads + threadIdx.x) * 4 + j;
      if (id < end && (x[i][j] > top || top_id == end)) top = x[i][j], top_id = id;
    }
  uint64_t key = top_id < end ? keys::key_of(top, top_id) : 0;
  const uint64_t other = __shfl_xor_sync(~0u, key, 1);
  if (other > key) key = other;
  if ((threadIdx.x & 1) == 0) best[threadIdx.x >> 1] = key;
  if (threadIdx.x == 0) bound = 1;  // keeps everything where fewer than k + 1 pairs have a logit
  __syncthreads();
  if (threadIdx.x < kPairs) {
    const uint64_t mine = best[threadIdx.x];
    if (mine != 0 && keys::rank_of(mine, best, kPairs) == o.count - 1) bound = mine;
  }
  __syncthreads();
  const uint64_t least = bound;
  const float least_value = least == 1 ? -INFINITY : keys::value_of(least);
#pragma unroll
  for (int i = 0; i < kQuads; i++)
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (x[i][j] >= least_value) {  // rare, and the float is compared faster than the key
        const int id = first + (i * kThreads + threadIdx.x) * 4 + j;
        const uint64_t candidate = keys::key_of(x[i][j], id);
        if (id < end && candidate >= least) kept[atomicAdd(&size, 1)] = candidate;
      }
  __syncthreads();
  const int held = size;
  if ((held & 1) && threadIdx.x == 0) kept[held] = 0;
  uint64_t* mine = o.kept + (static_cast<int64_t>(row) * blocks + blockIdx.x) * o.count;
  for (int i = held + threadIdx.x; i < o.count; i += kThreads) __stcg(reinterpret_cast<unsigned long long*>(mine + i), 0ull);
  __syncthreads();
  for (int i = threadIdx.x; i < held; i += kThreads) {
    const int rank = keys::rank_of(kept[i], kept, (held + 1) & ~1);
    if (rank < o.count) __stcg(reinterpret_cast<unsigned long long*>(mine + rank), static_cast<unsigned long long>(kept[i]));
  }
  __syncthreads();
  if (threadIdx.x == 0) last = sm90::arrive_last(o.arrived + row, blocks), size = 0, bound = 1;
  __syncthreads();
  if (!last) return;

  // Every block's list descends. Where half as many blocks as entries are wanted (rounded up) have a second entry at or
  // above a key, enough entries are; the best such key bounds the answer.
  const unsigned long long* every = reinterpret_cast<const unsigned long long*>(o.kept + static_cast<int64_t>(row) * blocks * o.count);
  const int needed = (o.count + 1) / 2;
  if (blocks >= needed && o.count > 1) {
    if (threadIdx.x < kPairs) best[threadIdx.x] = threadIdx.x < blocks ? __ldcg(every + threadIdx.x * o.count + 1) : 0;
    __syncthreads();
    if (threadIdx.x < blocks && best[threadIdx.x] != 0 && keys::rank_of(best[threadIdx.x], best, (blocks + 1) & ~1) == needed - 1) bound = best[threadIdx.x];
    __syncthreads();
  }
  for (int i = threadIdx.x; i < blocks * o.count; i += kThreads) {
    const uint64_t candidate = __ldcg(every + i);
    if (candidate >= bound) kept[atomicAdd(&size, 1)] = candidate;
  }
  __syncthreads();
  const int left = size;
  if ((left & 1) && threadIdx.x == 0) kept[left] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < left; i += kThreads) {
    const uint64_t candidate = kept[i];
    const int rank = keys::rank_of(candidate, kept, (left + 1) & ~1);
    if (rank >= o.count) continue;
    o.ids[row * o.count + rank] = keys::id_of(candidate);
    o.values[row * o.count + rank] = __ldg(logits + keys::id_of(candidate));
  }
}

int64_t counter_bytes(int rows) { return (static_cast<int64_t>(rows) * 4 + 127) / 128 * 128; }

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

// Bytes of workspace; it must be zero before its first use, and one stream at a time may use it.
EXPORT int64_t ENTRY(workspace_bytes)(int rows, int blocks, int count) { return counter_bytes(rows) + static_cast<int64_t>(rows) * blocks * count * 8; }

// logits [rows][vocab] FP32, `stride` elements between rows; values and ids [rows][count], count <= 65; `blocks` per row, each
// of at most 16384 logits, at most 128.
EXPORT int ENTRY(run)(const void* logits, void* values, void* ids, void* workspace, int64_t stride, int rows, int vocab, int count, int blocks,
                      void* stream) {
  const int run = ((vocab + blocks - 1) / blocks + 3) / 4 * 4;
  if (run > kRun || count > kMost || blocks > kPair || count > vocab) return cudaErrorInvalidValue;
  const int size_bytes = count * kPair * 8 + 16;
  const cudaError_t error = cudaFuncSetAttribute(threshold, cudaFuncAttributeMaxDynamicSharedMemorySize, size_bytes);
  if (error != cudaSuccess) return error;
  Operands o{static_cast<const float*>(logits), static_cast<float*>(values), static_cast<long long*>(ids),
             reinterpret_cast<uint64_t*>(static_cast<uint8_t*>(workspace) + counter_bytes(rows)), static_cast<unsigned int*>(workspace), stride,
             vocab, count, run};
  threshold<<<dim3(blocks, rows), kThreads, size_bytes, static_cast<cudaStream_t>(stream)>>>(o);
  return cudaGetLastError();
}
