// Publication between GPUs: a block of 640 threads per row sends its FP32 values into every other rank's memory, takes
// theirs as they come, adds all in rank order, rounds, adds the residual, and norms the sum in the order of rms.cuh. Without a
// residual and a scale it ends with the rounded sum.
// Where the projection before it sends (`kSent`), to this rank's inbox too, it takes all rows as they come and waits for that kernel,
// whose end waits until the link has acknowledged its stores, when its own work is done. That projection lets it begin only once all
// its blocks have waited for the kernels before, so that the residual and the epoch are there.
//
// A value travels with the epoch of its publication in one 64-bit word, which is written and read as a whole: it is there when its
// epoch is, so that no flag, and no fence for one, has to follow it over the link. All are system-scope accesses. Inbox of a rank:
// words [2 slots][ranks][8 rows][8192]; publication `epoch` uses slot epoch % 2. Nothing is reset: epochs only rise, and after
// 2^32 - 1 comes 2, which keeps slots alternating and never meets the zero of memory that nobody wrote. A rank overwrites what it sent
// two publications ago once it has all of the last one, which the others send when they are done with the one before: every kernel
// sends behind `wait_for_previous`.
// A rank that does not come within the limit is lost: the outputs are NaN, the host's `fault` names it, and no later launch waits.
#include "abi.h"
#include "rms.cuh"

namespace ENTRY(mail) {  // named: nvcc gives an unnamed one another name in every build

using namespace rms;

constexpr int kMostRows = 8, kMostWidth = 8192, kMostRanks = 8;
constexpr int kThreads = 640, kStep = kThreads * kPiece;
constexpr int kNormThreads = 128, kNormWarps = kNormThreads / 32;
constexpr unsigned int kLooks = 1024;  // between two looks at the clock

struct State { unsigned int epoch, arrived, lost, unused; };
struct Words { uint64_t x[kPiece]; };

// A rank's end: the inboxes of all, its own among them.
struct Ends {
  uint64_t* inbox[kMostRanks];
  State* state;
  int rank, size;
};
struct Operands {
  const float* partial;
  const void* residual;
  const float* scale;
  void *s, *y;
  Ends ends;
  volatile int* fault;  // lost rank + 1, epoch
  int64_t residual_stride;
  uint64_t limit_ns;
  int width;
  float eps;
  bool collect;
};

__device__ __forceinline__ uint64_t now_ns() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
__device__ __forceinline__ void send(uint64_t* to, uint64_t a, uint64_t b) {
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(a), "l"(b) : "memory");
}
__device__ __forceinline__ void look(const uint64_t* from, uint64_t& a, uint64_t& b) {
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(from) : "memory");
}
__device__ __forceinline__ uint64_t word(float value, unsigned int epoch) { return static_cast<uint64_t>(epoch) << 32 | __float_as_uint(value); }
__device__ __forceinline__ float value(uint64_t word) { return __uint_as_float(static_cast<uint32_t>(word)); }
__device__ __forceinline__ bool of(uint64_t word, unsigned int epoch) { return static_cast<uint32_t>(word >> 32) == epoch; }

__device__ __forceinline__ unsigned int after(unsigned int epoch) { return epoch + 1 ? epoch + 1 : 2; }
// Where `source` puts row `row` of `epoch` in the inbox of `rank`.
__device__ __forceinline__ uint64_t* place(const Ends& ends, int rank, unsigned int epoch, int source, int row) {
  return ends.inbox[rank] + (static_cast<int64_t>((epoch & 1) * ends.size + source) * kMostRows + row) * kMostWidth;
}
// Two neighbouring values of this rank's row to every rank, those first that are further away.
__device__ __forceinline__ void send_all(const Ends& ends, unsigned int epoch, int row, int column, float2 two) {
  const uint64_t a = word(two.x, epoch), b = word(two.y, epoch);
  for (int peer = 0; peer < ends.size; peer++)
    if (peer != ends.rank) send(place(ends, peer, epoch, ends.rank, row) + column, a, b);
  send(place(ends, ends.rank, epoch, ends.rank, row) + column, a, b);
}

// This thread's pieces of one source, all looked at together until each has its epoch; false if the limit ends it.
template <int kPieces>
__device__ bool take(const Operands& o, const uint64_t* from, unsigned int epoch, bool lost, uint64_t until_ns, float (&v)[kPieces][kPiece]) {
  const int first = threadIdx.x * kPiece;
  for (unsigned int turn = 1;; turn++) {
    Words w[kPieces];
    bool there = true;
#pragma unroll
    for (int i = 0; i < kPieces; i++)
      if (first + i * kStep < o.width) {
        const uint64_t* at = from + first + i * kStep;
        look(at, w[i].x[0], w[i].x[1]), look(at + 2, w[i].x[2], w[i].x[3]);
      }
#pragma unroll
    for (int i = 0; i < kPieces; i++)
      if (first + i * kStep < o.width)
#pragma unroll
        for (int j = 0; j < kPiece; j++) v[i][j] = value(w[i].x[j]), there &= of(w[i].x[j], epoch);
    if (there) return true;
    if (lost || (turn % kLooks == 0 && now_ns() > until_ns)) return false;
  }
}

__device__ __forceinline__ void lose(const Operands& o, unsigned int epoch, int source) {
  if (atomicExch(&o.ends.state->lost, source + 1u) == 0) {
    o.fault[1] = static_cast<int>(epoch);
    __threadfence_system();
    o.fault[0] = source + 1;
  }
}

template <typename A, int kPieces, bool kSent>
__global__ void __launch_bounds__(kThreads) publish(const __grid_constant__ Operands o) {
  __shared__ float4 summed[kMostWidth / kPiece];
  __shared__ float of_warp[kNormWarps];
  sm90::launch_next();
  const int first = threadIdx.x * kPiece, row = blockIdx.x;
  float4 scale[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; i++)
    if (o.scale && first + i * kStep < o.width) scale[i] = __ldg(reinterpret_cast<const float4*>(o.scale + first + i * kStep));
  if constexpr (!kSent) sm90::wait_for_previous();

  const Ends& ends = o.ends;
  const unsigned int epoch = after(__ldcg(&ends.state->epoch));
  const bool lost = __ldcg(&ends.state->lost) != 0;
  float own[kPieces][kPiece] = {};
  if constexpr (!kSent) {
#pragma unroll
    for (int i = 0; i < kPieces; i++)
      if (first + i * kStep < o.width) {
        const float4 x = __ldcg(reinterpret_cast<const float4*>(o.partial + static_cast<int64_t>(row) * o.width + first + i * kStep));
        own[i][0] = x.x, own[i][1] = x.y, own[i][2] = x.z, own[i][3] = x.w;
      }
    for (int peer = 0; peer < ends.size; peer++) {
      if (peer == ends.rank) continue;
      uint64_t* to = place(ends, peer, epoch, ends.rank, row) + first;
#pragma unroll
      for (int i = 0; i < kPieces; i++)
        if (first + i * kStep < o.width) {
          send(to + i * kStep, word(own[i][0], epoch), word(own[i][1], epoch));
          send(to + i * kStep + 2, word(own[i][2], epoch), word(own[i][3], epoch));
        }
    }
  }

  Piece<A> v[kPieces];
  if (o.collect) {
#pragma unroll
    for (int i = 0; i < kPieces; i++)
      if (o.residual && first + i * kStep < o.width) v[i] = load(static_cast<const A*>(o.residual) + row * o.residual_stride + first + i * kStep);
    float total[kPieces][kPiece];
    const uint64_t until_ns = now_ns() + o.limit_ns;
    auto of_source = [&](int source, float (&part)[kPieces][kPiece]) {
      if (take<kPieces>(o, place(ends, ends.rank, epoch, source, row), epoch, lost, until_ns, part)) return;
      lose(o, epoch, source);
#pragma unroll
      for (int i = 0; i < kPieces; i++)
#pragma unroll
        for (int j = 0; j < kPiece; j++) part[i][j] = __uint_as_float(0x7FFFFFFFu);
    };
    for (int at = 0; at < ends.size; at++) {
      // Its own rows come first, and a sum of two is the same in either order.
      const int source = kSent && ends.rank == 1 && at < 2 ? 1 - at : at;
      float part[kPieces][kPiece] = {};
      if (kSent || source != ends.rank) of_source(source, part);
#pragma unroll
      for (int i = 0; i < kPieces; i++)
#pragma unroll
        for (int j = 0; j < kPiece; j++) {
          const float x = !kSent && source == ends.rank ? own[i][j] : part[i][j];
          total[i][j] = at == 0 ? x : total[i][j] + x;
        }
    }
#pragma unroll
    for (int i = 0; i < kPieces; i++)
      if (first + i * kStep < o.width) {
#pragma unroll
        for (int j = 0; j < kPiece; j++) v[i].set(j, o.residual ? v[i][j] + rounded<A>(total[i][j]) : total[i][j]);
        store(static_cast<A*>(o.s) + static_cast<int64_t>(row) * o.width + first + i * kStep, v[i]);
        summed[threadIdx.x + i * kThreads] = make_float4(v[i][0], v[i][1], v[i][2], v[i][3]);
      }
  }
  __syncthreads();  // all of this block have read the epoch before
  const bool last = threadIdx.x == kThreads - 1 && atomicAdd(&ends.state->arrived, 1u) == gridDim.x - 1;
  if (o.collect && o.scale) {
    if (threadIdx.x < kNormThreads) {  // the order of torch's RMSNorm, which knows 128 threads
      float sum = 0;
      for (int at = threadIdx.x; at * kPiece < o.width; at += kNormThreads) {
        const float4 x = summed[at];
        const float wide[kPiece] = {x.x, x.y, x.z, x.w};
        sum = square(wide, sum);
      }
      sum = over_lanes(sum);
      if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    const float inverse = inverse_root((of_warp[0] + of_warp[2]) + (of_warp[1] + of_warp[3]), o.width, o.eps);
#pragma unroll
    for (int i = 0; i < kPieces; i++)
      if (first + i * kStep < o.width) {
        const float by[kPiece] = {scale[i].x, scale[i].y, scale[i].z, scale[i].w};
#pragma unroll
        for (int j = 0; j < kPiece; j++) v[i].set(j, __fmul_rn(by[j], __fmul_rn(inverse, v[i][j])));
        store(static_cast<A*>(o.y) + static_cast<int64_t>(row) * o.width + first + i * kStep, v[i]);
      }
  }
  // When the last block arrived, all had read the epoch before. It leaves the next one behind, which nobody reads who has not waited for
  // this kernel; no fence is needed, and none holds up the end. The projection's blocks that send have read it too: their rows are here.
  if (last) ends.state->arrived = 0, ends.state->epoch = epoch;
  if constexpr (kSent) sm90::wait_for_previous();  // and so for the projection
}

template <typename A, bool kSent>
cudaError_t run(const Operands& o, int rows, void* stream) {
  const int pieces = (o.width + kStep - 1) / kStep;
  return pieces <= 1 ? launch(publish<A, 1, kSent>, dim3(rows), kThreads, stream, o)
         : pieces <= 2 ? launch(publish<A, 2, kSent>, dim3(rows), kThreads, stream, o) : launch(publish<A, 4, kSent>, dim3(rows), kThreads, stream, o);
}
// Type 0 FP16, 1 BF16.
template <bool kSent>
cudaError_t run(const Operands& o, int rows, int type, void* stream) {
  return type == 0 ? run<__half, kSent>(o, rows, stream) : run<__nv_bfloat16, kSent>(o, rows, stream);
}

inline Ends ends_of(const uint64_t* inboxes, void* state, int rank, int size) {
  Ends ends{{}, static_cast<State*>(state), rank, size};
  for (int i = 0; i < size; i++) ends.inbox[i] = reinterpret_cast<uint64_t*>(inboxes[i]);
  return ends;
}

}

EXPORT int ENTRY(revision)() { return 1; }

// Zeroed memory of the current device that other processes may map, and the 64 bytes by which they do.
EXPORT int ENTRY(allocate)(int64_t size_bytes, void** made, void* handle) {
  cudaError_t error = cudaMalloc(made, size_bytes);
  if (error == cudaSuccess) error = cudaMemset(*made, 0, size_bytes);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess) error = cudaIpcGetMemHandle(static_cast<cudaIpcMemHandle_t*>(handle), *made);
  return error;
}
EXPORT int ENTRY(attach)(const void* handle, void** mapped) {
  return cudaIpcOpenMemHandle(mapped, *static_cast<const cudaIpcMemHandle_t*>(handle), cudaIpcMemLazyEnablePeerAccess);
}

// partial FP32 [rows][width] contiguous; residual [rows][width], its stride in elements, or null with scale; s, y contiguous; inboxes: addresses of every
// rank's inbox; type 0 FP16, 1 BF16; width a multiple of 4 and at most 8192. Without collect the rows are sent and nothing is written.
EXPORT int ENTRY(run)(const float* partial, const void* residual, const float* scale, void* s, void* y, const uint64_t* inboxes, void* state,
                      void* fault, int rank, int size, int rows, int width, int64_t residual_stride, int type, float eps, int64_t limit_ns,
                      int collect, void* stream) {
  const ENTRY(mail)::Operands o{partial, residual, scale, s, y, ENTRY(mail)::ends_of(inboxes, state, rank, size), static_cast<volatile int*>(fault),
                                residual_stride, static_cast<uint64_t>(limit_ns), width, eps, collect != 0};
  return ENTRY(mail)::run<false>(o, rows, type, stream);
}
