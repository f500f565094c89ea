// Small device functions that the kernels for sm_80 and later share: types, asynchronous copies, ldmatrix, mma.sync,
// exponentials and packing. Joined as text in front of a kernel; nothing is included, so no include path is needed.
// BF16 is 1 for bf16 and 0 for fp16: both are 16 bits in memory and differ in two instruction names only.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE __device__ __forceinline__
#if BF16
#define TYPE16 "bf16"
#else
#define TYPE16 "f16"
#endif
#define NEG_INF __int_as_float(0xff800000)
#define LOWEST -1e30f  // start of a running maximum: finite, so that exp2(-inf - LOWEST) is 0 and never NaN
#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

DEVICE int ceil_div(int a, int b) { return (a + b - 1) / b; }

// ---- shared memory -------------------------------------------------------------------------------------------------
// 32-bit address in the shared window, as the instructions below want it.
DEVICE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// Byte offset of the 16-byte chunk `chunk` of row `row` in a tile whose rows are ROW_BYTES long (a multiple of 64).
// The chunk number is XOR-ed with the row number, so that the eight rows that one ldmatrix phase reads, all at one
// column, lie in eight different groups of four banks. Where a row ends in the middle of the 32 banks (64 and 192
// bytes) neighbouring rows are apart already, and half the row number is enough.
template <int ROW_BYTES> DEVICE u32 swizzled(int row, int chunk) {
    const int key = ROW_BYTES % 128 == 64 ? (row >> 1) & 3 : row & 7;
    return row * ROW_BYTES + (chunk ^ key) * 16;
}

DEVICE void store_shared_4(u32 shared, u32 word) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared), "r"(word) : "memory");
}
DEVICE uint4 load_shared_16(u32 shared) {
    uint4 r;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(shared) : "memory");
    return r;
}

// ---- copies that do not pass through registers ---------------------------------------------------------------------
// 16 bytes from global to shared memory; zeros instead where `valid` is false (the source is then not touched).
DEVICE void copy_async_16(u32 shared, const void *global, bool valid) {
    const u32 bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}
DEVICE void copy_async_16(u32 shared, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most PENDING of this thread's newest groups are still on their way.
template <int PENDING> DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

// ---- tensor cores --------------------------------------------------------------------------------------------------
// Four 8x8 matrices of 16-bit values; lane t gives the address of row t % 8 of matrix t / 8, and receives from each
// matrix the two neighbours (row t / 4, columns 2 (t % 4) and + 1). Transposed: (rows 2 (t % 4) and + 1, column t / 4).
DEVICE void load_matrix_x4(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
DEVICE void load_matrix_x4_transposed(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

// C [16 x 8] += A [16 x 16] B [16 x 8]. Lane t holds, with g = t / 4 and c = 2 (t % 4):
//   C: (g, c), (g, c + 1), (g + 8, c), (g + 8, c + 1)         in fp32
//   A: pairs at (g, c), (g + 8, c), (g, c + 8), (g + 8, c + 8)    B: pairs down its column g at rows c and c + 8
DEVICE void mma_16x8x16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE16 "." TYPE16 ".f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- numbers -------------------------------------------------------------------------------------------------------
DEVICE float exp2_fast(float x) {  // one special-function result
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float log2_fast(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Two fp32 -> one word of two 16-bit values, `low` in the lower half.
DEVICE u32 pack2(float low, float high) {
    u32 r;
    asm("cvt.rn." TYPE16 "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
// One half of such a word -> fp32.
DEVICE float to_float(u16 bits) {
#if BF16
    return __uint_as_float((u32)bits << 16);
#else
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
    return y;
#endif
}
DEVICE float low_half(u32 word) { return to_float((u16)(word & 0xffff)); }
DEVICE float high_half(u32 word) { return to_float((u16)(word >> 16)); }

// Over the four lanes that share a row of an accumulator.
DEVICE float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
DEVICE float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// ---- 16 bytes at a time, past the L1 (what is read or written here is not read again by this SM) ------------------
DEVICE uint4 load_16(const void *global) {
    uint4 r;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(global));
    return r;
}
DEVICE void store_16(void *global, uint4 r) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(global), "r"(r.x), "r"(r.y), "r"(r.z), "r"(r.w)
                 : "memory");
}
