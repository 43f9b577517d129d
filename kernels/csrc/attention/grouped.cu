// Verify attention, one scan of a KV head for all its query rows and heads: up to 48 columns n = row * group + head, D = 256.
//
// A tile is 64 tokens of K and V in E4M3. Keys are the A operand of S^T = K Q^T and values, transposed while they are decoded,
// that of O^T = V^T P^T, so nothing is padded and the decoded tiles go from registers into the tensor cores. Two warpgroups
// take alternate tiles, so one decodes while the other multiplies; a producer warp keeps kStages tiles in flight.
//   scores: FP32 sums of exact products, 16 k at a time, k permuted within 64 (16 (s / 2) + 4 j + 2 h + s % 2 for slot s of half h of step j)
//   probabilities: exp2(score * scale * log2 e - m) in FP32, m the running maximum or up to 8 below it, split into FP16 and the
//   FP16 of what that leaves; both multiply V
//   sums: FP32, tokens ascending in steps of 16 within a warpgroup; warpgroup 0 before 1; then splits: three interleaved
//   ascending sequences (or as many as the block has threads for), added in order
// All blocks of a head meet at a barrier and share its merge, so the launch is cooperative. Lengths are read on the device.
// With ATTENTION_EARLY it begins beside the kernel before it instead: a block has a multiprocessor for itself, the kernel after it
// starts when all blocks have started, so all are resident together as soon as what ran before has ended.
#include <cuda_fp16.h>
#include <stdint.h>

#include "abi.h"
#include "tiles.cuh"
#include "sm90.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

using namespace attention;
constexpr int kColumns = 48;
using Shared = Memory<kColumns>;
using Running = State<kColumns>;

// This block's share of a head's 48 x 64 groups of four outputs, over `active` splits.
__device__ __forceinline__ void merge(const Operands& o, Shared& s, int head, int split, int splits, int active) {
  constexpr int kItems = kColumns * kD / 4;
  const int items = (kItems + splits - 1) / splits, first = split * items, end = min(kItems, first + items);
  if (first >= end) return;
  const int column0 = first / (kD / 4), columns = (end - 1) / (kD / 4) - column0 + 1, lane = threadIdx.x & 31;
  float *weights = reinterpret_cast<float*>(s.k), *totals = weights + kColumns * active;  // [columns][active], [columns]
  float4* shares = reinterpret_cast<float4*>(s.v);
  // A warp per column: the splits' weights, and the sum by lane, then by a butterfly.
  for (int i = threadIdx.x >> 5; i < columns; i += kConsumers / 32) {
    const float* maxima = o.maximum + static_cast<int64_t>(head) * splits * kColumns + column0 + i;
    const float* sums = o.sum + static_cast<int64_t>(head) * splits * kColumns + column0 + i;
    float top = kNone, total = 0;
#pragma unroll 5
    for (int at = lane; at < active; at += 32) top = fmaxf(top, __ldcg(maxima + at * kColumns));
#pragma unroll
    for (int distance = 16; distance > 0; distance >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, distance));
#pragma unroll 5
    for (int at = lane; at < active; at += 32) {
      const float weight = sm90::exp2_approx(__ldcg(maxima + at * kColumns) - top);
      weights[i * active + at] = weight, total = fmaf(weight, __ldcg(sums + at * kColumns), total);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance >>= 1) total += __shfl_xor_sync(~0u, total, distance);
    if (lane == 0) totals[i] = total;
  }
  sm90::named_barrier(3, kConsumers);
  const int wide = min(items, kConsumers), parts = kConsumers / wide, part = threadIdx.x / wide;
  for (int item = first + threadIdx.x % wide; item - threadIdx.x % wide < end; item += wide) {
    const bool mine = part < parts && item < end;
    const int column = item / (kD / 4) - column0;
    const float4* from = reinterpret_cast<const float4*>(o.partial) + static_cast<int64_t>(head) * splits * kItems + item;
    float4 v = make_float4(0, 0, 0, 0);
    if (mine)
#pragma unroll 6
      for (int at = part; at < active; at += parts) {
        const float4 n = __ldcg(from + static_cast<int64_t>(at) * kItems);
        const float weight = weights[column * active + at];
        v.x = fmaf(weight, n.x, v.x), v.y = fmaf(weight, n.y, v.y), v.z = fmaf(weight, n.z, v.z), v.w = fmaf(weight, n.w, v.w);
      }
    shares[threadIdx.x] = v;
    sm90::named_barrier(3, kConsumers);
    if (mine && part == 0) {
      for (int p = 1; p < parts; p++) {
        const float4 n = shares[threadIdx.x + p * wide];
        v.x += n.x, v.y += n.y, v.z += n.z, v.w += n.w;
      }
      write_row(o, head, column0 + column, item % (kD / 4) * 4, v, totals[column]);
    }
    sm90::named_barrier(3, kConsumers);
  }
}

// The two warpgroups' results become the split's: each finishes half of the dims, for which it takes the other's share.
__device__ __forceinline__ void finish(const Operands& o, Shared& s, const Place& at, int head, int split, int splits, bool only, Running& r) {
  publish(s, at, r);
  sm90::named_barrier(kLoaded, kThreads);  // the stages are free
  const int thread = threadIdx.x & 127;
  float* given = reinterpret_cast<float*>(s.k) + at.group * 48 * 128;
#pragma unroll
  for (int m = 0; m < 2; m++)
#pragma unroll
    for (int i = 0; i < 24; i++) given[(m * 24 + i) * 128 + thread] = at.group == 0 ? r.acc[2 + m][i] : r.acc[m][i];
  sm90::named_barrier(3, kConsumers);
  const float* taken = reinterpret_cast<const float*>(s.k) + (1 - at.group) * 48 * 128;
  const int64_t base = (static_cast<int64_t>(head) * splits + split) * kColumns;
#pragma unroll
  for (int j = 0; j < 6; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int column = j * 8 + at.c * 2 + e;
      const float m0 = s.final_maximum[0][column], m1 = s.final_maximum[1][column], top = fmaxf(m0, m1);
      const float w0 = sm90::exp2_approx(m0 - top), w1 = sm90::exp2_approx(m1 - top);
      float sum0 = 0, sum1 = 0;
#pragma unroll
      for (int i = 0; i < 4; i++) sum0 += s.sum[0][i][column], sum1 += s.sum[1][i][column];
      const float sum = w0 * sum0 + w1 * sum1;
      float v[4];
#pragma unroll
      for (int m = 0; m < 2; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int i = j * 4 + h * 2 + e;
          const float own = at.group == 0 ? r.acc[m][i] : r.acc[2 + m][i], other = taken[(m * 24 + i) * 128 + thread];
          v[m * 2 + h] = at.group == 0 ? w0 * own + w1 * other : w0 * other + w1 * own;
        }
      const int dim = at.w * 64 + at.g * 8 + at.group * 4;
      if (only) {
        write_row(o, head, column, dim, make_float4(v[0], v[1], v[2], v[3]), sum);
      } else {
        __stcg(reinterpret_cast<float4*>(o.partial + (base + column) * kD + dim), make_float4(v[0], v[1], v[2], v[3]));
        if (at.g == 0 && at.w == 0 && at.group == 0) __stcg(o.maximum + base + column, top), __stcg(o.sum + base + column, sum);
      }
    }
}

// Wait until every block of this head has written its share.
__device__ __forceinline__ void meet(unsigned int* arrived, int blocks) {
  sm90::named_barrier(3, kConsumers);
  if (threadIdx.x == 0) {
    __threadfence();
    const unsigned ticket = atomicAdd(arrived, 1u), all = (ticket / blocks + 1) * blocks;
    unsigned now;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
    } while (static_cast<int>(now - all) < 0);
  }
  sm90::named_barrier(3, kConsumers);
}

__global__ void __launch_bounds__(kThreads, 1) grouped(const __grid_constant__ Operands o) {
  extern __shared__ __align__(128) uint8_t raw[];
  Shared& s = *reinterpret_cast<Shared*>(raw);
  const int head = blockIdx.y, split = blockIdx.x, splits = gridDim.x;
#ifdef ATTENTION_EARLY
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) sm90::barrier_init(&s.full[i], 128), sm90::barrier_init(&s.empty[i], 4);
    sm90::barrier_init_visible();
  }
  sm90::launch_next();
  sm90::wait_for_previous();
#endif
  const Lengths length = lengths(o);
  const int tiles = (length.longest + kTile - 1) / kTile, active = max(1, min(splits, (tiles + 1) / 2));
  const int begin = split < active ? static_cast<int>(static_cast<int64_t>(tiles) * split / active) : tiles;
  const int end = split < active ? static_cast<int>(static_cast<int64_t>(tiles) * (split + 1) / active) : tiles;
  if (active == 1 && split > 0) return;

#ifndef ATTENTION_EARLY
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) sm90::barrier_init(&s.full[i], 128), sm90::barrier_init(&s.empty[i], 4);
    sm90::barrier_init_visible();
  }
#endif
  __syncthreads();

  if (threadIdx.x >= kConsumers) {
    sm90::keep_registers<40>();
    load(o, s, head, begin, end, length.longest, [&](int page) { return __ldg(o.page_table + page); });
    if (begin < end || active == 1) {
      sm90::copies_wait_all();
      sm90::named_arrive(kLoaded, kThreads);
    }
  } else {
    sm90::take_registers<232>();
    if (begin < end || active == 1) {
      const int lane = threadIdx.x & 31, group = __shfl_sync(~0u, threadIdx.x >> 7, 0), w = threadIdx.x >> 5 & 3, g = lane >> 2, c = lane & 3;
      const Place at{group, w, g, c, sm90::smem(s.k[0]) + (w * 16 + g) * kD,
                     sm90::smem(s.v[0]) + 2 * c * kD + (((w * 4 + (g >> 1)) ^ c * 2) * 16) + (g & 1) * 8, sm90::smem(s.q), sm90::smem(s.p[group][0]), sm90::smem(s.p[group][0])};
      load_queries(o, s, head);
      sm90::named_barrier(3, kConsumers);
      Running r;
      consume(o, s, at, begin, end, length.shortest, r);
      finish(o, s, at, head, split, splits, active == 1, r);
    }
    if (active == 1) return;
    meet(o.arrived + head, splits);
    merge(o, s, head, split, splits, active);
  }
}

int64_t counter_bytes(int heads) { return (static_cast<int64_t>(heads) * 4 + 127) / 128 * 128; }

}
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

// Bytes of workspace; it must be zero before its first use, and one stream at a time may use it.
EXPORT int64_t ENTRY(workspace_bytes)(int kv_heads, int splits) {
  return counter_bytes(kv_heads) + static_cast<int64_t>(kv_heads) * splits * kColumns * (kD + 2) * 4;
}

// q [rows][q_heads][256] FP16; k, v E4M3 with byte strides [page, token, head] and contiguous dims; splits * kv_heads blocks must
// be resident at once.
EXPORT int ENTRY(run)(const void* q, const void* k, const void* v, const void* page_table, const void* row_lengths, void* out, void* workspace,
                      const int64_t* k_strides, const int64_t* v_strides, int rows, int q_heads, int kv_heads, int page_size, float scale,
                      int splits, void* stream) {
  float* partial = reinterpret_cast<float*>(static_cast<uint8_t*>(workspace) + counter_bytes(kv_heads));
  float* maximum = partial + static_cast<int64_t>(kv_heads) * splits * kColumns * kD;
  Operands o{static_cast<const __half*>(q), static_cast<const uint8_t*>(k), static_cast<const uint8_t*>(v), static_cast<const int*>(page_table),
             static_cast<const int*>(row_lengths), static_cast<__half*>(out), partial, maximum,
             maximum + static_cast<int64_t>(kv_heads) * splits * kColumns, static_cast<unsigned int*>(workspace), k_strides[0], v_strides[0],
             static_cast<int>(k_strides[1]), static_cast<int>(v_strides[1]), static_cast<int>(k_strides[2]), static_cast<int>(v_strides[2]),
             rows, q_heads, q_heads / kv_heads, page_size, scale * 1.4426950408889634f};
  cudaError_t error = cudaFuncSetAttribute(grouped, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute;
#ifdef ATTENTION_EARLY
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
#else
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
#endif
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(splits, kv_heads);
  config.blockDim = kThreads;
  config.dynamicSmemBytes = sizeof(Shared);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  error = cudaLaunchKernelEx(&config, grouped, o);
  return error != cudaSuccess ? error : cudaGetLastError();
}
