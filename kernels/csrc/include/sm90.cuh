// Hopper instructions under their own names: barriers in shared memory, bulk copies, conversions, tensor-core products,
// programmatic launch. Knows no operator.
#pragma once
#include <cuda_fp16.h>
#include <stdint.h>

namespace sm90 {

__device__ __forceinline__ uint32_t smem(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// --- mbarrier: `count` arrivals and all announced bytes end a phase; a phase is waited for by its parity ---
__device__ __forceinline__ void barrier_init(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem(barrier)), "r"(count));
}
__device__ __forceinline__ void barrier_init_visible() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint64_t* barrier, uint32_t size_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem(barrier)), "r"(size_bytes) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra.uni over;\n"
      "bra.uni again;\nover:\n}" ::"r"(barrier), "r"(parity) : "memory");
}
__device__ __forceinline__ uint4 load_16(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
  return v;
}
__device__ __forceinline__ uint2 load_8(uint32_t from) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(from) : "memory");
  return v;
}
__device__ __forceinline__ uint32_t load_4(uint32_t from) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}

__device__ __forceinline__ float4 load_float4(uint32_t from) {
  const uint4 v = load_16(from);
  return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
}
__device__ __forceinline__ void load_floats(uint32_t from, float (&x)[8]) {
  const float4 low = load_float4(from), high = load_float4(from + 16);
  x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w, x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}

__device__ __forceinline__ void store_4(uint32_t to, float v) { asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory"); }

// --- copies into shared memory ---
__device__ __forceinline__ void bulk_copy(void* to, const void* from, uint32_t size_bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem(to)), "l"(from),
               "r"(size_bytes), "r"(smem(barrier)) : "memory");
}
__device__ __forceinline__ void copy_16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
template <int kBytes>
__device__ __forceinline__ void copy(uint32_t to, const void* from) {
  if constexpr (kBytes == 16) copy_16(to, from);
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(kBytes) : "memory");
}
// Copies so far are a group; a thread waits until at most `kPending` of its groups have not landed.
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory"); }
__device__ __forceinline__ void copies_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// One arrival at `barrier` once this thread's copies so far have landed.
__device__ __forceinline__ void copies_arrive(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(smem(barrier)) : "memory");
}
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- barriers among `threads` threads of a block; id 0 is __syncthreads ---
__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// Arrives without waiting.
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ bool named_barrier_or(int id, int threads, bool value) {
  int out;
  asm volatile("{\n.reg .pred in, any;\nsetp.ne.s32 in, %1, 0;\nbarrier.cta.red.or.pred any, %2, %3, in;\nselp.s32 %0, 1, 0, any;\n}"
               : "=r"(out) : "r"(static_cast<int>(value)), "r"(id), "r"(threads) : "memory");
  return out != 0;
}

// --- programmatic launch: what a kernel does before `wait_for_previous` may overlap the kernel before it ---
__device__ __forceinline__ void launch_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// --- clusters: a barrier of all threads in two steps; plain arrival also publishes what was written before it ---
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// Into block `block` of the cluster, where this block has `to`.
__device__ __forceinline__ void store_to_block(void* to, uint32_t block, uint64_t value) {
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nst.shared::cluster.u64 [there], %2;\n}" ::"r"(smem(to)), "r"(block), "l"(value) : "memory");
}

// Of `expected` blocks that arrive at a counter, true for the last, which sees what the others wrote. One thread of each
// block calls it, after a barrier of the block; the counter is zero again afterwards.
__device__ __forceinline__ bool arrive_last(unsigned int* counter, unsigned expected) {
  __threadfence();
  const bool last = atomicAdd(counter, 1u) == expected - 1;
  if (last) *counter = 0;
  __threadfence();
  return last;
}

// What the second-level cache holds now.
__device__ __forceinline__ uint32_t load_relaxed(const uint32_t* from) {
  uint32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
// Takes sixteen bytes out of the second-level cache and leaves zeros in their place.
__device__ __forceinline__ uint4 take(void* from) {
  uint4 v;
  asm volatile(
      "{\n.reg .b128 old, none;\n.reg .b64 low, high;\nmov.b128 none, {%5, %5};\natom.relaxed.gpu.global.exch.b128 old, [%4], none;\n"
      "mov.b128 {low, high}, old;\nmov.b64 {%0, %1}, low;\nmov.b64 {%2, %3}, high;\n}"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from), "l"(0ull) : "memory");
  return v;
}

// Asks for the line of an address to come to the second-level cache: a hint, whose data nobody gets.
__device__ __forceinline__ void prefetch(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }
// A store of what is not read again soon.
template <typename T>
__device__ __forceinline__ void store_once(float* to, const T& v) {
  if constexpr (sizeof(T) == 16) __stcs(reinterpret_cast<float4*>(to), make_float4(v.x[0], v.x[1], v.x[2], v.x[3]));
  else if constexpr (sizeof(T) == 8) __stcs(reinterpret_cast<float2*>(to), make_float2(v.x[0], v.x[1]));
  else __stcs(to, v.x[0]);
}

// Keeps a value in a register where the compiler would rather compute it again.
__device__ __forceinline__ void keep(uint32_t& value) { asm volatile("" : "+r"(value)); }
template <typename T>
__device__ __forceinline__ void keep(T*& value) { asm volatile("" : "+l"(value)); }

// --- arithmetic ---
__device__ __forceinline__ uint32_t half2_mul(uint32_t a, uint32_t b) {
  uint32_t r;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
// Four E4M3 values as two FP16 pairs, exact; the conversion takes either half of a register.
__device__ __forceinline__ void e4m3_to_half2(uint32_t four, uint32_t& low, uint32_t& high) {
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}" : "=r"(low), "=r"(high) : "r"(four));
}
__device__ __forceinline__ float exp2_approx(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ float reciprocal_approx(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
// d[16x8] += a[16x16] b[16x8], FP32 accumulation.
__device__ __forceinline__ void mma_16816(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// --- warpgroup products: asynchronous, in order; registers they read or write stay untouched until `products_wait` ---
__device__ __forceinline__ void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Tells the compiler that the registers change here: reads of them stay below a `products_wait`.
template <int kCount>
__device__ __forceinline__ void changed(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i++) asm volatile("" : "+f"(d[i])::"memory");
}
// A K-major operand in shared memory without swizzle: 8 x 16-byte core matrices, `k_stride` bytes apart along K and
// `row_stride` along the other axis; `offset` bytes further for another part of the same buffer.
struct Operand {
  uint32_t low, high;
  __device__ __forceinline__ Operand(uint32_t address, uint32_t k_stride, uint32_t row_stride) : low(address >> 4 | k_stride >> 4 << 16), high(row_stride >> 4) {}
  __device__ __forceinline__ uint64_t at(uint32_t offset) const { return static_cast<uint64_t>(high) << 32 | (low + (offset >> 4)); }
};
// d[64x48] (+)= a[64x16] b[16x48]: a in registers, b described; without `kAdd` d is overwritten.
template <bool kAdd>
__device__ __forceinline__ void product_64x48x16(float (&d)[24], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %29, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, "
      "{%24, %25, %26, %27}, %28, add, 1, 1, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "n"(static_cast<int>(kAdd)));
}

// A warpgroup's registers per thread, of those the kernel was compiled with.
template <int kRegisters>
__device__ __forceinline__ void keep_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters)); }
template <int kRegisters>
__device__ __forceinline__ void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters)); }

// Four 8x8 matrices of 16-bit values, each stored transposed: row r of the memory of matrix i is at lane 8 i + r's address.
__device__ __forceinline__ void store_transposed(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

}  // namespace sm90
