// GDN verification in one launch and one reduction a row: a block has a tile of 16 value columns of every head of one key head.
//
// With k and q of length 1, a row is kv = S^T k and oq = S^T q of the state before it, summed together, then
//   delta = beta (v - decay kv),  out = decay oq + (k . q) delta,  S = decay S + k delta^T.
// Lengths are applied to the sums, never to k and q themselves. The sums have the order of joint.cu:
//   over 128 keys of a state: 16 chunks of 8 consecutive keys by ascending fma from zero, then a balanced tree, neighbours first
//   q . q, k . k and k . q: four runs of 32 channels by ascending fma from zero, then (0 + 1) + (2 + 3)
// Two warps run the recurrence of one head's tile, all warps convolve: q and k of a key head once for its three heads. The state
// stays in registers through the rows and is written once per row. Before the previous kernel of the stream has finished a block
// only asks for its state and window to come to the second-level cache. The last block of a key head to arrive shifts the window
// of q and k, when none still reads it; that of v belongs to the block that reads it.
// With GDN_ALONE a block asks for more shared memory than two of a multiprocessor could have: blocks that start early, as those of
// the kernel before end, then spread evenly.
#include <stdint.h>

#include "abi.h"
#include "gdn.cuh"
#include "sm90.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

using namespace gdn;

constexpr int kGroup = 3, kTile = 16, kColumns = 4, kLanes = 4, kWarps = 2, kSlots = 32 / kLanes;
constexpr int kThreads = kGroup * kWarps * 32, kLocal = 2 * kD + kGroup * kTile, kHistory = kTaps - 1 + kMostSlots - 1;
static_assert(kSlots * kWarps * kChunk == kD && kColumns * kLanes == kTile, "a chunk of 8 keys a thread");

template <typename A>
struct Shared {
  float4 state[kChunk][kThreads];
  A input[kRows][kLocal], window[kLocal * kHistory];  // of channels q, k, then the tiles of v
  float qk[2][kRows][kWide], v[kGroup][kRows][kTile];
  float4 sums[2][kGroup][2][kWarps][kLanes];  // [row parity][head][kv, oq]
  float4 row[kGroup][kRows];  // decay, beta, 1 / |k|
  float q_scale[kRows], kq[kRows];
  bool last;
};

template <typename A, typename W>
__global__ void __launch_bounds__(kThreads) verify(const __grid_constant__ Operands o) {
  extern __shared__ __align__(16) uint8_t raw[];
  Shared<A>& s = *reinterpret_cast<Shared<A>*>(raw);
  constexpr int kPiece = 16 / sizeof(A);
  const int key_head = blockIdx.y, tile = blockIdx.x * kTile, thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
  const int member = warp / kWarps, head = key_head * kGroup + member;  // the head whose recurrence this warp runs
  const int lane_slot = lane / kLanes, column = lane % kLanes, key = ((warp % kWarps) * kSlots + lane_slot) * kChunk;
  const int64_t slot_size = static_cast<int64_t>(o.value_heads) * kD * kD;
  float* own = o.pool + static_cast<int64_t>(head) * kD * kD + key * kD + tile + column * kColumns;
  sm90::keep(own);
  // The channel of the layer that is local channel `at`.
  auto channel_of = [&](int at) {
    if (at < kD) return key_head * kD + at;
    if (at < 2 * kD) return (o.key_heads + key_head) * kD + at - kD;
    return (2 * o.key_heads + key_head * kGroup + (at - 2 * kD) / kTile) * kD + tile + (at - 2 * kD) % kTile;
  };

  constexpr int kPasses = (kLocal + kThreads - 1) / kThreads;
  Taps<W> tap[kPasses];
  int channel[kPasses];
#pragma unroll
  for (int i = 0; i < kPasses; i++) {
    channel[i] = channel_of(min(i * kThreads + thread, kLocal - 1));
    tap[i] = static_cast<const Taps<W>*>(o.conv_weight)[channel[i]];
  }
  // Gates of row lane % 8 of head lane / 8 are the last warp's.
  const int gate_head = key_head * kGroup + min(lane / kRows, kGroup - 1), gate_row = min(lane % kRows, o.rows - 1);
  const bool has_gate = warp == kGroup * kWarps - 1 && lane < kGroup * kRows;
  float a_log = 0, dt_bias = 0, a = 0, b = 0;
  if (has_gate) a_log = load(o.a_log, gate_head, o.a_log_type), dt_bias = load(o.dt_bias, gate_head, o.dt_bias_type);
  {  // the previous kernel may still change what is asked for here; it is read again below
    const int slot = __shfl_sync(~0u, lane < kMostSlots ? __ldcg(o.slot_table + lane) : -1, __ldcg(o.selector) - 1);
#pragma unroll
    for (int i = 0; i < kPasses; i++) sm90::prefetch(static_cast<const A*>(o.window) + static_cast<int64_t>(channel[i]) * kHistory);
    if (slot >= 0)
#pragma unroll
      for (int i = 0; i < kChunk; i++) sm90::prefetch(own + slot * slot_size + i * kD);
  }
  sm90::wait_for_previous();
  sm90::launch_next();

  const int start = __ldcg(o.selector) - 1, entry = lane < kMostSlots ? __ldcg(o.slot_table + lane) : -1;
  if (has_gate) a = widened(static_cast<const A*>(o.a)[gate_row * o.a_stride + gate_head]), b = widened(static_cast<const A*>(o.b)[gate_row * o.b_stride + gate_head]);
  {  // a warp copies q and k of a row at once, then what the tiles of v have
    constexpr int kPieces = kGroup * kTile / kPiece, kEach = (kRows + kGroup * kWarps - 1) / (kGroup * kWarps);
    const A *qkv = static_cast<const A*>(o.qkv), *row = qkv + channel_of(lane * kPiece);
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int r = i * kGroup * kWarps + warp;
      if (r < o.rows) sm90::copy_16(sm90::smem(&s.input[r][lane * kPiece]), row + r * o.qkv_stride);
    }
    const int at = 2 * kD + thread % kPieces * kPiece, r = thread / kPieces;
    if (r < o.rows) sm90::copy_16(sm90::smem(&s.input[r][at]), qkv + r * o.qkv_stride + channel_of(at));
    // Runs of channels lie together in the window: q, k, and each tile of v.
    constexpr int kRun = kD / kPiece * kHistory, kShort = kTile / kPiece * kHistory;
    const A *window = static_cast<const A*>(o.window), *q = window + channel_of(0) * kHistory + thread * kPiece, *k = window + channel_of(kD) * kHistory + thread * kPiece;
    const uint32_t to = sm90::smem(s.window) + thread * 16;
    static_assert(kRun <= kThreads && kGroup * kShort <= kThreads, "a thread copies at most one piece of a run");
    if (thread < kRun) sm90::copy_16(to, q), sm90::copy_16(to + kRun * 16, k);
    if (thread < kGroup * kShort) {
      const int which = thread / kShort, piece = thread % kShort;
      sm90::copy_16(to + 2 * kRun * 16, window + channel_of(2 * kD + which * kTile) * kHistory + piece * kPiece);
    }
    sm90::copies_commit();
  }
  const float* from = own + __shfl_sync(~0u, entry, start) * slot_size;
#pragma unroll
  for (int i = 0; i < kChunk; i++) sm90::copy_16(sm90::smem(&s.state[i][thread]), from + i * kD);
  sm90::copies_commit();
  sm90::copies_wait<1>();
  __syncthreads();

  // The window afterwards: all inputs but the oldest.
  auto shift = [&](int local, int channel) {
    A* window = static_cast<A*>(o.window) + static_cast<int64_t>(channel) * kHistory;
#pragma unroll
    for (int i = 1; i < kTaps - 1 + kRows; i++)
      if (i < kTaps - 1 + o.rows) window[i - 1] = i < kTaps - 1 ? s.window[local * kHistory + start + i] : s.input[i - (kTaps - 1)][local];
  };
#pragma unroll
  for (int pass = 0; pass < kPasses; pass++) {
    const int local = pass * kThreads + thread;
    if (local >= kLocal) break;
    float x[kTaps - 1 + kRows], *y = local < 2 * kD ? &s.qk[local / kD][0][place(local % kD)] : &s.v[(local - 2 * kD) / kTile][0][local % kTile];
    const int stride = local < 2 * kD ? kWide : kTile;
#pragma unroll
    for (int i = 0; i < kTaps - 1; i++) x[i] = widened(s.window[local * kHistory + start + i]);
#pragma unroll
    for (int r = 0; r < kRows; r++) x[kTaps - 1 + r] = widened(s.input[r][local]);
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      float sum = x[r] * widened(tap[pass].x[0]);
#pragma unroll
      for (int i = 1; i < kTaps; i++) sum = fmaf(x[r + i], widened(tap[pass].x[i]), sum);
      y[r * stride] = silu<A>(sum);
    }
  }
  __syncthreads();
  unsigned int ticket = 0;
  if (thread == 0) ticket = atomicAdd(o.arrived + key_head, 1u);  // every thread of this block has its inputs
  if (warp < 3) {  // q . q, k . k and k . q of all rows, four lanes a row
    const int r = lane & 7, run = lane >> 3;
    const float *left = &s.qk[warp == 0 ? 0 : 1][r][0], *right = &s.qk[warp == 1 ? 1 : 0][r][0];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const float4 x = *reinterpret_cast<const float4*>(left + place(run * 32 + i * 4)), y = *reinterpret_cast<const float4*>(right + place(run * 32 + i * 4));
      sum = fmaf(x.x, y.x, sum), sum = fmaf(x.y, y.y, sum), sum = fmaf(x.z, y.z, sum), sum = fmaf(x.w, y.w, sum);
    }
    sum += __shfl_xor_sync(~0u, sum, 8), sum += __shfl_xor_sync(~0u, sum, 16);
    if (lane < kRows) {
      if (warp == 0) s.q_scale[lane] = kRootOfKeys * inverse_root(sum + kEpsilon);
      if (warp == 1)
        for (int i = 0; i < kGroup; i++) s.row[i][lane].z = inverse_root(sum + kEpsilon);
      if (warp == 2) s.kq[lane] = sum;
    }
  } else {
    const int at = thread - 3 * 32;  // three warps left, for 48 channels
    if (at < kGroup * kTile) shift(2 * kD + at, channel_of(2 * kD + at));
    if (has_gate) s.row[lane / kRows][lane % kRows].x = expf(-expf(a_log) * softplus(a + dt_bias)), s.row[lane / kRows][lane % kRows].y = 1.0f / (1.0f + expf(-b));
  }
  sm90::copies_wait<0>();
  float4 st[kChunk];
#pragma unroll
  for (int i = 0; i < kChunk; i++) st[i] = s.state[i][thread];
  __syncthreads();

  // Places of the row, kept in registers: the compiler would compute them again in every row.
  uint32_t k_from = sm90::smem(&s.qk[1][0][place(key)]), v_from = sm90::smem(&s.v[member][0][column * kColumns]), row_from = sm90::smem(&s.row[member][0]);
  uint32_t sums = sm90::smem(&s.sums[0][member][0][0][column]), other_sums = sums + sizeof(s.sums[0]);
  // Where the sum that this lane ends up with goes: kv or oq, by the lowest bit of its slot; which column, by the others.
  uint32_t own_sum = (lane_slot & 1) * kWarps * kLanes * 16 + warp % kWarps * kLanes * 16 + (lane_slot & 2) * 4 + (lane_slot >> 2) * 4;
  A* out = static_cast<A*>(o.out) + head * kD + tile + column * kColumns;
  const int out_stride = o.value_heads * kD;
  const bool writes_out = warp % kWarps == 0 && lane_slot == 0;
  sm90::keep(k_from), sm90::keep(v_from), sm90::keep(row_from), sm90::keep(out), sm90::keep(sums), sm90::keep(other_sums), sm90::keep(own_sum);
#pragma unroll 1
  for (int r = 0; r < o.rows; r++) {
    const float4 scalars = sm90::load_float4(row_from);
    const float decay = scalars.x, beta = scalars.y, k_scale = scalars.z, q_scale = s.q_scale[r];
    float k[kChunk], q[kChunk];
    sm90::load_floats(k_from, k), sm90::load_floats(k_from - kRows * kWide * 4, q);
    float4 kv = make_float4(0, 0, 0, 0), oq = kv;
#pragma unroll
    for (int i = 0; i < kChunk; i++) {
      kv.x = fmaf(k[i], st[i].x, kv.x), kv.y = fmaf(k[i], st[i].y, kv.y), kv.z = fmaf(k[i], st[i].z, kv.z), kv.w = fmaf(k[i], st[i].w, kv.w);
      oq.x = fmaf(q[i], st[i].x, oq.x), oq.y = fmaf(q[i], st[i].y, oq.y), oq.z = fmaf(q[i], st[i].z, oq.z), oq.w = fmaf(q[i], st[i].w, oq.w);
    }
    // Eight sums over eight lanes: each step adds a neighbour's and passes half of them on, until a lane has one.
    float sum[8] = {kv.x, kv.y, kv.z, kv.w, oq.x, oq.y, oq.z, oq.w};
#pragma unroll
    for (int half = 4, distance = kLanes; half > 0; half /= 2, distance *= 2)
#pragma unroll
      for (int i = 0; i < half; i++) {
        const bool upper = lane & distance;
        const float kept = upper ? sum[half + i] : sum[i], passed = upper ? sum[i] : sum[half + i];
        sum[i] = kept + __shfl_xor_sync(~0u, passed, distance);
      }
    constexpr int kWarp = kLanes * 16, kSums = kWarps * kWarp;
    sm90::store_4(sums + own_sum, sum[0]);
    sm90::named_barrier(1 + member, kWarps * 32);
    const float4 kv0 = sm90::load_float4(sums), kv1 = sm90::load_float4(sums + kWarp), v = sm90::load_float4(v_from);
    float4 delta;
    delta.x = beta * (v.x - decay * (k_scale * (kv0.x + kv1.x))), delta.y = beta * (v.y - decay * (k_scale * (kv0.y + kv1.y)));
    delta.z = beta * (v.z - decay * (k_scale * (kv0.z + kv1.z))), delta.w = beta * (v.w - decay * (k_scale * (kv0.w + kv1.w)));
    const float4 update = make_float4(k_scale * delta.x, k_scale * delta.y, k_scale * delta.z, k_scale * delta.w);
    const int slot = __shfl_sync(~0u, entry, r);
    float* to = own + slot * slot_size;
    sm90::keep(to);
#pragma unroll
    for (int i = 0; i < kChunk; i++) {
      st[i].x = fmaf(k[i], update.x, decay * st[i].x), st[i].y = fmaf(k[i], update.y, decay * st[i].y);
      st[i].z = fmaf(k[i], update.z, decay * st[i].z), st[i].w = fmaf(k[i], update.w, decay * st[i].w);
      if (slot >= 0) __stcs(reinterpret_cast<float4*>(to + i * kD), st[i]);
    }
    if (writes_out) {
      const float kq = s.kq[r] * k_scale * q_scale;
      const float4 oq0 = sm90::load_float4(sums + kSums), oq1 = sm90::load_float4(sums + kSums + kWarp);
      alignas(8) A four[kColumns];
      narrow(fmaf(kq, delta.x, decay * (q_scale * (oq0.x + oq1.x))), four[0]), narrow(fmaf(kq, delta.y, decay * (q_scale * (oq0.y + oq1.y))), four[1]);
      narrow(fmaf(kq, delta.z, decay * (q_scale * (oq0.z + oq1.z))), four[2]), narrow(fmaf(kq, delta.w, decay * (q_scale * (oq0.w + oq1.w))), four[3]);
      __stcg(reinterpret_cast<uint2*>(out), *reinterpret_cast<const uint2*>(four));
    }
    out += out_stride, k_from += kWide * 4, v_from += kTile * 4, row_from += 16;
    const uint32_t swapped = sums;
    sums = other_sums, other_sums = swapped;
  }
  if (thread == 0) {
    s.last = ticket == gridDim.x - 1;
    if (s.last) o.arrived[key_head] = 0;
  }
  __syncthreads();
  if (s.last)
    for (int at = thread; at < 2 * kD; at += kThreads) shift(at, channel_of(at));
}

template <typename A>
auto kernel_for(int weight_type) { return weight_type == kFloat32 ? verify<A, float> : verify<A, A>; }

// Activations in 16 bits, conv_weight of their type or FP32, at most 32 slots.
cudaError_t launch_on(const Operands& o, void*, void* stream) {
  auto kernel = o.type == kFloat16 ? kernel_for<__half>(o.weight_type) : kernel_for<__nv_bfloat16>(o.weight_type);
#ifdef GDN_ALONE
  constexpr int kSizeBytes = 118784;
#else
  constexpr int kSizeBytes = sizeof(Shared<__half>);  // as large for BF16
#endif
  static_assert(kSizeBytes >= sizeof(Shared<__half>), "the block fits");
  return launch(kernel, dim3(kD / kTile, o.key_heads), kThreads, kSizeBytes, stream, o);
}

}

EXPORT int ENTRY(revision)() { return 1; }

// Bytes of workspace; it must be zero before its first use, and one stream at a time may use it.
EXPORT int64_t ENTRY(workspace_bytes)(int key_heads, int) { return static_cast<int64_t>(key_heads) * 4; }

#include "gdn_entry.cuh"
