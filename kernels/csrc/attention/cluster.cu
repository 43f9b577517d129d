// Verify attention in short contexts: a KV head's rows in shares of up to 24 columns, a share a cluster of blocks that divide the tokens.
//
// A block computes its tiles as `grouped` does. Then its two warpgroups' results become one, and every block of the cluster gets its
// share of the columns from each, in its shared memory, and merges them: nothing travels through global memory and no block waits for
// more than its cluster. A block's own shared addresses carry its rank in the cluster above bit 24: see `described`.
//   sums: a block's tiles are consecutive; warpgroup 0 before 1; then blocks ascending
#include <cuda_fp16.h>
#include <stdint.h>

#include "abi.h"
#include "tiles.cuh"
#include "sm90.cuh"

namespace ENTRY(short_code) {

using namespace attention;
#ifndef ATTENTION_COLUMNS
#define ATTENTION_COLUMNS 24
#define ATTENTION_BLOCKS 8
#endif
constexpr int kColumns = ATTENTION_COLUMNS, kBlocks = ATTENTION_BLOCKS, kEach = kColumns / kBlocks, kPieces = kD / 4, kItems = kEach * kPieces;  // kItems: groups of four outputs a block
constexpr int kWide = kD + 8;  // floats between columns in shared memory: two lanes to a bank at most
static_assert(kColumns % kBlocks == 0 && kItems <= kConsumers && kColumns * kPieces % kConsumers == 0);
static_assert(2 * kColumns * kWide * 4 <= 2 * kStages * kTileBytes, "both warpgroups' results take the place of the stages");

struct Shared {
  Memory<kColumns> tiles;
  alignas(16) float4 shares[kBlocks][kItems];  // what each block of the cluster left here
  float2 weights[kBlocks][kEach];              // its maxima and sums
};

// An address in shared memory as a product describes it: 18 bits, without the block's rank.
__device__ __forceinline__ uint32_t described(const void* p) { return sm90::smem(p) & 0x3FFFF; }

__device__ __forceinline__ void leave(float4* to, uint32_t block, float4 v) {
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nst.shared::cluster.v4.f32 [there], {%2, %3, %4, %5};\n}"
               ::"r"(sm90::smem(to)), "r"(block), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
__device__ __forceinline__ void leave(float2* to, uint32_t block, float2 v) {
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nst.shared::cluster.v2.f32 [there], {%2, %3};\n}"
               ::"r"(sm90::smem(to)), "r"(block), "f"(v.x), "f"(v.y) : "memory");
}

// Both warpgroups' results into shared memory: [warpgroup][column][kWide].
__device__ __forceinline__ void put(Shared& s, const Place& at, const State<kColumns>& r) {
  publish(s.tiles, at, r);
  sm90::named_barrier(kLoaded, kThreads);  // the stages are free
  float* results = reinterpret_cast<float*>(s.tiles.k);
#pragma unroll
  for (int i = 0; i < kColumns / 4; i++) {
    const int column = (i >> 1) * 8 + at.c * 2 + (i & 1), from = (i >> 1) * 4 + (i & 1);
    float4* to = reinterpret_cast<float4*>(results + (at.group * kColumns + column) * kWide + at.w * 64 + at.g * 8);
    to[0] = make_float4(r.acc[0][from], r.acc[0][from + 2], r.acc[1][from], r.acc[1][from + 2]);
    to[1] = make_float4(r.acc[2][from], r.acc[2][from + 2], r.acc[3][from], r.acc[3][from + 2]);
  }
  sm90::named_barrier(3, kConsumers);
}

// The block's result, warpgroup 0 before 1, to the blocks that merge it.
__device__ __forceinline__ void share(Shared& s, int block) {
  const Memory<kColumns>& m = s.tiles;
  const float* results = reinterpret_cast<const float*>(m.k);
  if (threadIdx.x < kColumns) {
    const int column = threadIdx.x;
    const float m0 = m.final_maximum[0][column], m1 = m.final_maximum[1][column], top = fmaxf(m0, m1);
    float sum0 = 0, sum1 = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) sum0 += m.sum[0][i][column], sum1 += m.sum[1][i][column];
    const float sum = sm90::exp2_approx(m0 - top) * sum0 + sm90::exp2_approx(m1 - top) * sum1;
    leave(&s.weights[block][column % kEach], column / kEach, make_float2(top, sum));
  }
#pragma unroll
  for (int i = 0; i < kColumns * kPieces / kConsumers; i++) {
    const int item = i * kConsumers + threadIdx.x, column = item / kPieces;
    const float m0 = m.final_maximum[0][column], m1 = m.final_maximum[1][column], top = fmaxf(m0, m1);
    const float w0 = sm90::exp2_approx(m0 - top), w1 = sm90::exp2_approx(m1 - top);
    const float4* from = reinterpret_cast<const float4*>(results + column * kWide) + item % kPieces;
    const float4 a = from[0], b = from[kColumns * kWide / 4];
    leave(&s.shares[block][item % kItems], item / kItems, make_float4(w0 * a.x + w1 * b.x, w0 * a.y + w1 * b.y, w0 * a.z + w1 * b.z, w0 * a.w + w1 * b.w));
  }
}

// This block's columns, of what all left here.
__device__ __forceinline__ void merge(const Operands& o, const Shared& s, int head, int block) {
  if (threadIdx.x >= kItems) return;
  const int column = threadIdx.x / kPieces;
  float weight[kBlocks], top = kNone, total = 0;
#pragma unroll
  for (int i = 0; i < kBlocks; i++) top = fmaxf(top, s.weights[i][column].x);
  float4 v = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < kBlocks; i++) {
    weight[i] = sm90::exp2_approx(s.weights[i][column].x - top);
    const float4 n = s.shares[i][threadIdx.x];
    v.x = fmaf(weight[i], n.x, v.x), v.y = fmaf(weight[i], n.y, v.y), v.z = fmaf(weight[i], n.z, v.z), v.w = fmaf(weight[i], n.w, v.w);
    total = fmaf(weight[i], s.weights[i][column].y, total);
  }
  write_row(o, head, block * kEach + column, threadIdx.x % kPieces * 4, v, total);
}

__global__ void __launch_bounds__(kThreads, 1) clustered(const __grid_constant__ Operands all, int pages) {
  extern __shared__ __align__(128) uint8_t raw[];
  Shared& s = *reinterpret_cast<Shared*>(raw);
  const int block = blockIdx.x, head = blockIdx.y, rows = kColumns / all.group, first = blockIdx.z * rows, lane = threadIdx.x & 31;
  Operands o = all;
  o.q += static_cast<int64_t>(first) * o.q_heads * kD, o.out += static_cast<int64_t>(first) * o.q_heads * kD;
  o.row_lengths += first, o.rows = min(rows, all.rows - first);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) sm90::barrier_init(&s.tiles.full[i], 128), sm90::barrier_init(&s.tiles.empty[i], 4);
    sm90::barrier_init_visible();
  }
  __syncthreads();
  sm90::cluster_arrive_relaxed();  // this block is there; waited for before anything is left in others
  sm90::launch_next();
  sm90::wait_for_previous();
  const int its_length = __ldcg(o.row_lengths + (lane < o.rows ? lane : 0));
  if (threadIdx.x >= kConsumers) {
    const int id = __ldcg(o.page_table + min(lane, pages - 1)), longest = __reduce_max_sync(~0u, its_length), tiles = (longest + kTile - 1) / kTile;
    load(o, s.tiles, head, tiles * block / kBlocks, tiles * (block + 1) / kBlocks, longest, [&](int page) { return __shfl_sync(~0u, id, page); });
    sm90::copies_wait_all();
    sm90::named_arrive(kLoaded, kThreads);
    sm90::cluster_wait();
    sm90::cluster_arrive_relaxed();
    sm90::cluster_wait();
  } else {
    const int group = __shfl_sync(~0u, threadIdx.x >> 7, 0), w = threadIdx.x >> 5 & 3, g = lane >> 2, c = lane & 3;
    const Place at{group, w, g, c, sm90::smem(s.tiles.k[0]) + (w * 16 + g) * kD,
                   sm90::smem(s.tiles.v[0]) + 2 * c * kD + (((w * 4 + (g >> 1)) ^ c * 2) * 16) + (g & 1) * 8,
                   described(s.tiles.q), described(s.tiles.p[group][0]), sm90::smem(s.tiles.p[group][0])};
    load_queries(o, s.tiles, head);
    const int tiles = (__reduce_max_sync(~0u, its_length) + kTile - 1) / kTile;
    sm90::named_barrier(3, kConsumers);
    State<kColumns> r;
    consume(o, s.tiles, at, tiles * block / kBlocks, tiles * (block + 1) / kBlocks, __reduce_min_sync(~0u, its_length), r);
    put(s, at, r);
    sm90::cluster_wait();
    share(s, block);
    __syncwarp();
    sm90::cluster_arrive();
    sm90::cluster_wait();
    merge(o, s, head, block);
  }
}

}
using namespace ENTRY(short_code);

// As `run` without a workspace, for page tables of at most 32 entries and up to 24 query heads a KV head.
EXPORT int ENTRY(run_short)(const void* q, const void* k, const void* v, const void* page_table, const void* row_lengths, void* out,
                            const int64_t* k_strides, const int64_t* v_strides, int rows, int q_heads, int kv_heads, int page_size, int pages,
                            float scale, void* stream) {
  const int group = q_heads / kv_heads, share = kColumns / group;
  Operands o{static_cast<const __half*>(q), static_cast<const uint8_t*>(k), static_cast<const uint8_t*>(v), static_cast<const int*>(page_table),
             static_cast<const int*>(row_lengths), static_cast<__half*>(out), nullptr, nullptr, nullptr, nullptr, k_strides[0], v_strides[0],
             static_cast<int>(k_strides[1]), static_cast<int>(v_strides[1]), static_cast<int>(k_strides[2]), static_cast<int>(v_strides[2]),
             rows, q_heads, group, page_size, scale * 1.4426950408889634f};
  constexpr int kBytes = sizeof(ENTRY(short_code)::Shared);
  cudaError_t error = cudaFuncSetAttribute(clustered, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error == cudaSuccess && kBlocks > 8) error = cudaFuncSetAttribute(clustered, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = kBlocks, attributes[0].val.clusterDim.y = 1, attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kBlocks, kv_heads, (rows + share - 1) / share);
  config.blockDim = kThreads;
  config.dynamicSmemBytes = kBytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = 2;
  error = cudaLaunchKernelEx(&config, clustered, o, pages);
  return error != cudaSuccess ? error : cudaGetLastError();
}
