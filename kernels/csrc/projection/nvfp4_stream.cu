// NVFP4 or E4M3 x FP16 for M <= 8 rows: weights stream once through shared memory into the tensor cores, as their A operand.
//
// A unit is 256 weight rows x 128 k, contiguous: 16384 code bytes and 2048 scale bytes (layout: projection/packing.py), or with
// STREAM_E4M3 32768 code bytes (projection/fp8_packing.py). Units are numbered row block by row block, k inside; each of the
// grid's blocks takes one contiguous run of them, so all finish together. Every product of code and scale is exact in FP16
// (E2M1 x E4M3 needs 6 bits), E4M3 alone is, and every sum is FP32:
//   per row block and output: (even 64-wide k tiles in order) + (odd ones in order) within a block's run, by mma.m16n8k16;
//   runs are added in ascending k by the last block to arrive; then the weight's scale, or its row's; one rounding to FP16.
// With STREAM_EXCHANGE the block whose run begins a row block waits for the other shares and adds them, own first: the same
// sums in the same order, without a counter. Blocks then wait for later ones, so all must be resident together.
// With STREAM_ALONE a block takes a multiprocessor for itself, so that blocks which start early, as those of the kernel before end,
// spread evenly; and only kBefore stages are asked for while that kernel runs, whose few loads would wait behind more.
// With STREAM_ONCE the second-level cache is told to let weights go first, which nobody reads again before all others have passed.
// With STREAM_SENDS the source is part of publication/peers_stream.cu: FP32 sums leave for every rank's inbox, and the kernel behind
// may begin once every block has waited for the kernels before.
// The order depends on N, K and the number of blocks alone. Loads of weights start before the previous kernel has
// finished: weights must not be written by a kernel still in flight on the stream.
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>

#include "abi.h"
#include "sm90.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

constexpr int kRows = 256, kK = 128, kWarps = 16, kStages = STREAM_STAGES;
#ifdef STREAM_ALONE
constexpr int kBefore = STREAM_ALONE, kResident = 1;
#else
constexpr int kBefore = kStages, kResident = 2;
#endif
constexpr int kXStride = kK * 2 + 16;  // bytes between rows of x in shared memory: fragments read without bank conflicts
constexpr int kConsumers = kWarps * 32, kThreads = kConsumers + 32;
constexpr int kOutputs = kRows * 8;
constexpr int kConsumed = 1, kEmpty = 2;  // named barriers: of the consumers, and from here on of a stage given back

// A unit's weights and their Scale; what a lane reads: its 16 consecutive k of rows g and g + 8, in each of two row tiles,
// against the same k of x.
#ifdef STREAM_E4M3
struct Unit {
  uint8_t codes[kRows * kK];
};
using Scale = const float*;  // of each row
__device__ __forceinline__ float scale_of(Scale scale, int row) { return __ldg(scale + row); }
Scale raised(Scale scale) { return scale; }

struct Lane {
  uint32_t codes;
  __device__ __forceinline__ Lane(const Unit& unit, int group, int k_tile, int lane) : codes(sm90::smem(unit.codes) + (group * 4 + k_tile) * 1024 + lane * 16) {}
  __device__ __forceinline__ void keep() { sm90::keep(codes); }
  __device__ __forceinline__ void multiply(float (&d)[2][4], uint32_t stage, uint32_t x) const {
    const uint4 x0 = sm90::load_16(x + stage), x1 = sm90::load_16(x + stage + 16);
    const uint32_t b[8] = {x0.x, x0.y, x0.z, x0.w, x1.x, x1.y, x1.z, x1.w};
#pragma unroll
    for (int tile = 0; tile < 2; tile++) {
      const uint4 q = sm90::load_16(codes + stage + tile * 2048), r = sm90::load_16(codes + stage + tile * 2048 + 512);
      const uint32_t upper[4] = {q.x, q.y, q.z, q.w}, lower[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
      for (int i = 0; i < 4; i++) {  // four k, a pair of them in each register
        uint32_t a[2], e[2];
        sm90::e4m3_to_half2(upper[i], a[0], a[1]), sm90::e4m3_to_half2(lower[i], e[0], e[1]);
        sm90::mma_16816(d[tile], a[0], e[0], a[1], e[1], b[2 * i], b[2 * i + 1]);
      }
    }
  }
};
#else
struct Unit {
  uint8_t codes[kRows * kK / 2], scales[kRows * kK / 16];
};
using Scale = float;
__device__ __forceinline__ float scale_of(Scale scale, int) { return scale; }
Scale raised(Scale scale) { return scale * 16384.0f; }  // the decode's 2^-14

// A word holds eight codes: elements 2p and 2p+1 of pair p in its low and high half. Sign and magnitude of pairs 0 and 1
// lie so that one mask (after one shift) gives an FP16 of value x 2^-14; pairs 2 and 3 have their signs apart.
// Times the scale it is a multiple of 2^-24 of at most 8 bits, so FP16 holds it exactly.
__device__ __forceinline__ void decode(uint32_t q, uint32_t scale, uint32_t (&h)[4]) {
  constexpr uint32_t kBoth = 0x8E008E00u, kSign = 0x80008000u, kMagnitude = 0x0E000E00u;
  h[0] = sm90::half2_mul(q & kBoth, scale);
  h[1] = sm90::half2_mul((q * 8u) & kBoth, scale);
  h[2] = sm90::half2_mul(((q * 2u) & kSign) | ((q * 64u) & kMagnitude), scale);
  h[3] = sm90::half2_mul(((q * 4u) & kSign) | ((q * 512u) & kMagnitude), scale);
}

struct Lane {
  uint32_t codes, scales;
  __device__ __forceinline__ Lane(const Unit& unit, int group, int k_tile, int lane)
      : codes(sm90::smem(unit.codes) + ((group * 4 + k_tile) * 32 + lane) * 16), scales(sm90::smem(unit.scales) + (group * 32 + lane) * 8 + k_tile * 4) {}
  __device__ __forceinline__ void keep() { sm90::keep(codes), sm90::keep(scales); }
  __device__ __forceinline__ void multiply(float (&d)[2][4], uint32_t stage, uint32_t x) const {
    const uint32_t scale = sm90::load_4(scales + stage);
    const uint4 q[2] = {sm90::load_16(codes + stage), sm90::load_16(codes + stage + 1024)};
    const uint4 x0 = sm90::load_16(x + stage), x1 = sm90::load_16(x + stage + 16);
    uint32_t both[2];  // scales of rows g and g + 8
    sm90::e4m3_to_half2(scale, both[0], both[1]);
#pragma unroll
    for (int tile = 0; tile < 2; tile++) {
      const uint32_t upper = __byte_perm(both[tile], 0, 0x1010), lower = __byte_perm(both[tile], 0, 0x3232);
      uint32_t a[4], e[4];
      decode(q[tile].x, upper, a), decode(q[tile].z, lower, e);
      sm90::mma_16816(d[tile], a[0], e[0], a[1], e[1], x0.x, x0.y);
      sm90::mma_16816(d[tile], a[2], e[2], a[3], e[3], x0.z, x0.w);
      decode(q[tile].y, upper, a), decode(q[tile].w, lower, e);
      sm90::mma_16816(d[tile], a[0], e[0], a[1], e[1], x1.x, x1.y);
      sm90::mma_16816(d[tile], a[2], e[2], a[3], e[3], x1.z, x1.w);
    }
  }
};
#endif
constexpr int kUnitBytes = sizeof(Unit);

struct Stage {
  Unit unit;
  uint8_t x[8][kXStride];
};
struct Shared {
  Stage stage[kStages];
  float4 half_sum[8][2][32];
  uint64_t full[kStages];
  bool last;
};
// Alone: more than half of what a multiprocessor has.
constexpr int kSizeBytes = kResident == 1 && sizeof(Shared) < 118784 ? 118784 : sizeof(Shared);

struct Operands {
  const uint8_t* weight;
  const __half* x;
  void* y;               // FP32 where the form is kWide, else FP16
  float* partial;        // [block + row block][kOutputs]: no two pairs of a block and a row block it shares have the same sum
  unsigned int* arrived; // [row blocks], zero between launches
  int m, n, row_blocks, k_units, x_stride, y_stride;
  Scale scale;
#ifdef STREAM_SENDS
  ENTRY(mail)::Ends ends;
#endif
};

__device__ __forceinline__ int first_unit(unsigned block, unsigned units, unsigned blocks) { return block * units / blocks; }
// The block whose run holds `unit`.
__device__ __forceinline__ int block_of(unsigned unit, unsigned units, unsigned blocks) { return ((unit + 1) * blocks - 1) / units; }

#if STREAM_EXCHANGE
constexpr int kAtOnce = 3;                   // shares waited for together
constexpr unsigned int kGiveUp = 1u << 26;   // a minute: the launch fails rather than hangs

// A share travels without a flag: a word is zero until its sum is there, and a sum of +0 is written as -0.
__device__ __forceinline__ uint4 written(const float4& v) {
  auto word = [](float x) { return x == 0.0f ? 0x80000000u : __float_as_uint(x); };
  return make_uint4(word(v.x), word(v.y), word(v.z), word(v.w));
}
__device__ __forceinline__ bool complete(const uint4& w) { return w.x != 0 && w.y != 0 && w.z != 0 && w.w != 0; }
#endif

__device__ __forceinline__ void add(float4& sum, const float4& x) { sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w; }

#if STREAM_EXCHANGE
// Adds `count` shares in order once they are there, and leaves zeros for the next launch: each is taken by an exchange in the
// second-level cache, word by word if it comes so.
__device__ __forceinline__ void collect(float4& sum, float4* share, int count) {
  uint4 w[kAtOnce], more[kAtOnce];
#pragma unroll
  for (int i = 0; i < kAtOnce; i++) w[i] = make_uint4(0, 0, 0, 0);
  for (unsigned int turn = 0;; turn++) {
    bool there = true;
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) more[i] = i < count && !complete(w[i]) ? sm90::take(share + i * (kOutputs / 4)) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) {
      w[i].x |= more[i].x, w[i].y |= more[i].y, w[i].z |= more[i].z, w[i].w |= more[i].w;
      there &= i >= count || complete(w[i]);
    }
    if (there) break;
    if (turn == kGiveUp) __trap();
    // What is missing is only looked at until it comes: an exchange costs the cache far more than a load.
#pragma unroll
    for (int i = 0; i < kAtOnce; i++)
      if (i < count && !complete(w[i])) {
        const int missing = w[i].x == 0 ? 0 : w[i].y == 0 ? 1 : w[i].z == 0 ? 2 : 3;
        const uint32_t* word = reinterpret_cast<const uint32_t*>(share + i * (kOutputs / 4)) + missing;
        for (unsigned int look = 0; sm90::load_relaxed(word) == 0; look++)
          if (look == kGiveUp) __trap();
      }
  }
#pragma unroll
  for (int i = 0; i < kAtOnce; i++)
    if (i < count) add(sum, make_float4(__uint_as_float(w[i].x), __uint_as_float(w[i].y), __uint_as_float(w[i].z), __uint_as_float(w[i].w)));
}
#endif

// A unit's weights on their way into shared memory.
__device__ __forceinline__ void fetch(Unit& to, const uint8_t* from, uint64_t* full) {
#ifdef STREAM_ONCE
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(sm90::smem(&to)),
               "l"(from), "r"(kUnitBytes), "r"(sm90::smem(full)), "l"(policy) : "memory");
#else
  sm90::bulk_copy(&to, from, kUnitBytes, full);
#endif
}

enum Form { kPlain = 0, kGated = 1, kWide = 2 };  // FP16, SiLU of a gate times its up, FP32

// Values of one lane: [m tile][row g or g + 8, column 2c or 2c + 1], m tiles 2 * group and 2 * group + 1 of the row block.
template <Form kForm>
__device__ __forceinline__ void store(const Operands& o, int row_block, int group, int lane, const float4 (&v)[2]) {
  const int g = lane >> 2, c = lane & 3;
  const float a[2][4] = {{v[0].x, v[0].y, v[0].z, v[0].w}, {v[1].x, v[1].y, v[1].z, v[1].w}};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = 2 * c + (i & 1), r = g + (i >> 1) * 8;
    if (row >= o.m) continue;
    if constexpr (kForm == kGated) {  // m tile 0 holds gate rows, m tile 1 the up rows of the same outputs
      const int column = row_block * (kRows / 2) + group * 16 + r;
      if (column >= o.n) continue;
      const float gate = __half2float(__float2half_rn(a[0][i] * scale_of(o.scale, column)));
      const __half silu = __float2half_rn(gate / (1.0f + __expf(-gate)));
      const __half up = __float2half_rn(a[1][i] * scale_of(o.scale, o.n + column));
      static_cast<__half*>(o.y)[static_cast<int64_t>(row) * o.y_stride + column] = __hmul(silu, up);
    } else {
#pragma unroll
      for (int t = 0; t < 2; t++) {
        const int column = row_block * kRows + (group * 2 + t) * 16 + r;
        const int64_t place = static_cast<int64_t>(row) * o.y_stride + column;
        if (column >= o.n) continue;
        if constexpr (kForm == kWide) static_cast<float*>(o.y)[place] = a[t][i] * scale_of(o.scale, column);
        else static_cast<__half*>(o.y)[place] = __float2half_rn(a[t][i] * scale_of(o.scale, column));
      }
    }
  }
}

#ifdef STREAM_SENDS
// FP32 values into every rank's inbox: two lanes of neighbouring columns exchange halves, so that each
// has two columns of one row.
__device__ __forceinline__ void leave(const Operands& o, int row_block, int group, int lane, const float4 (&v)[2], unsigned int epoch) {
  const int g = lane >> 2, c = lane & 3, odd = g & 1, row = 2 * c + odd;
  const float a[2][4] = {{v[0].x, v[0].y, v[0].z, v[0].w}, {v[1].x, v[1].y, v[1].z, v[1].w}};
#pragma unroll
  for (int t = 0; t < 2; t++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int first = row_block * kRows + (group * 2 + t) * 16 + half * 8;
      const float scale = scale_of(o.scale, min(first + g, o.n - 1));
      const float kept = (odd ? a[t][2 * half + 1] : a[t][2 * half]) * scale, passed = (odd ? a[t][2 * half] : a[t][2 * half + 1]) * scale;
      const float other = __shfl_xor_sync(~0u, passed, 4);
      const float2 two = odd ? make_float2(other, kept) : make_float2(kept, other);
      const int column = first + (g & ~1);
      if (row >= o.m || column >= o.n) continue;  // n is even
      ENTRY(mail)::send_all(o.ends, epoch, row, column, two);
    }
}
#endif

template <Form kForm>
__global__ void __launch_bounds__(kThreads, kResident) stream(const __grid_constant__ Operands o) {
  extern __shared__ __align__(128) uint8_t raw[];
  Shared& s = *reinterpret_cast<Shared*>(raw);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, c = lane & 3;
  const int units = o.row_blocks * o.k_units, blocks = gridDim.x, block = blockIdx.x;
  const int begin = first_unit(block, units, blocks), end = first_unit(block + 1, units, blocks);

  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) sm90::barrier_init(&s.full[i], 1 + 32);
    sm90::barrier_init_visible();
  }
  for (int i = threadIdx.x; i < kStages * (8 - o.m) * (kK / 8); i += kThreads) {  // rows that x does not have
    const int stage = i / ((8 - o.m) * (kK / 8)), rest = i % ((8 - o.m) * (kK / 8));
    *reinterpret_cast<uint4*>(&s.stage[stage].x[o.m + rest / (kK / 8)][rest % (kK / 8) * 16]) = make_uint4(0, 0, 0, 0);
  }
  __syncthreads();
#ifndef STREAM_SENDS
  sm90::launch_next();
#endif

  if (warp == kWarps) {
    const uint8_t* weight = o.weight + static_cast<int64_t>(begin) * kUnitBytes;
    int k_unit = begin % o.k_units, stage = 0;
    // One lane announces and starts a unit's weights; all lanes copy its x, four pieces of 16 bytes each.
    auto weights = [&](int stage) {
      if (lane == 0) sm90::barrier_expect(&s.full[stage], kUnitBytes), fetch(s.stage[stage].unit, weight, &s.full[stage]);
      weight += kUnitBytes;
    };
    const int piece = lane & 15, row = lane >> 4;
    const __half* x_from = o.x + static_cast<int64_t>(row) * o.x_stride + piece * 8;
    const uint32_t x_to = sm90::smem(&s.stage[0].x[row][piece * 8 * 2]);
    auto activations = [&](int stage) {
      const __half* from = x_from + k_unit * kK;
#pragma unroll
      for (int i = 0; i < 4; i++, from += 2 * o.x_stride)
        if (row + 2 * i < o.m) sm90::copy_16(x_to + stage * sizeof(Stage) + i * 2 * kXStride, from);
      sm90::copies_arrive(&s.full[stage]);
      if (++k_unit == o.k_units) k_unit = 0;
    };
    const int ahead = min(end - begin, kStages), before = min(ahead, kBefore);
    for (int i = 0; i < before; i++) weights(i);
    sm90::wait_for_previous();
#ifdef STREAM_SENDS
    sm90::launch_next();
#endif
    for (int i = 0; i < before; i++) activations(i);
    for (int i = before; i < ahead; i++) weights(i), activations(i);
#pragma unroll 1
    for (int unit = begin + ahead; unit < end; unit++) {
      sm90::named_barrier(kEmpty + stage, kThreads);
      weights(stage);
      activations(stage);
      if (++stage == kStages) stage = 0;
    }
    return;
  }

  const int group = warp & 7, k_tile = warp >> 3;  // 32 weight rows; which 64-wide k tile of the unit
  Lane mine(s.stage[0].unit, group, k_tile, lane);
  uint32_t x = sm90::smem(s.stage[0].x) + g * kXStride + k_tile * 128 + c * 32;
  uint32_t stage = 0, barrier = sm90::smem(&s.full[0]), parity = 0, empty = kEmpty;
  mine.keep(), sm90::keep(x);
#ifdef STREAM_SENDS
  sm90::barrier_wait(barrier, 0);  // the copying warp has waited for the kernels before, the last publication among them
  const unsigned int epoch = ENTRY(mail)::after(__ldcg(&o.ends.state->epoch));
#endif
  for (int unit = begin; unit < end;) {
    const int row_block = unit / o.k_units, stop = min(end, (row_block + 1) * o.k_units);
    const bool first = unit == row_block * o.k_units, whole = first && stop == (row_block + 1) * o.k_units;
    float d[2][4] = {};
#pragma unroll 1
    for (; unit < stop; unit++) {
      sm90::barrier_wait(barrier, parity);
      mine.multiply(d, stage, x);
      // Not before everything read has been used: a barrier does not wait for loads, and a copy out of the second-level cache
      // can land before they are performed. Nobody waits for the last stages.
      if (unit + kStages < end) sm90::named_arrive(empty, kThreads);
      stage += sizeof(Stage), barrier += 8, empty++;
      if (stage == kStages * sizeof(Stage)) stage = 0, barrier -= kStages * 8, empty = kEmpty, parity ^= 1;
    }

    float4 v[2] = {make_float4(d[0][0], d[0][1], d[0][2], d[0][3]), make_float4(d[1][0], d[1][1], d[1][2], d[1][3])};
    if (k_tile == 1) s.half_sum[group][0][lane] = v[0], s.half_sum[group][1][lane] = v[1];
    sm90::named_barrier(kConsumed, kConsumers);
    if (k_tile == 0) add(v[0], s.half_sum[group][0][lane]), add(v[1], s.half_sum[group][1][lane]);
#if STREAM_EXCHANGE
    float4* share = reinterpret_cast<float4*>(o.partial) + (row_block + block) * (kOutputs / 4) + group * 64 + lane;
    if (!first) {
      if (k_tile == 0) __stcg(reinterpret_cast<uint4*>(share), written(v[0])), __stcg(reinterpret_cast<uint4*>(share) + 32, written(v[1]));
    } else if (!whole) {  // the run ends here: what remains is to wait for the runs that finish this row block
      const int others = block_of((row_block + 1) * o.k_units - 1, units, blocks) - block;
      if (k_tile == 0) s.half_sum[group][1][lane] = v[1];
      sm90::named_barrier(kConsumed, kConsumers);
      if (k_tile == 1) v[0] = s.half_sum[group][1][lane];
      for (int i = 1; i <= others; i += kAtOnce) collect(v[0], share + i * (kOutputs / 4) + k_tile * 32, min(kAtOnce, others + 1 - i));
      if (k_tile == 1) s.half_sum[group][1][lane] = v[0];
      sm90::named_barrier(kConsumed, kConsumers);
      v[1] = s.half_sum[group][1][lane];
    }
#ifdef STREAM_SENDS
    if (k_tile == 0 && first) leave(o, row_block, group, lane, v, epoch);
#else
    if (k_tile == 0 && first) store<kForm>(o, row_block, group, lane, v);
#endif
#else
    if (!whole) {
      float4* partial = reinterpret_cast<float4*>(o.partial) + row_block * (kOutputs / 4) + group * 64 + lane;
      if (k_tile == 0) __stcg(partial + block * (kOutputs / 4), v[0]), __stcg(partial + block * (kOutputs / 4) + 32, v[1]);
      const int from = block_of(row_block * o.k_units, units, blocks), to = block_of((row_block + 1) * o.k_units - 1, units, blocks);
      sm90::named_barrier(kConsumed, kConsumers);
      if (threadIdx.x == 0) s.last = sm90::arrive_last(&o.arrived[row_block], to - from + 1);
      sm90::named_barrier(kConsumed, kConsumers);
      if (s.last) {
        v[0] = make_float4(0, 0, 0, 0);
        partial += k_tile * 32;
#pragma unroll 4
        for (int b = from; b <= to; b++) add(v[0], __ldcg(partial + b * (kOutputs / 4)));
        if (k_tile == 1) s.half_sum[group][1][lane] = v[0];
        sm90::named_barrier(kConsumed, kConsumers);
        v[1] = s.half_sum[group][1][lane];
      }
    }
    if (k_tile == 0 && (whole || s.last)) store<kForm>(o, row_block, group, lane, v);
#endif
    sm90::named_barrier(kConsumed, kConsumers);  // half_sum and last are free again
  }
}

// Bytes of workspace: a counter of each row block, then shares.
inline int64_t workspace_of(int row_blocks, int blocks) {
  return static_cast<int64_t>(row_blocks) * 4 + 128 + static_cast<int64_t>(blocks + row_blocks) * kOutputs * 4;
}
inline Operands operands_of(const void* weight, const void* x, void* y, void* workspace, int m, int n, int row_blocks, int k_units,
                            int x_stride, int y_stride, Scale scale) {
  const int64_t counters = (static_cast<int64_t>(row_blocks) * 4 + 127) / 128 * 128;
  return {static_cast<const uint8_t*>(weight), static_cast<const __half*>(x), y,
          reinterpret_cast<float*>(static_cast<uint8_t*>(workspace) + counters), static_cast<unsigned int*>(workspace),
          m, n, row_blocks, k_units, x_stride, y_stride, raised(scale)};
}

template <Form kForm>
cudaError_t launch_stream(const Operands& o, int overlapped, int blocks, void* stream_) {
  const auto kernel = stream<kForm>;
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSizeBytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = overlapped;
  cudaLaunchConfig_t config{};
  config.gridDim = min(blocks, o.row_blocks * o.k_units);
  config.blockDim = kThreads;
  config.dynamicSmemBytes = kSizeBytes;
  config.stream = static_cast<cudaStream_t>(stream_);
  config.attrs = &attribute;
  config.numAttrs = overlapped ? 1 : 0;
  error = cudaLaunchKernelEx(&config, kernel, o);
  return error != cudaSuccess ? error : cudaGetLastError();
}

}

#ifndef STREAM_SENDS
using namespace ENTRY(code);

EXPORT int ENTRY(revision)() { return 1; }

// Bytes of workspace for `row_blocks` row blocks on `blocks` blocks; it must be zero before its first use.
EXPORT int64_t ENTRY(workspace_bytes)(int row_blocks, int blocks) { return workspace_of(row_blocks, blocks); }

// weight: row_blocks * k_units units; x: [m][>= k_units * 128] FP16; y: [m][n]; strides count elements.
// form: gated counts gate (and up) rows in n. overlapped: launch before the previous kernel of the stream has finished.
EXPORT int ENTRY(run)(const void* weight, const void* x, void* y, void* workspace, int m, int n, int row_blocks, int k_units, int x_stride,
                      int y_stride, Scale scale, int form, int overlapped, int blocks, void* stream) {
  const Operands o = operands_of(weight, x, y, workspace, m, n, row_blocks, k_units, x_stride, y_stride, scale);
  return form == kGated  ? launch_stream<kGated>(o, overlapped, blocks, stream)
         : form == kWide ? launch_stream<kWide>(o, overlapped, blocks, stream) : launch_stream<kPlain>(o, overlapped, blocks, stream);
}
#endif
