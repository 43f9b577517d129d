// A trial, no schedule: gate and up with SiLU, then down, of one MLP in a single launch. What `nvfp4-stream-alone` does in two.
//
// The producer warp goes on with down's weights while gate and up finish; down's x waits until every block has stored its part of
// it, at a counter in the second-level cache. The sums are those of the two schedules, so the bytes must be theirs.
#include "projection/nvfp4_stream.cu"

namespace ENTRY(code) {

constexpr int kGo = kEmpty + kStages;  // named barrier: every block's part of down's x is there
static_assert(kGo < 16, "named barriers");

struct Pair {
  Operands o[2];
  unsigned int* met;  // counts up for ever
};

// The consumers' share of one projection; `unit0` of `all` units were those of the one before.
template <Form kForm>
__device__ __forceinline__ void consume(const Operands& o, Shared& s, int unit0, int all, uint32_t& stage, uint32_t& parity) {
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, c = lane & 3, group = warp & 7, k_tile = warp >> 3;
  const int units = o.row_blocks * o.k_units, blocks = gridDim.x, block = blockIdx.x;
  const int begin = first_unit(block, units, blocks), end = first_unit(block + 1, units, blocks);
  const Lane mine(s.stage[0].unit, group, k_tile, lane);
  const uint32_t x = sm90::smem(s.stage[0].x) + g * kXStride + k_tile * 128 + c * 32;
  for (int unit = begin; unit < end;) {
    const int row_block = unit / o.k_units, stop = min(end, (row_block + 1) * o.k_units);
    const bool first = unit == row_block * o.k_units, whole = first && stop == (row_block + 1) * o.k_units;
    float d[2][4] = {};
#pragma unroll 1
    for (; unit < stop; unit++) {
      const uint32_t at = stage * static_cast<uint32_t>(sizeof(Stage));
      sm90::barrier_wait(sm90::smem(&s.full[stage]), parity);
      mine.multiply(d, at, x);
      if (unit0 + unit - begin + kStages < all) sm90::named_arrive(kEmpty + stage, kThreads);
      if (++stage == kStages) stage = 0, parity ^= 1;
    }
    float4 v[2] = {make_float4(d[0][0], d[0][1], d[0][2], d[0][3]), make_float4(d[1][0], d[1][1], d[1][2], d[1][3])};
    if (k_tile == 1) s.half_sum[group][0][lane] = v[0], s.half_sum[group][1][lane] = v[1];
    sm90::named_barrier(kConsumed, kConsumers);
    if (k_tile == 0) add(v[0], s.half_sum[group][0][lane]), add(v[1], s.half_sum[group][1][lane]);
    float4* share = reinterpret_cast<float4*>(o.partial) + (row_block + block) * (kOutputs / 4) + group * 64 + lane;
    if (!first) {
      if (k_tile == 0) __stcg(reinterpret_cast<uint4*>(share), written(v[0])), __stcg(reinterpret_cast<uint4*>(share) + 32, written(v[1]));
    } else if (!whole) {
      const int others = block_of((row_block + 1) * o.k_units - 1, units, blocks) - block;
      if (k_tile == 0) s.half_sum[group][1][lane] = v[1];
      sm90::named_barrier(kConsumed, kConsumers);
      if (k_tile == 1) v[0] = s.half_sum[group][1][lane];
      for (int i = 1; i <= others; i += kAtOnce) collect(v[0], share + i * (kOutputs / 4) + k_tile * 32, min(kAtOnce, others + 1 - i));
      if (k_tile == 1) s.half_sum[group][1][lane] = v[0];
      sm90::named_barrier(kConsumed, kConsumers);
      v[1] = s.half_sum[group][1][lane];
    }
    if (k_tile == 0 && first) store<kForm>(o, row_block, group, lane, v);
    sm90::named_barrier(kConsumed, kConsumers);
  }
}

__global__ void __launch_bounds__(kThreads, 1) both(const __grid_constant__ Pair p) {
  extern __shared__ __align__(128) uint8_t raw[];
  Shared& s = *reinterpret_cast<Shared*>(raw);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, blocks = gridDim.x, block = blockIdx.x;
  int begin[2], count[2];
  for (int i = 0; i < 2; i++) {
    const int units = p.o[i].row_blocks * p.o[i].k_units;
    begin[i] = first_unit(block, units, blocks), count[i] = first_unit(block + 1, units, blocks) - begin[i];
  }
  const int all = count[0] + count[1];
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) sm90::barrier_init(&s.full[i], 1 + 32);
    sm90::barrier_init_visible();
  }
  const int m = p.o[0].m;
  for (int i = threadIdx.x; i < kStages * (8 - m) * (kK / 8); i += kThreads) {
    const int stage = i / ((8 - m) * (kK / 8)), rest = i % ((8 - m) * (kK / 8));
    *reinterpret_cast<uint4*>(&s.stage[stage].x[m + rest / (kK / 8)][rest % (kK / 8) * 16]) = make_uint4(0, 0, 0, 0);
  }
  __syncthreads();
  sm90::launch_next();

  if (warp == kWarps) {
    int stage = 0, made = 0;
    const int piece = lane & 15, row = lane >> 4;
    for (int i = 0; i < 2; i++) {
      const Operands& o = p.o[i];
      const uint8_t* weight = o.weight + static_cast<int64_t>(begin[i]) * kUnitBytes;
      int k_unit = begin[i] % o.k_units;
      auto weights = [&](int stage) {
        if (made++ >= kStages) sm90::named_barrier(kEmpty + stage, kThreads);
        if (lane == 0) sm90::barrier_expect(&s.full[stage], kUnitBytes), sm90::bulk_copy(&s.stage[stage].unit, weight, kUnitBytes, &s.full[stage]);
        weight += kUnitBytes;
      };
      auto activations = [&](int stage) {
        const __half* from = o.x + static_cast<int64_t>(row) * o.x_stride + piece * 8 + k_unit * kK;
#pragma unroll
        for (int j = 0; j < 4; j++, from += 2 * o.x_stride)
          if (row + 2 * j < o.m) sm90::copy_16(sm90::smem(&s.stage[stage].x[row + 2 * j][piece * 16]), from);
        sm90::copies_arrive(&s.full[stage]);
        if (++k_unit == o.k_units) k_unit = 0;
      };
      const int ahead = min(count[i], i == 0 ? kBefore : kStages);
      for (int j = 0; j < ahead; j++) weights((stage + j) % kStages);
      if (i == 0) sm90::wait_for_previous();
      else sm90::named_barrier(kGo, 64);
      for (int j = 0; j < count[i]; j++) {
        if (j >= ahead) weights(stage);
        activations(stage);
        if (++stage == kStages) stage = 0;
      }
    }
    return;
  }

  uint32_t stage = 0, parity = 0;
  consume<kGated>(p.o[0], s, 0, all, stage, parity);
  if (warp == 0) {
    if (lane == 0) {
      __threadfence();
      const unsigned ticket = atomicAdd(p.met, 1u), there = (ticket / blocks + 1) * blocks;
      unsigned now;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(p.met) : "memory");
      } while (static_cast<int>(now - there) < 0);
    }
    __syncwarp();
    sm90::named_arrive(kGo, 64);
  }
  consume<kPlain>(p.o[1], s, count[0], all, stage, parity);
}

}

// Two weights in units, x [m][k] and y [m][n]; hidden [m][inner] between them; workspaces of the projections, zero; met: one zero word.
EXPORT int ENTRY(both)(const void* gate_up, const void* down, const void* x, void* hidden, void* y, void* first, void* second, void* met, int m,
                       int k, int inner, int n, int row_blocks0, int row_blocks1, float scale0, float scale1, int blocks, void* stream) {
  auto partial = [](void* space, int row_blocks) { return reinterpret_cast<float*>(static_cast<uint8_t*>(space) + (row_blocks * 4 + 127) / 128 * 128); };
  Pair p{{{static_cast<const uint8_t*>(gate_up), static_cast<const __half*>(x), hidden, partial(first, row_blocks0), static_cast<unsigned int*>(first),
           m, inner, row_blocks0, k / kK, k, inner, raised(scale0)},
          {static_cast<const uint8_t*>(down), static_cast<const __half*>(hidden), y, partial(second, row_blocks1), static_cast<unsigned int*>(second),
           m, n, row_blocks1, inner / kK, inner, n, raised(scale1)}},
         static_cast<unsigned int*>(met)};
  cudaError_t error = cudaFuncSetAttribute(both, cudaFuncAttributeMaxDynamicSharedMemorySize, kSizeBytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = kThreads;
  config.dynamicSmemBytes = kSizeBytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  error = cudaLaunchKernelEx(&config, both, p);
  return error != cudaSuccess ? error : cudaGetLastError();
}
