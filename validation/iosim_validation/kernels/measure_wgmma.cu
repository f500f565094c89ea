// The tensor cores as a warpgroup sees them (wgmma, sm_90a): both operands read from shared memory.
//
// Two warpgroups an SM, each 64 rows; a step is four m64n256k16 of K = 64 columns, 2 097 152 FLOP. The operands lie in
// the 128-byte swizzle (rows of 128 bytes, 8 rows a group of 1024 bytes), filled with spread values. WGMMA(d, a, b) is
// generated: 128 accumulators make a line that nobody should write by hand.

constexpr int ROWS = 64, COLUMNS = 256, ROW_BYTES = 128, GROUPS = 2;
constexpr int A_BYTES = ROWS * ROW_BYTES, B_BYTES = COLUMNS * ROW_BYTES;

__device__ __forceinline__ u32 mixed(u32 x) {
    x *= 2654435761u;
    return x ^ x >> 15;
}

// Start / 16, no leading offset under a swizzle, 1024 bytes from one group of 8 rows to the next, swizzle 128 B.
__device__ __forceinline__ u64 operand(u32 address) {
    return (u64)((address & 0x3FFFF) >> 4) | 1ull << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}

extern "C" __global__ void __launch_bounds__(128 * GROUPS, 1) wgmma_rate(int steps, u64* cycles, float* sink) {
    extern __shared__ __align__(1024) u32 words[];
    for (u32 i = threadIdx.x; i < (GROUPS * A_BYTES + B_BYTES) / 4; i += blockDim.x)
        words[i] = (mixed(i) & NOISE_BITS) | ONE_BITS;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    u32 base = (u32)__cvta_generic_to_shared(words);
    u64 a = operand(base + threadIdx.x / 128 * A_BYTES), b = operand(base + GROUPS * A_BYTES);
    float d[128];
#pragma unroll
    for (int i = 0; i < 128; ++i) d[i] = 0;
    __syncthreads();
    u64 start = clock64();
    for (int step = 0; step < steps; ++step) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < 4; ++k) WGMMA(d, a + 2 * k, b + 2 * k);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 128; ++i) sum += d[i];
    if (sum == 1.2345f) *sink = sum;
}
