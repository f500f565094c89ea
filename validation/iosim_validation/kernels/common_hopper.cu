// Hopper's own instructions (sm_90a), one small function each: barriers in shared memory, the tensor copy engine, the
// warpgroup's matrix instruction. Comes after common_mma.cu, which has the types. The products themselves are
// generated text in front (`wgmma.py`): 64 accumulators make a line that nobody should write by hand.

constexpr int WARPGROUP = 128;            // threads that issue one wgmma together: 4 warps, 16 rows each
constexpr int SWIZZLE_ROW_BYTES = 128;    // a row of a swizzled tile: 64 columns of 2 bytes
constexpr int SWIZZLE_GROUP_BYTES = 1024; // 8 such rows, after which the swizzle starts anew
constexpr int BOX_COLUMNS = 64;           // widest box that one 128-byte-swizzled copy can bring

struct __align__(128) TensorMap { u64 words[16]; };  // 128 opaque bytes, made by the driver on the host

// ---- barriers in shared memory (mbarrier) --------------------------------------------------------------------------
// A phase ends when all arrivals of the phase have come and all announced bytes have landed; the barrier then starts
// the next phase by itself. One waits for the end of "the phase of this parity": a fresh barrier is in phase 0, and a
// wait for parity 1 returns at once, as if a phase before the first had ended.
DEVICE void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
// Makes the fresh barriers visible to the copy engine too.
DEVICE void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and announces bytes that the copy engine will count down. Wrong bytes here are a hang.
DEVICE void barrier_arrive_expecting(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;"
                 ::"r"(barrier), "r"(bytes) : "memory");
}
DEVICE void barrier_wait(u32 barrier, u32 parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "AGAIN_%=:\n"
                 "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra AGAIN_%=;\n"
                 "}" ::"r"(barrier), "r"(parity) : "memory");
}

// ---- named barriers of the block (16 of them, 0 is __syncthreads) --------------------------------------------------
// `threads` counts those that wait and those that only announce. The id must be a literal: for a computed one the
// compiler reserves all 16.
template <int ID, int THREADS> DEVICE void named_wait() {
    asm volatile("bar.sync %0, %1;" ::"n"(ID), "n"(THREADS) : "memory");
}
template <int ID, int THREADS> DEVICE void named_announce() {
    asm volatile("bar.arrive %0, %1;" ::"n"(ID), "n"(THREADS) : "memory");
}

// ---- the copy engine (TMA) -----------------------------------------------------------------------------------------
// A box of a [batch, heads, rows, columns] tensor to shared memory, swizzled as the map says; the bytes are counted at
// `barrier`. Rows past the end of one head arrive as zeros, never as the next head's, and count like the others.
DEVICE void copy_box(u32 to, const TensorMap *map, u32 barrier, int column, int row, int head, int batch) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];"
                 ::"r"(to), "l"((u64)map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch) : "memory");
}

// ---- the matrix instruction (wgmma) --------------------------------------------------------------------------------
// An operand in shared memory is named by 64 bits: start / 16 | leading offset / 16 << 16 | stride offset / 16 << 32 |
// swizzle << 62 (1: 128 bytes). The stride goes from one group of 8 rows to the next. The leading offset goes to the
// next 64 columns of a transposed operand and is not read otherwise. Bytes / 16 may be added to a finished descriptor,
// so a product's 8 operands are one base and 8 constants: 1 to 2 instructions each instead of 5.
DEVICE u64 operand(u32 address, u32 leading_bytes) {
    return (u64)((address & 0x3FFFF) >> 4) | (u64)(leading_bytes >> 4) << 16 |
           (u64)(SWIZZLE_GROUP_BYTES >> 4) << 32 | 1ull << 62;
}
DEVICE constexpr int operand_step(int bytes) { return bytes / 16; }

// Before a group of products whose registers ordinary code has touched.
DEVICE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most PENDING of the newest groups are still at work. Only then may their accumulators be read.
template <int PENDING> DEVICE void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// The compiler does not know that a product writes its registers later than it is issued. This tells it that they are
// new at this point, so that no use of them can move up past the wait.
template <int N> DEVICE void changed(float (&registers)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

// ---- registers -----------------------------------------------------------------------------------------------------
// All threads of a block get the same number at launch. A warpgroup that needs few gives them back, and others take them.
template <int REGISTERS> DEVICE void registers_give_back() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> DEVICE void registers_take() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
// Read again where it is needed: the special register costs an instruction, a kept copy costs a register throughout.
DEVICE u32 thread_in_block() {
    u32 thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}
// Hides where a value comes from, so that what follows from it is computed again rather than kept in registers.
template <class T> DEVICE void forget_origin(T &value) { asm volatile("" : "+r"(value)); }
