// Tiles of verify attention: what a block does with 64 tokens of K and V in E4M3 for up to `kColumns` columns n = row * group + head, D = 256.
//
// Keys are the A operand of S^T = K Q^T and values, transposed while they are decoded, that of O^T = V^T P^T, so nothing is padded and
// the decoded tiles go from registers into the tensor cores. Two warpgroups take alternate tiles, so one decodes while the other
// multiplies; four producer warps keep kStages tiles in flight.
//   scores: FP32 sums of exact products, 16 k at a time, k permuted within 64 (16 (s / 2) + 4 j + 2 h + s % 2 for slot s of half h of step j)
//   probabilities: exp2(score * scale * log2 e - m) in FP32, m the running maximum or up to 8 below it, split into FP16 and the
//   FP16 of what that leaves; both multiply V
//   sums: FP32, tokens ascending in steps of 16 within a warpgroup
#pragma once
#include <cuda_fp16.h>
#include <stdint.h>

#include "sm90.cuh"

namespace attention {

constexpr int kD = 256, kTile = 64, kStages = 5, kConsumers = 256, kThreads = kConsumers + 128;
constexpr int kTileBytes = kTile * kD;
template <int kColumns> constexpr int kChunk = kColumns * 16;  // bytes of 8 k of every column
template <int kColumns> constexpr int kPartBytes = kTile / 8 * kChunk<kColumns>;
constexpr float kNone = -1e30f, kSlack = 8.0f;
constexpr int kLoaded = 4;  // named barrier of all threads: the producers have loaded everything

template <int kColumns>
struct Memory {
  uint8_t k[kStages][kTileBytes], v[kStages][kTileBytes];  // 16-byte pieces of a row permuted: see `load`
  uint8_t q[kD / 8][kChunk<kColumns>];
  uint8_t p[2][2][kTile / 8][kChunk<kColumns>];            // [warpgroup][value, residual]
  float maximum[2][4][kColumns], sum[2][4][kColumns], final_maximum[2][kColumns];
  int limit[kColumns];
  uint64_t full[kStages], empty[kStages];
};

struct Operands {
  const __half* q;
  const uint8_t *k, *v;
  const int *page_table, *row_lengths;
  __half* out;
  float *partial, *maximum, *sum;  // of `grouped` alone: [heads][splits][48][256], [heads][splits][48] twice
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
// at i ^ (r / 2 & 3) * 2, where the fragment reads below meet no bank twice. `page_of` looks up the page table; whole warps call it.
template <int kColumns, typename Pages>
__device__ __forceinline__ void load(const Operands& o, Memory<kColumns>& s, int head, int begin, int end, int longest, Pages page_of) {
  const int thread = threadIdx.x - kConsumers, piece = thread & 15, row = thread >> 4;  // rows row, row + 8, ...
  const uint32_t k_to = sm90::smem(s.k[0]) + row * kD + (piece ^ (row & 1) * 4) * 16, v_to = sm90::smem(s.v[0]) + row * kD + (piece ^ (row >> 1 & 3) * 2) * 16;
  const uint8_t *k_head = o.k + head * o.k_head + piece * 16, *v_head = o.v + head * o.v_head + piece * 16;
  int stage = 0, parity = 1, page = begin * kTile / o.page_size, offset = begin * kTile - page * o.page_size;
  for (int tile = begin; tile < end; tile++) {
    const int first = tile * kTile, at = stage * kTileBytes;
    if (tile - begin >= kStages) sm90::barrier_wait(sm90::smem(&s.empty[stage]), parity);
    if (offset + kTile <= o.page_size && first + kTile <= longest) {
      const int64_t id = page_of(page);
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
        const int64_t id = page_of(its_page);
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
template <int kColumns>
struct State {
  float acc[4][kColumns / 2], maximum[kColumns / 4], sum[kColumns / 4], bound[kColumns / 4];  // bound: the unscaled score that the maximum may lag behind
};

// A thread's place in its warpgroup, and where it finds the stage, its operands and its results.
struct Place {
  int group, w, g, c;
  uint32_t k, v, q, p, p_stored;  // shared memory addresses: own fragments of stage 0 of K and V; Q and own group's P as a product describes
                                  // them (`described`), and where P is stored
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

// d[64x24] (+)= a[64x16] b[16x24], as `sm90::product_64x48x16`.
template <bool kAdd>
__device__ __forceinline__ void product(float (&d)[12], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %17, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11}, "
      "{%12, %13, %14, %15}, %16, add, 1, 1, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "n"(static_cast<int>(kAdd)));
}
template <bool kAdd>
__device__ __forceinline__ void product(float (&d)[24], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b) {
  sm90::product_64x48x16<kAdd>(d, a0, a1, a2, a3, b);
}

// S^T of a tile whose first block of keys is decoded already; leaves the first 16 tokens of V decoded in `first`.
template <int kColumns>
__device__ __forceinline__ void scores(const Place& at, uint32_t stage, uint32_t (&first)[16], float (&score)[kColumns / 2]) {
  const sm90::Operand q(at.q, kChunk<kColumns>, 128);
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
      const uint64_t columns = q.at((b * 4 + j) * 2 * kChunk<kColumns>);
      if (b == 0 && j == 0) product<false>(score, own[0], own[1], own[2], own[3], columns);
      else product<true>(score, own[j * 4], own[j * 4 + 1], own[j * 4 + 2], own[j * 4 + 3], columns);
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
template <int kColumns>
__device__ __forceinline__ void mask(const Memory<kColumns>& s, int first, const Place& at, float (&score)[kColumns / 2]) {
#pragma unroll
  for (int i = 0; i < kColumns / 2; i++) {
    const int token = first + at.w * 16 + at.g + (i >> 1 & 1) * 8, column = (i >> 2) * 8 + at.c * 2 + (i & 1);
    if (token >= s.limit[column]) score[i] = -INFINITY;
  }
}

template <int kColumns>
__device__ __forceinline__ bool exceeds(const float (&score)[kColumns / 2], const State<kColumns>& r) {
  bool over[2] = {false, false};
#pragma unroll
  for (int i = 0; i < kColumns / 2; i++) over[i & 1] |= score[i] > r.bound[(i >> 2) * 2 + (i & 1)];
  return over[0] || over[1];
}

// The tile's own maximum becomes the running one. Rare: the maximum lags by up to kSlack.
template <int kColumns>
__device__ __forceinline__ void adopt(Memory<kColumns>& s, const Place& at, const float (&score)[kColumns / 2], float scale, State<kColumns>& r) {
#pragma unroll
  for (int i = 0; i < kColumns / 4; i++) {
    float x = fmaxf(score[(i >> 1) * 4 + (i & 1)], score[(i >> 1) * 4 + 2 + (i & 1)]);
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 4)), x = fmaxf(x, __shfl_xor_sync(~0u, x, 8)), x = fmaxf(x, __shfl_xor_sync(~0u, x, 16));
    if (at.g == 0) s.maximum[at.group][at.w][(i >> 1) * 8 + at.c * 2 + (i & 1)] = x;
  }
  sm90::named_barrier(1 + at.group, 128);
  const float inverse = 1.0f / scale;
#pragma unroll
  for (int i = 0; i < kColumns / 4; i++) {
    const float(&of)[4][kColumns] = s.maximum[at.group];
    const int column = (i >> 1) * 8 + at.c * 2 + (i & 1);
    const float x = fmaxf(fmaxf(of[0][column], of[1][column]), fmaxf(of[2][column], of[3][column])), top = fmaxf(r.maximum[i], x * scale);
    const float shrink = sm90::exp2_approx(r.maximum[i] - top);
    r.maximum[i] = top, r.sum[i] *= shrink, r.bound[i] = (top + kSlack) * inverse;
#pragma unroll
    for (int m = 0; m < 4; m++) r.acc[m][(i >> 1) * 4 + (i & 1)] *= shrink, r.acc[m][(i >> 1) * 4 + 2 + (i & 1)] *= shrink;
  }
}

// Two 8x8 matrices, as `sm90::store_transposed` stores four.
__device__ __forceinline__ void store_transposed(uint32_t to, uint32_t a, uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(a), "r"(b) : "memory");
}

// Probabilities of this warp's 16 tokens into shared memory, as FP16 and residual, transposed to token-contiguous columns.
template <int kColumns>
__device__ __forceinline__ void probabilities(const Place& at, const float (&score)[kColumns / 2], float scale, State<kColumns>& r) {
  const int lane = threadIdx.x & 31;
  const uint32_t to = at.p_stored + (at.w * 2 + (lane >> 3 & 1)) * kChunk<kColumns> + (lane >> 4) * 128 + (lane & 7) * 16;
#pragma unroll
  for (int j = 0; j < kColumns / 8; j += 2) {
    uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {  // matrix i: tokens 8 (i & 1) on, column group j + i / 2
      if (j + (i >> 1) >= kColumns / 8) break;
      const int from = (j + (i >> 1)) * 4 + (i & 1) * 2, column = (j + (i >> 1)) * 2;
      const float p0 = sm90::exp2_approx(fmaf(score[from], scale, -r.maximum[column]));
      const float p1 = sm90::exp2_approx(fmaf(score[from + 1], scale, -r.maximum[column + 1]));
      r.sum[column] += p0, r.sum[column + 1] += p1;
      const __half2 h = __floats2half2_rn(p0, p1);
      const float2 f = __half22float2(h);
      const __half2 rest = __floats2half2_rn(p0 - f.x, p1 - f.y);
      high[i] = *reinterpret_cast<const uint32_t*>(&h), low[i] = *reinterpret_cast<const uint32_t*>(&rest);
    }
    if (j + 1 < kColumns / 8) {
      sm90::store_transposed(to + j * 128, high[0], high[1], high[2], high[3]);
      sm90::store_transposed(to + kPartBytes<kColumns> + j * 128, low[0], low[1], low[2], low[3]);
    } else {
      store_transposed(to + j * 128, high[0], high[1]);
      store_transposed(to + kPartBytes<kColumns> + j * 128, low[0], low[1]);
    }
  }
}

// O^T += V^T P^T, the first 16 tokens being decoded already. `before_wait` runs once everything is issued.
template <int kColumns, typename BeforeWait>
__device__ __forceinline__ void accumulate(const Place& at, uint32_t stage, uint32_t (&first)[16], State<kColumns>& r, BeforeWait before_wait) {
  const sm90::Operand p(at.p, kChunk<kColumns>, 128);
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
        product<true>(r.acc[m], own[m * 4], own[m * 4 + 1], own[m * 4 + 2], own[m * 4 + 3], p.at(part * kPartBytes<kColumns> + t * 2 * kChunk<kColumns>));
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
template <int kColumns>
__device__ __forceinline__ void publish(Memory<kColumns>& s, const Place& at, const State<kColumns>& r) {
#pragma unroll
  for (int i = 0; i < kColumns / 4; i++) {
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

// Q of a head in the order of k that the key fragments have; columns past the last are zero.
template <int kColumns>
__device__ __forceinline__ void load_queries(const Operands& o, Memory<kColumns>& s, int head) {
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

// A warpgroup's tiles: every second one of the split.
template <int kColumns>
__device__ __forceinline__ void consume(const Operands& o, Memory<kColumns>& s, const Place& at, int begin, int end, int shortest, State<kColumns>& r) {
#pragma unroll
  for (int i = 0; i < kColumns / 4; i++) r.maximum[i] = r.bound[i] = kNone, r.sum[i] = 0;
#pragma unroll
  for (int m = 0; m < 4; m++)
#pragma unroll
    for (int i = 0; i < kColumns / 2; i++) r.acc[m][i] = 0;
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
    float score[kColumns / 2];
    scores<kColumns>(at, stage * kTileBytes, fragments, score);
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

}  // namespace attention
