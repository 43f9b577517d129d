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
#include <cuda_fp16.h>
#include <stdint.h>

#include "abi.h"
#include "sm90.cuh"

namespace ENTRY(code) {  // named: nvcc gives an unnamed one another name in every build

constexpr int kD = 256, kColumns = 48, kTile = 64, kStages = 5, kConsumers = 256, kThreads = kConsumers + 128;
constexpr int kTileBytes = kTile * kD, kChunk = kColumns * 16;  // a chunk: 8 k of every column
constexpr float kNone = -1e30f, kSlack = 8.0f;

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
  Lengths l{0, 0x7fffffff};
  for (int i = 0; i < o.rows; i++) {
    const int length = __ldg(o.row_lengths + i);
    l.longest = max(l.longest, length), l.shortest = min(l.shortest, length);
  }
  return l;
}

// Four warps copy tiles [begin, end) of a head; half a warp per token row. Row r keeps piece i of K at i ^ (r & 1) * 4 and of V
// at i ^ (r / 2 & 3) * 2, where the fragment reads below meet no bank twice.
__device__ __forceinline__ void load(const Operands& o, Shared& s, int head, int begin, int end, int longest) {
  const int thread = threadIdx.x - kConsumers, piece = thread & 15, row = thread >> 4;  // rows row, row + 8, ...
  const uint32_t k_at = row * kD + (piece ^ (row & 1) * 4) * 16, v_at = row * kD + (piece ^ (row >> 1 & 3) * 2) * 16;
  int stage = 0, parity = 1;
  for (int tile = begin; tile < end; tile++) {
    const int first = tile * kTile;
    if (tile - begin >= kStages) sm90::barrier_wait(sm90::smem(&s.empty[stage]), parity);
    const uint32_t k_to = sm90::smem(s.k[stage]) + k_at, v_to = sm90::smem(s.v[stage]) + v_at;
    const int page = first / o.page_size, offset = first - page * o.page_size;
    if (offset + kTile <= o.page_size && first + kTile <= longest) {
      const int64_t id = __ldg(o.page_table + page);
      const uint8_t* k = o.k + id * o.k_page + static_cast<int64_t>(offset + row) * o.k_token + head * o.k_head + piece * 16;
      const uint8_t* v = o.v + id * o.v_page + static_cast<int64_t>(offset + row) * o.v_token + head * o.v_head + piece * 16;
#pragma unroll
      for (int r = 0; r < kTile / 8; r++) {
        sm90::copy_16(k_to + r * 8 * kD, k), sm90::copy_16(v_to + r * 8 * kD, v);
        k += 8 * o.k_token, v += 8 * o.v_token;
      }
    } else {
#pragma unroll 1
      for (int r = 0; r < kTile / 8; r++) {
        const int token = min(first + 8 * r + row, longest - 1), its_page = token / o.page_size, at = token - its_page * o.page_size;
        const int64_t id = __ldg(o.page_table + its_page);
        sm90::copy_16(k_to + r * 8 * kD, o.k + id * o.k_page + static_cast<int64_t>(at) * o.k_token + head * o.k_head + piece * 16);
        sm90::copy_16(v_to + r * 8 * kD, o.v + id * o.v_page + static_cast<int64_t>(at) * o.v_token + head * o.v_head + piece * 16);
      }
    }
    sm90::copies_arrive(&s.full[stage]);
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
}

// What one warpgroup knows: thread (w, g, c) holds columns 8 j + 2 c + e of output dims 64 w + 8 g + 2 m + {0, 1}.
struct Running {
  float acc[4][24], maximum[12], sum[12];
};

__device__ __forceinline__ void scores(const Shared& s, int stage, int w, int g, int c, float (&score)[24]) {
  const uint32_t row = sm90::smem(s.k[stage]) + (w * 16 + g) * kD, flip = (g & 1) * 4;
  const uint32_t q = sm90::smem(s.q);
  uint32_t a[2][16];
#pragma unroll
  for (int b = 0; b < 4; b++) {
    const uint4 upper = sm90::load_16(row + (((b * 4 + c) ^ flip) * 16)), lower = sm90::load_16(row + 8 * kD + (((b * 4 + c) ^ flip) * 16));
    const uint32_t u[4] = {upper.x, upper.y, upper.z, upper.w}, l[4] = {lower.x, lower.y, lower.z, lower.w};
    if (b >= 2) sm90::products_wait<1>();
#pragma unroll
    for (int j = 0; j < 4; j++) {
      a[b & 1][j * 4 + 0] = sm90::e4m3_to_half2(u[j]), a[b & 1][j * 4 + 2] = sm90::e4m3_to_half2(u[j] >> 16);
      a[b & 1][j * 4 + 1] = sm90::e4m3_to_half2(l[j]), a[b & 1][j * 4 + 3] = sm90::e4m3_to_half2(l[j] >> 16);
    }
    sm90::products_fence();
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const uint64_t b_operand = sm90::operand(q + (b * 4 + j) * 2 * kChunk, kChunk, 128);
      const uint32_t* f = &a[b & 1][j * 4];
      if (b == 0 && j == 0) sm90::product_64x48x16<false>(score, f[0], f[1], f[2], f[3], b_operand);
      else sm90::product_64x48x16<true>(score, f[0], f[1], f[2], f[3], b_operand);
    }
    sm90::products_commit();
  }
  sm90::products_wait<0>();
  sm90::changed(score);
}

// Rows of the tile that a column does not see become -inf.
__device__ __forceinline__ void mask(const Shared& s, int first, int w, int g, int c, float (&score)[24]) {
#pragma unroll
  for (int i = 0; i < 24; i++) {
    const int token = first + w * 16 + g + (i >> 1 & 1) * 8, column = (i >> 2) * 8 + c * 2 + (i & 1);
    if (token >= s.limit[column]) score[i] = -INFINITY;
  }
}

// Adopt the tile's own maximum. Rare: the maximum lags by up to kSlack.

__device__ __forceinline__ void adopt(Shared& s, int group, int w, int g, int c, const float (&score)[24], float scale, Running& r) {
#pragma unroll
  for (int j = 0; j < 6; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      float x = fmaxf(score[j * 4 + e], score[j * 4 + 2 + e]) * scale;
      x = fmaxf(x, __shfl_xor_sync(~0u, x, 4)), x = fmaxf(x, __shfl_xor_sync(~0u, x, 8)), x = fmaxf(x, __shfl_xor_sync(~0u, x, 16));
      if (g == 0) s.maximum[group][w][j * 8 + c * 2 + e] = x;
    }
  sm90::named_barrier(1 + group, 128);
#pragma unroll
  for (int j = 0; j < 6; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int column = j * 8 + c * 2 + e;
      float x = r.maximum[j * 2 + e];
#pragma unroll
      for (int i = 0; i < 4; i++) x = fmaxf(x, s.maximum[group][i][column]);
      const float shrink = sm90::exp2_approx(r.maximum[j * 2 + e] - x);
      r.maximum[j * 2 + e] = x, r.sum[j * 2 + e] *= shrink;
#pragma unroll
      for (int m = 0; m < 4; m++) r.acc[m][j * 4 + e] *= shrink, r.acc[m][j * 4 + 2 + e] *= shrink;
    }
}

// Probabilities of this warp's 16 tokens into shared memory, as FP16 and residual, transposed to token-contiguous columns.
__device__ __forceinline__ void probabilities(Shared& s, int group, int w, const float (&score)[24], float scale, Running& r) {
  const int lane = threadIdx.x & 31;
  const uint32_t to = sm90::smem(s.p[group][0]) + (w * 2 + (lane >> 3 & 1)) * kChunk + (lane >> 4) * 128 + (lane & 7) * 16;
#pragma unroll
  for (int j = 0; j < 6; j += 2) {
    uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {  // matrix i: tokens 8 (i & 1) on, column group j + i / 2
      const int at = (j + (i >> 1)) * 4 + (i & 1) * 2, column = (j + (i >> 1)) * 2;
      const float p0 = sm90::exp2_approx(fmaf(score[at], scale, -r.maximum[column]));
      const float p1 = sm90::exp2_approx(fmaf(score[at + 1], scale, -r.maximum[column + 1]));
      r.sum[column] += p0, r.sum[column + 1] += p1;
      const __half2 h = __floats2half2_rn(p0, p1);
      const float2 f = __half22float2(h);
      const __half2 rest = __floats2half2_rn(p0 - f.x, p1 - f.y);
      high[i] = *reinterpret_cast<const uint32_t*>(&h), low[i] = *reinterpret_cast<const uint32_t*>(&rest);
    }
    sm90::store_transposed(to + j * 128, high[0], high[1], high[2], high[3]);
    sm90::store_transposed(to + sizeof(s.p[0][0]) + j * 128, low[0], low[1], low[2], low[3]);
  }
}

__device__ __forceinline__ void values(const Shared& s, int stage, int group, int w, int g, int c, Running& r) {
  const uint32_t base = sm90::smem(s.v[stage]) + 2 * c * kD + (((w * 4 + (g >> 1)) ^ c * 2) * 16) + (g & 1) * 8;
  const uint32_t p = sm90::smem(s.p[group][0]);
  uint32_t a[2][16];
#pragma unroll
  for (int t = 0; t < 4; t++) {
    const uint2 v0 = sm90::load_8(base + t * 16 * kD), v1 = sm90::load_8(base + t * 16 * kD + kD);
    const uint2 v8 = sm90::load_8(base + t * 16 * kD + 8 * kD), v9 = sm90::load_8(base + t * 16 * kD + 9 * kD);
    if (t >= 2) sm90::products_wait<1>();
    uint32_t* f = a[t & 1];
    auto decode = [&](int m, uint32_t even, uint32_t odd, int half) {  // dims 2 m .. 2 m + 3 of two tokens: two m tiles
      const uint32_t first = __byte_perm(even, odd, 0x5140), second = __byte_perm(even, odd, 0x7362);
      f[m * 4 + half] = sm90::e4m3_to_half2(first), f[m * 4 + half + 1] = sm90::e4m3_to_half2(first >> 16);
      f[m * 4 + 4 + half] = sm90::e4m3_to_half2(second), f[m * 4 + 4 + half + 1] = sm90::e4m3_to_half2(second >> 16);
    };
    decode(0, v0.x, v1.x, 0), decode(2, v0.y, v1.y, 0), decode(0, v8.x, v9.x, 2), decode(2, v8.y, v9.y, 2);
    sm90::products_fence();
    const uint64_t high = sm90::operand(p + t * 2 * kChunk, kChunk, 128), low = sm90::operand(p + sizeof(s.p[0][0]) + t * 2 * kChunk, kChunk, 128);
#pragma unroll
    for (int m = 0; m < 4; m++) sm90::product_64x48x16<true>(r.acc[m], f[m * 4], f[m * 4 + 1], f[m * 4 + 2], f[m * 4 + 3], high);
#pragma unroll
    for (int m = 0; m < 4; m++) sm90::product_64x48x16<true>(r.acc[m], f[m * 4], f[m * 4 + 1], f[m * 4 + 2], f[m * 4 + 3], low);
    sm90::products_commit();
  }
  sm90::products_wait<0>();
#pragma unroll
  for (int m = 0; m < 4; m++) sm90::changed(r.acc[m]);
}

// Column sums of a warpgroup's threads, and its maxima, into shared memory.
__device__ __forceinline__ void publish(Shared& s, int group, int w, int g, int c, Running& r) {
#pragma unroll
  for (int i = 0; i < 12; i++) {
    float x = r.sum[i];
    x += __shfl_xor_sync(~0u, x, 4), x += __shfl_xor_sync(~0u, x, 8), x += __shfl_xor_sync(~0u, x, 16);
    const int column = (i >> 1) * 8 + c * 2 + (i & 1);
    if (g == 0) s.sum[group][w][column] = x;
    if (g == 0 && w == 0) s.final_maximum[group][column] = r.maximum[i];
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
__device__ __forceinline__ void merge(const Operands& o, float* scratch, int head, int split, int splits, int active) {
  const int items = (kColumns * kD / 4 + splits - 1) / splits, parts = max(1, kConsumers / items);
  const float* maxima = o.maximum + static_cast<int64_t>(head) * splits * kColumns;
  const float* sums = o.sum + static_cast<int64_t>(head) * splits * kColumns;
  const float4* numerators = reinterpret_cast<const float4*>(o.partial) + static_cast<int64_t>(head) * splits * kColumns * kD / 4;
  float4* shares = reinterpret_cast<float4*>(scratch);
  float* share_sums = scratch + kConsumers * 4;
  for (int block = 0; block < items; block += kConsumers) {
    const int part = threadIdx.x / min(items, kConsumers), i = block + threadIdx.x % min(items, kConsumers), item = split * items + i;
    const bool mine = part < parts && i < items && item < kColumns * kD / 4;
    const int column = mine ? item / (kD / 4) : 0;
    float4 v = make_float4(0, 0, 0, 0);
    float sum = 0;
    if (mine) {
      float top = kNone;
      for (int at = 0; at < active; at++) top = fmaxf(top, __ldcg(maxima + at * kColumns + column));
#pragma unroll 4
      for (int at = part; at < active; at += parts) {
        const float weight = sm90::exp2_approx(__ldcg(maxima + at * kColumns + column) - top);
        const float4 n = __ldcg(numerators + static_cast<int64_t>(at) * kColumns * kD / 4 + item);
        sum = fmaf(weight, __ldcg(sums + at * kColumns + column), sum);
        v.x = fmaf(weight, n.x, v.x), v.y = fmaf(weight, n.y, v.y), v.z = fmaf(weight, n.z, v.z), v.w = fmaf(weight, n.w, v.w);
      }
    }
    shares[threadIdx.x] = v, share_sums[threadIdx.x] = sum;
    sm90::named_barrier(3, kConsumers);
    if (mine && part == 0) {
      for (int p = 1; p < parts; p++) {
        const float4 n = shares[threadIdx.x + p * items];
        v.x += n.x, v.y += n.y, v.z += n.z, v.w += n.w, sum += share_sums[threadIdx.x + p * items];
      }
      write_row(o, head, column, item % (kD / 4) * 4, v, sum);
    }
    sm90::named_barrier(3, kConsumers);
  }
}

// A warpgroup's tiles, then its half of the split's result.
__device__ __forceinline__ void consume(const Operands& o, Shared& s, int head, int split, int splits, int begin, int end, int active, int shortest) {
  const int lane = threadIdx.x & 31, g = lane >> 2, c = lane & 3, group = threadIdx.x >> 7, w = threadIdx.x >> 5 & 3;
        if (threadIdx.x < kColumns) s.limit[threadIdx.x] = threadIdx.x < o.rows * o.group ? __ldg(o.row_lengths + threadIdx.x / o.group) : 0;
        for (int i = threadIdx.x; i < kColumns * kD / 2; i += kConsumers) {  // two k of one column each
          const int column = i / (kD / 2), pair = i % (kD / 2), row = column / o.group;
          uint32_t two = 0;
          if (row < o.rows)
            two = __ldg(reinterpret_cast<const uint32_t*>(o.q + (static_cast<int64_t>(row) * o.q_heads + head * o.group + column % o.group) * kD) + pair);
          const int chunk = (pair >> 5) * 8 + (pair >> 1 & 3) * 2 + (pair & 1), slot = pair >> 3 & 3;
          *reinterpret_cast<uint32_t*>(&s.q[chunk][column * 16 + slot * 4]) = two;
        }
        sm90::fence_async_proxy();
        sm90::named_barrier(3, kConsumers);

        Running r;
  #pragma unroll
        for (int i = 0; i < 12; i++) r.maximum[i] = kNone, r.sum[i] = 0;
  #pragma unroll
        for (int m = 0; m < 4; m++)
  #pragma unroll
          for (int i = 0; i < 24; i++) r.acc[m][i] = 0;

        float score[24];
  #pragma unroll 1
        for (int tile = begin + group; tile < end; tile += 2) {
          const int i = tile - begin, stage = i % kStages;
          sm90::barrier_wait(sm90::smem(&s.full[stage]), i / kStages & 1);
          scores(s, stage, w, g, c, score);  // the products of the tile before are complete, too
  #pragma unroll
          for (int m = 0; m < 4; m++) sm90::changed(r.acc[m]);
          if ((tile + 1) * kTile > shortest) mask(s, tile * kTile, w, g, c, score);
          float over = kNone;
  #pragma unroll
          for (int j = 0; j < 6; j++)
  #pragma unroll
            for (int e = 0; e < 2; e++) over = fmaxf(over, fmaf(fmaxf(score[j * 4 + e], score[j * 4 + 2 + e]), o.scale, -r.maximum[j * 2 + e]));
          // Also the point after which no warp of the group still reads the previous probabilities.
          if (sm90::named_barrier_or(1 + group, 128, over > kSlack)) adopt(s, group, w, g, c, score, o.scale, r);
          probabilities(s, group, w, score, o.scale, r);
          sm90::fence_async_proxy();
          sm90::named_barrier(1 + group, 128);
          values(s, stage, group, w, g, c, r);
          __syncwarp();
          if (lane == 0) sm90::barrier_arrive(sm90::smem(&s.empty[stage]));
        }
        sm90::products_wait<0>();
  #pragma unroll
        for (int m = 0; m < 4; m++) sm90::changed(r.acc[m]);

        // Each warpgroup finishes half of the dims: it gives the other half away and takes the other group's share of its own.
        publish(s, group, w, g, c, r);
        sm90::named_barrier(3, kConsumers);  // the stages are free
        float* given = reinterpret_cast<float*>(s.k) + group * 48 * 128;
  #pragma unroll
        for (int m = 0; m < 2; m++)
  #pragma unroll
          for (int i = 0; i < 24; i++) given[(m * 24 + i) * 128 + (threadIdx.x & 127)] = group == 0 ? r.acc[2 + m][i] : r.acc[m][i];
        sm90::named_barrier(3, kConsumers);
        const float* taken = reinterpret_cast<const float*>(s.k) + (1 - group) * 48 * 128;
        const int64_t base = (static_cast<int64_t>(head) * splits + split) * kColumns;
  #pragma unroll
        for (int j = 0; j < 6; j++)
  #pragma unroll
          for (int e = 0; e < 2; e++) {
            const int column = j * 8 + c * 2 + e;
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
                const float own = group == 0 ? r.acc[m][i] : r.acc[2 + m][i], other = taken[(m * 24 + i) * 128 + (threadIdx.x & 127)];
                v[m * 2 + h] = group == 0 ? w0 * own + w1 * other : w0 * other + w1 * own;
              }
            const int dim = w * 64 + g * 8 + group * 4;
            if (active == 1) {
              write_row(o, head, column, dim, make_float4(v[0], v[1], v[2], v[3]), sum);
            } else {
              __stcg(reinterpret_cast<float4*>(o.partial + (base + column) * kD + dim), make_float4(v[0], v[1], v[2], v[3]));
              if (g == 0 && w == 0 && group == 0) __stcg(o.maximum + base + column, top), __stcg(o.sum + base + column, sum);
            }
          }
}

// Wait until every block of this head has written its share.
__device__ __forceinline__ void meet(unsigned int* arrived, int blocks) {
  __threadfence();
  sm90::named_barrier(3, kConsumers);
  if (threadIdx.x == 0) {
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
  const Lengths length = lengths(o);
  const int tiles = (length.longest + kTile - 1) / kTile, active = max(1, min(splits, (tiles + 1) / 2));
  const int begin = split < active ? static_cast<int>(static_cast<int64_t>(tiles) * split / active) : tiles;
  const int end = split < active ? static_cast<int>(static_cast<int64_t>(tiles) * (split + 1) / active) : tiles;
  if (active == 1 && split > 0) return;

  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) sm90::barrier_init(&s.full[i], 128), sm90::barrier_init(&s.empty[i], 4);
    sm90::barrier_init_visible();
  }
  __syncthreads();

  if (threadIdx.x >= kConsumers) {
    sm90::keep_registers<40>();
    load(o, s, head, begin, end, length.longest);
  } else {
    sm90::take_registers<232>();
    if (begin < end || active == 1) consume(o, s, head, split, splits, begin, end, active, length.shortest);
    if (active == 1) return;
    meet(o.arrived + head, splits);
    merge(o, reinterpret_cast<float*>(s.k), head, split, splits, active);
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
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
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
