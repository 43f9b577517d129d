// GDN verification in one launch and one reduction a row: a block convolves what it needs of q, k and v, then runs the
// recurrence on its tile of value columns of one head.
//
// With k and q of length 1, a row is kv = S^T k and oq = S^T q of the state before it, summed together, then
//   delta = beta (v - decay kv),  out = decay oq + (k . q) delta,  S = decay S + k delta^T.
// Lengths are applied to the sums, never to k and q themselves. Columns of the state do not mix, so the tile is free; every sum
// has one order for all tiles and all rows:
//   over 128 keys of a state: 16 chunks of 8 consecutive keys by ascending fma from zero, then a balanced tree, neighbours first
//   q . q, k . k and k . q: four runs of 32 channels by ascending fma from zero, then (0 + 1) + (2 + 3)
// The state stays in registers through the rows and is written once per row. Before the previous kernel of the stream has
// finished a block only asks for its state to come to the second-level cache. Blocks of one key head convolve the same q and k;
// the last of them to arrive shifts the window of both, when none still reads it. The window of a value column is its own block's.
#include <stdint.h>

#include "abi.h"
#include "gdn.cuh"
#include "sm90.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

using namespace gdn;

// What a row needs beside its vectors: kv and oq are sums over k and q as convolved.
struct alignas(16) Row {
  float decay, beta, k_scale, q_scale, kq;  // kq: of the normalised vectors
  int slot;
};

template <typename A, typename W, int kColumns, int kLanes, int kChunks, int kWarps>
__global__ void __launch_bounds__(kWarps * 32) verify(const __grid_constant__ Operands o) {
  constexpr int kTile = kColumns * kLanes, kSlots = 32 / kLanes, kThreads = kWarps * 32, kKeys = kChunks * kChunk;
  static_assert(kSlots * kChunks * kWarps * kChunk == kD, "chunks of 8 keys");
  using State = Columns<kColumns>;
  constexpr int kLocal = 2 * kD + kTile, kPiece = 16 / sizeof(A);  // channels of q, of k and of the tile of v; of 16 bytes
  __shared__ __align__(16) State state_s[kKeys][kThreads];
  __shared__ __align__(16) A input_s[kRows][kLocal], window_s[kLocal * (kTaps + kMostSlots - 2)];
  __shared__ __align__(16) float qk_s[2][kRows][kWide], v_s[kRows][kTile];
  __shared__ Row row_s[kRows];
  __shared__ State sums[2][2][kWarps][kLanes];  // [row parity][kv, oq]
  __shared__ bool last;
  const int head = blockIdx.y, tile = blockIdx.x * kTile, thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
  const int group = o.value_heads / o.key_heads, key_head = head / group, columns = kTaps + o.slots - 2;
  const int lane_slot = lane / kLanes, column = lane % kLanes, key = (warp * kSlots + lane_slot) * kKeys;
  const int64_t slot_size = static_cast<int64_t>(o.value_heads) * kD * kD;
  float* const own = o.pool + static_cast<int64_t>(head) * kD * kD + key * kD + tile + column * kColumns;
  const int q_first = key_head * kD, k_first = (o.key_heads + key_head) * kD, v_first = (2 * o.key_heads + head) * kD + tile;
  constexpr int kEach = kD / kThreads;
  const bool has_v = thread >= kThreads - kTile;  // v belongs to the last threads
  const int v_at = thread - (kThreads - kTile);

  Taps<W> q_tap[kEach], k_tap[kEach], v_tap;
  const Taps<W>* taps = static_cast<const Taps<W>*>(o.conv_weight) + thread;
#pragma unroll
  for (int i = 0; i < kEach; i++) q_tap[i] = taps[q_first + i * kThreads], k_tap[i] = taps[k_first + i * kThreads];
  if (has_v) v_tap = taps[v_first + v_at - thread];
  const float a_log = load(o.a_log, head, o.a_log_type), dt_bias = load(o.dt_bias, head, o.dt_bias_type);
  {  // the previous kernel may still change what is asked for here; it is read again below
    const int slot = __shfl_sync(~0u, lane < o.slots ? __ldcg(o.slot_table + lane) : -1, __ldcg(o.selector) - 1);
    if (slot >= 0)
#pragma unroll
      for (int i = 0; i < kKeys; i++) sm90::prefetch(own + slot * slot_size + i * kD);
  }
  sm90::wait_for_previous();
  sm90::launch_next();

  const int start = __ldcg(o.selector) - 1, entry = lane < o.slots ? __ldcg(o.slot_table + lane) : -1;
  {  // a warp copies q and k of a row at once; the last warp all of v
    const A* qkv = static_cast<const A*>(o.qkv);
    const A* row = qkv + warp * o.qkv_stride + (lane < 16 ? q_first + lane * kPiece : k_first + (lane - 16) * kPiece);
    for (int r = warp; r < o.rows; r += kWarps, row += kWarps * o.qkv_stride) sm90::copy_16(sm90::smem(&input_s[r][lane * kPiece]), row);
    constexpr int kPieces = kTile / kPiece;
    const int r = lane / kPieces, at = lane % kPieces * kPiece;
    if (warp == kWarps - 1 && r < o.rows) sm90::copy_16(sm90::smem(&input_s[r][2 * kD + at]), qkv + r * o.qkv_stride + v_first + at);
    const A *window = static_cast<const A*>(o.window) + thread * kPiece, *q = window + q_first * columns, *k = window + k_first * columns, *v = window + v_first * columns;
    const uint32_t to = sm90::smem(window_s + thread * kPiece);
    for (int i = thread; i < kD / kPiece * columns; i += kThreads, q += kThreads * kPiece, k += kThreads * kPiece)
      sm90::copy_16(to + (i - thread) * 16, q), sm90::copy_16(to + (i - thread) * 16 + kD * columns * sizeof(A), k);
    for (int i = thread; i < kPieces * columns; i += kThreads, v += kThreads * kPiece) sm90::copy_16(to + (i - thread) * 16 + 2 * kD * columns * sizeof(A), v);
    sm90::copies_commit();
  }
  const float* from = own + __shfl_sync(~0u, entry, start) * slot_size;
#pragma unroll
  for (int i = 0; i < kKeys; i++) sm90::copy<sizeof(State)>(sm90::smem(&state_s[i][thread]), from + i * kD);
  sm90::copies_commit();
  float a = 0, b = 0;
  if (thread < o.rows) a = widened(static_cast<const A*>(o.a)[thread * o.a_stride + head]), b = widened(static_cast<const A*>(o.b)[thread * o.b_stride + head]);
  sm90::copies_wait<1>();
  __syncthreads();

  auto convolve = [&](int local, const Taps<W>& tap, auto put) {
    float x[kTaps - 1 + kRows];
#pragma unroll
    for (int i = 0; i < kTaps - 1; i++) x[i] = widened(window_s[local * columns + start + i]);
#pragma unroll
    for (int r = 0; r < kRows; r++) x[kTaps - 1 + r] = widened(input_s[r][local]);
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      float sum = x[r] * widened(tap.x[0]);
#pragma unroll
      for (int i = 1; i < kTaps; i++) sum = fmaf(x[r + i], widened(tap.x[i]), sum);
      put(r, silu<A>(sum));
    }
  };
  // The window afterwards: all inputs but the oldest.
  auto shift = [&](int local, int channel) {
    A* window = static_cast<A*>(o.window) + static_cast<int64_t>(channel) * columns;
#pragma unroll
    for (int i = 1; i < kTaps - 1 + kRows; i++)
      if (i < kTaps - 1 + o.rows) window[i - 1] = i < kTaps - 1 ? window_s[local * columns + start + i] : input_s[i - (kTaps - 1)][local];
  };
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    const int at = i * kThreads + thread;
    convolve(at, q_tap[i], [&](int r, float y) { qk_s[0][r][place(at)] = y; });
    convolve(kD + at, k_tap[i], [&](int r, float y) { qk_s[1][r][place(at)] = y; });
  }
  if (has_v) convolve(2 * kD + v_at, v_tap, [&](int r, float y) { v_s[r][v_at] = y; });
  __syncthreads();
  unsigned int ticket = 0;
  if (warp == 0) {  // four lanes a row
    if (lane == 0) ticket = atomicAdd(o.arrived + key_head, 1u);  // every thread of this block has its inputs
    const int r = lane & 7, run = lane >> 3;
    float qq = 0, kk = 0, kq = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const float4 q = *reinterpret_cast<const float4*>(&qk_s[0][r][place(run * 32 + i * 4)]), k = *reinterpret_cast<const float4*>(&qk_s[1][r][place(run * 32 + i * 4)]);
      qq = fmaf(q.x, q.x, qq), kk = fmaf(k.x, k.x, kk), kq = fmaf(k.x, q.x, kq), qq = fmaf(q.y, q.y, qq), kk = fmaf(k.y, k.y, kk), kq = fmaf(k.y, q.y, kq);
      qq = fmaf(q.z, q.z, qq), kk = fmaf(k.z, k.z, kk), kq = fmaf(k.z, q.z, kq), qq = fmaf(q.w, q.w, qq), kk = fmaf(k.w, k.w, kk), kq = fmaf(k.w, q.w, kq);
    }
#pragma unroll
    for (int distance = 8; distance < 32; distance *= 2)
      qq += __shfl_xor_sync(~0u, qq, distance), kk += __shfl_xor_sync(~0u, kk, distance), kq += __shfl_xor_sync(~0u, kq, distance);
    if (lane < o.rows) {
      const float k_scale = inverse_root(kk + kEpsilon), q_scale = kRootOfKeys * inverse_root(qq + kEpsilon);
      row_s[lane] = {expf(-expf(a_log) * softplus(a + dt_bias)), 1.0f / (1.0f + expf(-b)), k_scale, q_scale, kq * k_scale * q_scale, entry};
    }
  }
  if (has_v) shift(2 * kD + v_at, v_first + v_at);
  __syncthreads();
  sm90::copies_wait<0>();
  State s[kKeys];
#pragma unroll
  for (int i = 0; i < kKeys; i++) s[i] = state_s[i][thread];

  // The tree over the chunks: chunks of this thread, then lanes `kLanes` apart; warps are added by `across`.
  auto within = [&](const float (&chunk)[kChunks][kColumns]) {
    State sum;
#pragma unroll
    for (int i = 0; i < kColumns; i++) {
      float x = chunk[0][i];
      if constexpr (kChunks == 2) x += chunk[1][i];
#pragma unroll
      for (int distance = kLanes; distance < 32; distance *= 2) x += __shfl_xor_sync(~0u, x, distance);
      sum.x[i] = x;
    }
    return sum;
  };
  auto across = [&](const State (&of)[kWarps][kLanes]) {
    State sum = {};
#pragma unroll
    for (int i = 0; i < kColumns; i++) {
      if constexpr (kWarps == 4) sum.x[i] = (of[0][column].x[i] + of[1][column].x[i]) + (of[2][column].x[i] + of[3][column].x[i]);
      if constexpr (kWarps == 2) sum.x[i] = of[0][column].x[i] + of[1][column].x[i];
    }
    return sum;
  };
#pragma unroll 1
  for (int r = 0; r < o.rows; r++) {
    const Row row = row_s[r];
    float k[kKeys], kv_chunk[kChunks][kColumns] = {}, oq_chunk[kChunks][kColumns] = {};
#pragma unroll
    for (int i = 0; i < kKeys; i++) {
      k[i] = qk_s[1][r][place(key) + i];
      const float q = qk_s[0][r][place(key) + i];
#pragma unroll
      for (int j = 0; j < kColumns; j++)
        kv_chunk[i / kChunk][j] = fmaf(k[i], s[i].x[j], kv_chunk[i / kChunk][j]), oq_chunk[i / kChunk][j] = fmaf(q, s[i].x[j], oq_chunk[i / kChunk][j]);
    }
    State kv = within(kv_chunk), oq = within(oq_chunk), out, update;
    if constexpr (kWarps > 1) {
      if (lane_slot == 0) sums[r & 1][0][warp][column] = kv, sums[r & 1][1][warp][column] = oq;
      __syncthreads();
      kv = across(sums[r & 1][0]), oq = across(sums[r & 1][1]);
    }
#pragma unroll
    for (int j = 0; j < kColumns; j++) {
      const float delta = row.beta * (v_s[r][column * kColumns + j] - row.decay * (row.k_scale * kv.x[j]));
      out.x[j] = fmaf(row.kq, delta, row.decay * (row.q_scale * oq.x[j])), update.x[j] = row.k_scale * delta;
    }
    float* to = own + row.slot * slot_size;
#pragma unroll
    for (int i = 0; i < kKeys; i++) {
#pragma unroll
      for (int j = 0; j < kColumns; j++) s[i].x[j] = fmaf(k[i], update.x[j], row.decay * s[i].x[j]);
      if (row.slot >= 0) sm90::store_once(to + i * kD, s[i]);
    }
    if (warp == 0 && lane_slot == 0) {
      A* its_out = static_cast<A*>(o.out) + (static_cast<int64_t>(r) * o.value_heads + head) * kD + tile + column * kColumns;
#pragma unroll
      for (int j = 0; j < kColumns; j++) narrow(out.x[j], its_out[j]);
    }
  }
  if (thread == 0) {
    last = ticket == static_cast<unsigned>(group * gridDim.x - 1);
    if (last) o.arrived[key_head] = 0;
  }
  __syncthreads();
  if (!last) return;
#pragma unroll
  for (int at = thread; at < kD; at += kThreads) shift(at, q_first + at), shift(kD + at, k_first + at);
}

constexpr int kTileColumns = 16, kBlockWarps = 2;
template <typename A, typename W> constexpr auto kKernel = verify<A, W, 4, 4, 1, kBlockWarps>;

template <typename A>
auto kernel_for(int weight_type) { return weight_type == kFloat32 ? kKernel<A, float> : kKernel<A, A>; }

// Activations in 16 bits, conv_weight of their type or FP32, at most 8 slots; qkv, its rows, conv_weight and window lie at multiples
// of 16 bytes.
cudaError_t launch_on(const Operands& o, void*, void* stream) {
  auto kernel = o.type == kFloat16 ? kernel_for<__half>(o.weight_type) : kernel_for<__nv_bfloat16>(o.weight_type);
  return launch(kernel, dim3(kD / kTileColumns, o.value_heads), kBlockWarps * 32, 0, stream, o);
}

}

EXPORT int ENTRY(revision)() { return 1; }

// Bytes of workspace; it must be zero before its first use, and one stream at a time may use it.
EXPORT int64_t ENTRY(workspace_bytes)(int key_heads, int) { return static_cast<int64_t>(key_heads) * 4; }

#include "gdn_entry.cuh"
