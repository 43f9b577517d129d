// The k + 1 largest logits of each row in dense tie order (larger value, then smaller id): a row is one cluster of blocks.
//
// A block takes a run of its row. Groups of eight lanes find their own largest keys; the (k + 1)-th largest of those bounds the
// answer from below, and the logits at or above it belong to at most k + 1 groups, so they always fit. What a block kept, at most
// 32 keys, it writes into the shared memory of every block of the cluster; each then counts how many keys of the whole row are
// larger than its own. No counter, no global memory between the two steps, no block that is last. Values are copied.
#include <stdint.h>

#include "abi.h"
#include "keys.cuh"
#include "sm90.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

constexpr int kThreads = 512, kBlocks = 16, kLanes = 8, kGroups = kThreads / kLanes, kQuads = 8;
constexpr int kRun = kThreads * kQuads * 4, kGroup = kLanes * kQuads * 4;  // logits of a block at most, of a group
constexpr int kSent = 32;                                                  // keys a block sends; k + 1 at most
static_assert(kThreads == kBlocks * kSent, "a thread sends one key, and ranks a key against one block's");

struct Operands {
  const float* logits;
  float* values;
  long long* ids;
  int64_t stride;
  int vocab, count, run;  // count = k + 1
};

__global__ void __launch_bounds__(kThreads) cluster(const __grid_constant__ Operands o) {
  extern __shared__ __align__(16) uint64_t kept[];  // those of k + 1 groups
  __shared__ __align__(16) uint64_t best[kGroups], row_s[kBlocks][kSent + 2], chosen[kSent];
  __shared__ uint64_t bound;
  __shared__ int size;
  const int row = blockIdx.y, block = blockIdx.x, thread = threadIdx.x, first = block * o.run, end = min(o.vocab, first + o.run);
  const float* logits = o.logits + row * o.stride;
  const bool aligned = (reinterpret_cast<uintptr_t>(logits) & 15) == 0;
  if (thread == 0) size = 0, bound = 1;  // keeps everything where fewer than k + 1 groups have a logit
  sm90::cluster_arrive_relaxed();        // shared memory of a block may be written once it runs
  sm90::wait_for_previous();
  sm90::launch_next();

  float x[kQuads][4];
#pragma unroll
  for (int i = 0; i < kQuads; i++) {
    const int id = first + (i * kThreads + thread) * 4;
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
  // Where the run is over there is -inf, which never beats what came before; a thread's first logit is there, or none is.
  float top = x[0][0];
  int at = 0;
#pragma unroll
  for (int i = 1; i < kQuads * 4; i++)
    if (x[i / 4][i % 4] > top) top = x[i / 4][i % 4], at = i / 4 * kThreads * 4 + i % 4;
  uint64_t key = first + thread * 4 < end ? keys::key_of(top, first + thread * 4 + at) : 0;
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const uint64_t other = __shfl_xor_sync(~0u, key, distance);
    if (other > key) key = other;
  }
  if (thread % kLanes == 0) best[thread / kLanes] = key;
  __syncthreads();
  {  // the lanes of a group share the ranking of its key
    int rank = keys::rank_of(key, best + thread % kLanes * (kGroups / kLanes), kGroups / kLanes);
#pragma unroll
    for (int distance = 1; distance < kLanes; distance *= 2) rank += __shfl_xor_sync(~0u, rank, distance);
    if (thread % kLanes == 0 && key != 0 && rank == o.count - 1) bound = key;
  }
  __syncthreads();
  const uint64_t least = bound;
  const float least_value = least == 1 ? -INFINITY : keys::value_of(least);
#pragma unroll
  for (int i = 0; i < kQuads; i++) {
    if (fmaxf(fmaxf(x[i][0], x[i][1]), fmaxf(x[i][2], x[i][3])) < least_value) continue;  // the rule
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (x[i][j] >= least_value) {  // floats are compared faster than keys
        const int id = first + (i * kThreads + thread) * 4 + j;
        const uint64_t candidate = keys::key_of(x[i][j], id);
        if (id < end && candidate >= least) kept[atomicAdd(&size, 1)] = candidate;
      }
  }
  __syncthreads();
  const int held = size, own = thread % kSent;
  uint64_t sent = own < held ? kept[own] : 0;
  if (held > kSent) {  // ties, or luck: only the k + 1 largest go on
    if ((held & 1) && thread == 0) kept[held] = 0;
    if (thread < kSent) chosen[thread] = 0;
    __syncthreads();
    for (int i = thread; i < held; i += kThreads) {
      const int rank = keys::rank_of(kept[i], kept, (held + 1) & ~1);
      if (rank < o.count) chosen[rank] = kept[i];
    }
    __syncthreads();
    sent = chosen[own];
  }
  sm90::cluster_wait();
  sm90::store_to_block(&row_s[block][own], thread / kSent, sent);
  sm90::cluster_arrive();
  sm90::cluster_wait();

  // Half a warp ranks one of this block's keys, a lane against one block's.
  const uint64_t mine = row_s[block][thread / kBlocks];
  int rank = keys::rank_of(mine, row_s[thread % kBlocks], kSent);
#pragma unroll
  for (int distance = 1; distance < kBlocks; distance *= 2) rank += __shfl_xor_sync(~0u, rank, distance);
  if (thread % kBlocks == 0 && mine != 0 && rank < o.count) {
    const int id = keys::id_of(mine);
    const float value = keys::value_of(mine);
    o.ids[row * o.count + rank] = id;
    o.values[row * o.count + rank] = value == 0.0f ? __ldg(logits + id) : value;  // a key does not know the sign of zero
  }
}

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

// logits [rows][vocab] FP32, `stride` elements between rows; values and ids [rows][count], count <= 32 and <= vocab; vocab <= 262144.
EXPORT int ENTRY(run)(const void* logits, void* values, void* ids, int64_t stride, int rows, int vocab, int count, void* stream) {
  const int run = ((vocab + kBlocks - 1) / kBlocks + 3) / 4 * 4;
  if (run > kRun || count > kSent || count > vocab) return cudaErrorInvalidValue;
  const int size_bytes = count * kGroup * 8 + 16;
  cudaError_t error = cudaFuncSetAttribute(cluster, cudaFuncAttributeMaxDynamicSharedMemorySize, size_bytes);
  if (error == cudaSuccess) error = cudaFuncSetAttribute(cluster, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (error != cudaSuccess) return error;
  Operands o{static_cast<const float*>(logits), static_cast<float*>(values), static_cast<long long*>(ids), stride, vocab, count, run};
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = kBlocks, attributes[0].val.clusterDim.y = 1, attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kBlocks, rows);
  config.blockDim = kThreads;
  config.dynamicSmemBytes = size_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = 2;
  error = cudaLaunchKernelEx(&config, cluster, o);
  return error != cudaSuccess ? error : cudaGetLastError();
}
