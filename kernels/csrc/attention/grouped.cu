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
#include "sm90.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

constexpr int kD = 256, kColumns = 48, kTile = 64, kStages = 5, kConsumers = 256, kThreads = kConsumers + 128;
constexpr int kTileBytes = kTile * kD, kChunk = kColumns * 16;  // a chunk: 8 k of every column
constexpr int kPartBytes = kTile / 8 * kChunk;
constexpr float kNone = -1e30f, kSlack = 8.0f;
constexpr int kLoaded = 4;  // named barrier of all threads: the producers have loaded everything

struct Shared {
  uint8_t k[kStages][kTileBytes], v[kStages][kTileBytes];  // 16-byte pieces of a row permuted: see `load`
  uint8_t q[kD / 8][kChunk];
  uint8_t p[2][2][kTile / 8][kChunk];                      // [warpgroup][value, residual]
  float maximum[2][4][kColumns], sum[2][4][kColumns], final_maximum[2][kColumns];
  int limit[kColumns];
  uint64_t full[kStages], empty[kStages];
};

struct Operands {
  const __half* q;
  const uint8_t *k, *v;
  const int *page_table, *row_lengths;
  __half* out;
  float *partial, *maximum, *sum;  // [heads][splits][48][256], [heads][splits][48] twice
  unsigned int* arrived;           // [heads], counts up for ever
  int64_t k_page, v_page;          // strides in bytes
  int k_token, v_token, k_head, v_head;
  int rows, q_heads, group, page_size;
  float scale;                     // times log2 e
};

struct Lengths { int longest, shortest; };
__device__ __forceinline__ Lengths lengths(const Operands& o) {
  const int lane = threadIdx.x & 31, length = __ldcg(o.row_lengths + (lane < o.rows ? lane : 0));
  return {__reduce_max_sync(~0u, length), __reduce_min_sync(~0u, length)};
}

// Four warps copy tiles [begin, end) of a head; half a warp per token row. Row r keeps piece i of K at i ^ (r & 1) * 4 and of V
// at i ^ (r / 2 & 3) * 2, where the fragment reads below meet no bank twice.
__device__ __forceinline__ void load(const Operands& o, Shared& s, int head, int begin, int end, int longest) {
  const int thread = threadIdx.x - kConsumers, piece = thread & 15, row = thread >> 4;  // rows row, row + 8, ...
  const uint32_t k_to = sm90::smem(s.k[0]) + row * kD + (piece ^ (row & 1) * 4) * 16, v_to = sm90::smem(s.v[0]) + row * kD + (piece ^ (row >> 1 & 3) * 2) * 16;
  const uint8_t *k_head = o.k + head * o.k_head + piece * 16, *v_head = o.v + head * o.v_head + piece * 16;
  int stage = 0, parity = 1, page = begin * kTile / o.page_size, offset = begin * kTile - page * o.page_size;
  for (int tile = begin; tile < end; tile++) {
    const int first = tile * kTile, at = stage * kTileBytes;
    if (tile - begin >= kStages) sm90::barrier_wait(sm90::smem(&s.empty[stage]), parity);
    if (offset + kTile <= o.page_size && first + kTile <= longest) {
      const int64_t id = __ldg(o.page_table + page);
      const uint8_t* k = k_head + id * o.k_page + static_cast<int64_t>(offset + row) * o.k_token;
      const uint8_t* v = v_head + id * o.v_page + static_cast<int64_t>(offset + row) * o.v_token;
#pragma unroll
      for (int r = 0; r < kTile / 8; r++) {
        sm90::copy_16(k_to + at + r * 8 * kD, k), sm90::copy_16(v_to + at + r * 8 * kD, v);
        k += 8 * o.k_token, v += 8 * o.v_token;
      }
      offset += kTile;
    } else {
#pragma unroll 1
      for (int r = 0; r < kTile / 8; r++) {
        const int token = min(first + 8 * r + row, longest - 1), its_page = token / o.page_size, its_offset = token - its_page * o.page_size;
        const int64_t id = __ldg(o.page_table + its_page);
        sm90::copy_16(k_to + at + r * 8 * kD, k_head + id * o.k_page + static_cast<int64_t>(its_offset) * o.k_token);
        sm90::copy_16(v_to + at + r * 8 * kD, v_head + id * o.v_page + static_cast<int64_t>(its_offset) * o.v_token);
      }
      page = (first + kTile) / o.page_size, offset = first + kTile - page * o.page_size;
    }
    sm90::copies_arrive(&s.full[stage]);
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
}

// What a thread of a warpgroup knows: columns 8 j + 2 c + e; of the output, dims 64 w + 8 g + 2 m + {0, 1}.
struct Running {
  float acc[4][24], maximum[12], sum[12], bound[12];  // bound: the unscaled score that the maximum may lag behind
};

// A thread's place in its warpgroup, and where it finds the stage, its operands and its results.
struct Place {
  int group, w, g, c;
  uint32_t k, v, q, p;  // shared memory addresses: own fragments of stage 0 of K and V, Q, own group's P
};

// Block b of 64 k as four A fragments.
struct Keys {
  uint4 upper, lower;
  __device__ __forceinline__ void load(const Place& at, uint32_t stage, int b) {
    const uint32_t from = at.k + stage + (((b * 4 + at.c) ^ (at.g & 1) * 4) * 16);
    upper = sm90::load_16(from), lower = sm90::load_16(from + 8 * kD);
  }
  __device__ __forceinline__ void decode(uint32_t (&f)[16]) const {
    const uint32_t u[4] = {upper.x, upper.y, upper.z, upper.w}, l[4] = {lower.x, lower.y, lower.z, lower.w};
#pragma unroll
    for (int j = 0; j < 4; j++) sm90::e4m3_to_half2(u[j], f[j * 4], f[j * 4 + 2]), sm90::e4m3_to_half2(l[j], f[j * 4 + 1], f[j * 4 + 3]);
  }
};

// Sixteen tokens of V as four A fragments, transposed.
struct Values {
  uint2 token[4];  // 2 c, 2 c + 1, 2 c + 8, 2 c + 9
  __device__ __forceinline__ void load(const Place& at, uint32_t stage, int t) {
    const uint32_t from = at.v + stage + t * 16 * kD;
    token[0] = sm90::load_8(from), token[1] = sm90::load_8(from + kD), token[2] = sm90::load_8(from + 8 * kD), token[3] = sm90::load_8(from + 9 * kD);
  }
  __device__ __forceinline__ void decode(uint32_t (&f)[16]) const {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const uint2 even = token[half * 2], odd = token[half * 2 + 1];
      sm90::e4m3_to_half2(__byte_perm(even.x, odd.x, 0x5140), f[half * 2], f[half * 2 + 1]);
      sm90::e4m3_to_half2(__byte_perm(even.x, odd.x, 0x7362), f[4 + half * 2], f[4 + half * 2 + 1]);
      sm90::e4m3_to_half2(__byte_perm(even.y, odd.y, 0x5140), f[8 + half * 2], f[8 + half * 2 + 1]);
      sm90::e4m3_to_half2(__byte_perm(even.y, odd.y, 0x7362), f[12 + half * 2], f[12 + half * 2 + 1]);
    }
  }
};

// S^T of a tile whose first block of keys is decoded already; leaves the first 16 tokens of V decoded in `first`.
__device__ __forceinline__ void scores(const Place& at, uint32_t stage, uint32_t (&first)[16], float (&score)[24]) {
  const sm90::Operand q(at.q, kChunk, 128);
  uint32_t second[16];
  Keys keys;
  Values values;
  keys.load(at, stage, 1);
#pragma unroll
  for (int b = 0; b < 4; b++) {
    uint32_t(&own)[16] = b & 1 ? second : first;
    uint32_t(&next)[16] = b & 1 ? first : second;
    sm90::products_fence();
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const uint64_t columns = q.at((b * 4 + j) * 2 * kChunk);
      if (b == 0 && j == 0) sm90::product_64x48x16<false>(score, own[0], own[1], own[2], own[3], columns);
      else sm90::product_64x48x16<true>(score, own[j * 4], own[j * 4 + 1], own[j * 4 + 2], own[j * 4 + 3], columns);
    }
    sm90::products_commit();
    if (b >= 1) sm90::products_wait<1>();  // `next` has been read
    if (b < 3) keys.decode(next); else values.decode(next);
    if (b < 2) keys.load(at, stage, b + 2);
    if (b == 2) values.load(at, stage, 0);
  }
  sm90::products_wait<0>();
  sm90::changed(score);
}

// Tokens that a column does not see become -inf.
__device__ __forceinline__ void mask(const Shared& s, int first, const Place& at, float (&score)[24]) {
#pragma unroll
  for (int i = 0; i < 24; i++) {
    const int token = first + at.w * 16 + at.g + (i >> 1 & 1) * 8, column = (i >> 2) * 8 + at.c * 2 + (i & 1);
    if (token >= s.limit[column]) score[i] = -INFINITY;
  }
}

__device__ __forceinline__ bool exceeds(const float (&score)[24], const Running& r) {
  bool over[2] = {false, false};
#pragma unroll
  for (int i = 0; i < 24; i++) over[i & 1] |= score[i] > r.bound[(i >> 2) * 2 + (i & 1)];
  return over[0] || over[1];
}

// The tile's own maximum becomes the running one. Rare: the maximum lags by up to kSlack.
__device__ __forceinline__ void adopt(Shared& s, const Place& at, const float (&score)[24], float scale, Running& r) {
#pragma unroll
  for (int i = 0; i < 12; i++) {
    float x = fmaxf(score[(i >> 1) * 4 + (i & 1)], score[(i >> 1) * 4 + 2 + (i & 1)]);
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 4)), x = fmaxf(x, __shfl_xor_sync(~0u, x, 8)), x = fmaxf(x, __shfl_xor_sync(~0u, x, 16));
    if (at.g == 0) s.maximum[at.group][at.w][(i >> 1) * 8 + at.c * 2 + (i & 1)] = x;
  }
  sm90::named_barrier(1 + at.group, 128);
  const float inverse = 1.0f / scale;
#pragma unroll
  for (int i = 0; i < 12; i++) {
    const float(&of)[4][kColumns] = s.maximum[at.group];
    const int column = (i >> 1) * 8 + at.c * 2 + (i & 1);
    const float x = fmaxf(fmaxf(of[0][column], of[1][column]), fmaxf(of[2][column], of[3][column])), top = fmaxf(r.maximum[i], x * scale);
    const float shrink = sm90::exp2_approx(r.maximum[i] - top);
    r.maximum[i] = top, r.sum[i] *= shrink, r.bound[i] = (top + kSlack) * inverse;
#pragma unroll
    for (int m = 0; m < 4; m++) r.acc[m][(i >> 1) * 4 + (i & 1)] *= shrink, r.acc[m][(i >> 1) * 4 + 2 + (i & 1)] *= shrink;
  }
}

// Probabilities of this warp's 16 tokens into shared memory, as FP16 and residual, transposed to token-contiguous columns.
__device__ __forceinline__ void probabilities(const Place& at, const float (&score)[24], float scale, Running& r) {
  const int lane = threadIdx.x & 31;
  const uint32_t to = at.p + (at.w * 2 + (lane >> 3 & 1)) * kChunk + (lane >> 4) * 128 + (lane & 7) * 16;
#pragma unroll
  for (int j = 0; j < 6; j += 2) {
    uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {  // matrix i: tokens 8 (i & 1) on, column group j + i / 2
      const int from = (j + (i >> 1)) * 4 + (i & 1) * 2, column = (j + (i >> 1)) * 2;
      const float p0 = sm90::exp2_approx(fmaf(score[from], scale, -r.maximum[column]));
      const float p1 = sm90::exp2_approx(fmaf(score[from + 1], scale, -r.maximum[column + 1]));
      r.sum[column] += p0, r.sum[column + 1] += p1;
      const __half2 h = __floats2half2_rn(p0, p1);
      const float2 f = __half22float2(h);
      const __half2 rest = __floats2half2_rn(p0 - f.x, p1 - f.y);
      high[i] = *reinterpret_cast<const uint32_t*>(&h), low[i] = *reinterpret_cast<const uint32_t*>(&rest);
    }
    sm90::store_transposed(to + j * 128, high[0], high[1], high[2], high[3]);
    sm90::store_transposed(to + kPartBytes + j * 128, low[0], low[1], low[2], low[3]);
  }
}

// O^T += V^T P^T, the first 16 tokens being decoded already. `before_wait` runs once everything is issued.
template <typename BeforeWait>
__device__ __forceinline__ void accumulate(const Place& at, uint32_t stage, uint32_t (&first)[16], Running& r, BeforeWait before_wait) {
  const sm90::Operand p(at.p, kChunk, 128);
  uint32_t second[16];
  Values values;
  values.load(at, stage, 1);
#pragma unroll
  for (int t = 0; t < 4; t++) {
    uint32_t(&own)[16] = t & 1 ? second : first;
    uint32_t(&next)[16] = t & 1 ? first : second;
    sm90::products_fence();
#pragma unroll
    for (int part = 0; part < 2; part++)
#pragma unroll
      for (int m = 0; m < 4; m++)
        sm90::product_64x48x16<true>(r.acc[m], own[m * 4], own[m * 4 + 1], own[m * 4 + 2], own[m * 4 + 3], p.at(part * kPartBytes + t * 2 * kChunk));
    sm90::products_commit();
    if (t == 3) break;
    if (t >= 1) sm90::products_wait<1>();
    values.decode(next);
    if (t < 2) values.load(at, stage, t + 2);
  }
  sm90::products_wait<1>();
  before_wait(first);  // read by step 2, complete
  sm90::products_wait<0>();
#pragma unroll
  for (int m = 0; m < 4; m++) sm90::changed(r.acc[m]);
}

// Column sums of a warpgroup's threads, and its maxima, into shared memory.
__device__ __forceinline__ void publish(Shared& s, const Place& at, const Running& r) {
#pragma unroll
  for (int i = 0; i < 12; i++) {
    float x = r.sum[i];
    x += __shfl_xor_sync(~0u, x, 4), x += __shfl_xor_sync(~0u, x, 8), x += __shfl_xor_sync(~0u, x, 16);
    const int column = (i >> 1) * 8 + at.c * 2 + (i & 1);
    if (at.g == 0) s.sum[at.group][at.w][column] = x;
    if (at.g == 0 && at.w == 0) s.final_maximum[at.group][column] = r.maximum[i];
  }
}

__device__ __forceinline__ void write_row(const Operands& o, int head, int column, int dim, float4 v, float sum) {
  if (column >= o.rows * o.group) return;
  const float inverse = sum > 0 ? 1.0f / sum : 0.0f;
  const __half2 low = __floats2half2_rn(v.x * inverse, v.y * inverse), high = __floats2half2_rn(v.z * inverse, v.w * inverse);
  const int row = column / o.group, q_head = head * o.group + column % o.group;
  *reinterpret_cast<uint2*>(o.out + (static_cast<int64_t>(row) * o.q_heads + q_head) * kD + dim) =
      make_uint2(*reinterpret_cast<const uint32_t*>(&low), *reinterpret_cast<const uint32_t*>(&high));
}

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

// Q of a head in the order of k that the key fragments have; columns past the last are zero.
__device__ __forceinline__ void load_queries(const Operands& o, Shared& s, int head) {
  constexpr int kEach = kColumns * kD / 8 / kConsumers;
  uint4 eight[kEach];
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    const int column = (i * kConsumers + threadIdx.x) >> 5, row = column / o.group, q_head = head * o.group + column - row * o.group;
    eight[i] = make_uint4(0, 0, 0, 0);
    if (row < o.rows) eight[i] = __ldcg(reinterpret_cast<const uint4*>(o.q + (static_cast<int64_t>(row) * o.q_heads + q_head) * kD) + (threadIdx.x & 31));
  }
  const int limit = threadIdx.x < o.rows * o.group ? __ldcg(o.row_lengths + threadIdx.x / o.group) : 0;
  if (threadIdx.x < kColumns) s.limit[threadIdx.x] = limit;
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    const uint32_t two[4] = {eight[i].x, eight[i].y, eight[i].z, eight[i].w};
#pragma unroll
    for (int e = 0; e < 4; e++) {  // k = 2 pair, 2 pair + 1
      const int column = (i * kConsumers + threadIdx.x) >> 5, pair = (threadIdx.x & 31) * 4 + e;
      const int chunk = (pair >> 5) * 8 + (pair >> 1 & 3) * 2 + (pair & 1), slot = pair >> 3 & 3;
      *reinterpret_cast<uint32_t*>(&s.q[chunk][column * 16 + slot * 4]) = two[e];
    }
  }
  sm90::fence_async_proxy();
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

// A warpgroup's tiles: every second one of the split.
__device__ __forceinline__ void consume(const Operands& o, Shared& s, const Place& at, int begin, int end, int shortest, Running& r) {
#pragma unroll
  for (int i = 0; i < 12; i++) r.maximum[i] = r.bound[i] = kNone, r.sum[i] = 0;
#pragma unroll
  for (int m = 0; m < 4; m++)
#pragma unroll
    for (int i = 0; i < 24; i++) r.acc[m][i] = 0;
  uint32_t stage = at.group, parity = 0, fragments[16];
  auto first_keys = [&](uint32_t (&into)[16]) {
    sm90::barrier_wait(sm90::smem(&s.full[0]) + stage * 8, parity);
    Keys keys;
    keys.load(at, stage * kTileBytes, 0);
    keys.decode(into);
  };
  if (begin + at.group < end) first_keys(fragments);
#pragma unroll 1
  for (int tile = begin + at.group; tile < end; tile += 2) {
    float score[24];
    scores(at, stage * kTileBytes, fragments, score);
    if ((tile + 1) * kTile > shortest) mask(s, tile * kTile, at, score);
    // Also the point after which no warp of the group still reads the previous probabilities.
    if (sm90::named_barrier_or(1 + at.group, 128, exceeds(score, r))) adopt(s, at, score, o.scale, r);
    probabilities(at, score, o.scale, r);
    sm90::fence_async_proxy();
    sm90::named_barrier(1 + at.group, 128);
    accumulate(at, stage * kTileBytes, fragments, r, [&](uint32_t (&next)[16]) {
      __syncwarp();
      if ((threadIdx.x & 31) == 0) sm90::barrier_arrive(sm90::smem(&s.empty[0]) + stage * 8);
      stage += 2;
      if (stage >= kStages) stage -= kStages, parity ^= 1;
      if (tile + 2 < end) first_keys(next);
    });
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
    load(o, s, head, begin, end, length.longest);
    if (begin < end || active == 1) {
      sm90::copies_wait_all();
      sm90::named_arrive(kLoaded, kThreads);
    }
  } else {
    sm90::take_registers<232>();
    if (begin < end || active == 1) {
      const int lane = threadIdx.x & 31, group = __shfl_sync(~0u, threadIdx.x >> 7, 0), w = threadIdx.x >> 5 & 3, g = lane >> 2, c = lane & 3;
      const Place at{group, w, g, c, sm90::smem(s.k[0]) + (w * 16 + g) * kD,
                     sm90::smem(s.v[0]) + 2 * c * kD + (((w * 4 + (g >> 1)) ^ c * 2) * 16) + (g & 1) * 8, sm90::smem(s.q), sm90::smem(s.p[group][0])};
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
