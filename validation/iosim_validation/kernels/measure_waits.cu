// What a block waits for, rather than how fast bytes move: latencies, a hand-over between warps, stores as they lie in
// accumulators, and how long a place on an SM stays empty between two blocks.
//
//   chase        one thread follows `hops` loads, each a line of its own, the address of one from the answer of the one
//                before; first the block reads `sweep` vectors elsewhere, which pushes these lines out of the L2, or none
//   exchange     every warp stores a word to shared memory, waits at a barrier and loads another warp's, twice a step
//   store_pairs  a warp stores 8 rows of 32 bytes an instruction, 8 bytes a lane, as mma.sync leaves its results
//   turn         blocks of 256 threads that do next to nothing
//
// Clocks are an SM's own. Built for sm_80 and later.
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 WORDS_A_LINE = 32;

__device__ __forceinline__ u32 load_word(const u32* at) {
    u32 x;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(x) : "l"(at) : "memory");
    return x;
}

// `zero` is 0: the compiler does not know it, so the next address waits for the answer. Three instructions stand between
// an answer and the next load.
extern "C" __global__ void __launch_bounds__(1024)
chase(const u32* data, int hops, u64 sweep, u32 zero, u64* cycles, u32* sink) {
    const u32* far = data + (u64)hops * WORDS_A_LINE * 4;
    u32 sum = 0;
    for (u64 i = threadIdx.x; i < sweep; i += blockDim.x) sum += load_word(far + 4 * i);
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 at = 0;
        const u64 start = clock64();
#pragma unroll 1
        for (int i = 0; i < hops; ++i) {
            const u32 answer = load_word(data + at);
            at = answer * zero + (at + WORDS_A_LINE);
        }
        cycles[blockIdx.x] = clock64() - start;
        if (at == 0) *sink = sum;
    }
    if (sum == 0x12345678) *sink = sum;
}

extern "C" __global__ void __launch_bounds__(128) exchange(int steps, u64* cycles, u32* sink) {
    __shared__ u32 words[2][128];  // two places in turn: one barrier a hand-over is enough
    const u32 mine = (u32)__cvta_generic_to_shared(&words[0][threadIdx.x]);
    const u32 other = (u32)__cvta_generic_to_shared(&words[0][threadIdx.x ^ 32]);
    u32 x = threadIdx.x;
    __syncthreads();
    const u64 start = clock64();
#pragma unroll 1
    for (int step = 0; step < steps; ++step)
#pragma unroll
        for (int place = 0; place < 2; ++place) {
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(mine + place * 512), "r"(x + 1) : "memory");
            __syncthreads();
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(other + place * 512) : "memory");
            x += 3;
        }
    if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
    if (x == 0x12345678) *sink = x;
}

// `tiles` of 128 rows of 64 floats a block, eight warps with 16 rows each, over and over `passes` times.
extern "C" __global__ void __launch_bounds__(256) store_pairs(float* data, int tiles, int passes, u64* cycles) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float* mine = data + (u64)blockIdx.x * tiles * 128 * 64 + (16 * warp + lane / 4) * 64 + lane % 4 * 2;
    __syncthreads();
    const u64 start = clock64();
    for (int pass = 0; pass < passes; ++pass)
        for (int tile = 0; tile < tiles; ++tile)
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int column = 0; column < 64; column += 8)
                    asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(mine + (tile * 128 + 8 * half) * 64 + column),
                                 "f"((float)pass), "f"(1.f) : "memory");
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
}

extern "C" __global__ void __launch_bounds__(256) turn(u32* sink) {
    extern __shared__ u32 words[];
    words[threadIdx.x] = threadIdx.x;
    __syncthreads();
    const u32 x = words[threadIdx.x ^ 33];
    __syncthreads();
    if (x == 0x12345678) *sink = x;
}
