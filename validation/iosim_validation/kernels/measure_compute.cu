// How fast an SM computes: FP32, special functions, and the tensor cores as a warp sees them (mma.sync).
//
// Every kernel is one block an SM of 1024 threads; each thread keeps CHAINS independent results going, so that the
// latency of an operation hides behind the others. `cycles` gets the clocks of each block: with them a rate a clock
// does not depend on the clock of the day. Operands are spread over many values, since a matmul of equal numbers
// draws less power and runs at a higher clock. Built for sm_80 and later; T16 is f16 or bf16.
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int CHAINS = 8;

__device__ __forceinline__ u32 mixed(u32 x) {
    x *= 2654435761u;
    return x ^ x >> 15;
}

// Two 16-bit numbers with magnitudes around one: sign and low bits from a hash, the exponent near its bias.
__device__ __forceinline__ u32 pair(u32 seed) {
    return (mixed(seed) & NOISE_BITS) | ONE_BITS;
}

extern "C" __global__ void __launch_bounds__(1024) fma_rate(int steps, u64* cycles, float* sink) {
    float x[CHAINS], a = 1.f - 1e-7f * threadIdx.x, b = 1e-7f * threadIdx.x;
#pragma unroll
    for (int k = 0; k < CHAINS; ++k) x[k] = k + threadIdx.x;
    __syncthreads();
    u64 start = clock64();
#pragma unroll 8
    for (int step = 0; step < steps; ++step)
#pragma unroll
        for (int k = 0; k < CHAINS; ++k) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x[k]) : "f"(a), "f"(b));
    __syncthreads();
    if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < CHAINS; ++k) sum += x[k];
    if (sum == 1.2345f) *sink = sum;
}

extern "C" __global__ void __launch_bounds__(1024) exp_rate(int steps, u64* cycles, float* sink) {
    float x[CHAINS];
#pragma unroll
    for (int k = 0; k < CHAINS; ++k) x[k] = 1e-3f * (k + threadIdx.x);
    __syncthreads();
    u64 start = clock64();
#pragma unroll 8
    for (int step = 0; step < steps; ++step)
#pragma unroll
        for (int k = 0; k < CHAINS; ++k) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[k]));
    __syncthreads();
    if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < CHAINS; ++k) sum += x[k];
    if (sum == 1.2345f) *sink = sum;
}

// m16n8k16 with fp32 accumulators: 4096 FLOP an instruction of a warp.
extern "C" __global__ void __launch_bounds__(1024) mma_rate(int steps, u64* cycles, float* sink) {
    float c[CHAINS][4];
    u32 a[4], b[CHAINS][2];
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = pair(threadIdx.x * 4 + i);
#pragma unroll
    for (int k = 0; k < CHAINS; ++k) {
        b[k][0] = pair(5000 + threadIdx.x + 64 * k);
        b[k][1] = pair(9000 + threadIdx.x + 64 * k);
#pragma unroll
        for (int i = 0; i < 4; ++i) c[k][i] = 0;
    }
    __syncthreads();
    u64 start = clock64();
    for (int step = 0; step < steps; ++step)
#pragma unroll
        for (int k = 0; k < CHAINS; ++k)
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." T16 "." T16
                         ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                         : "+f"(c[k][0]), "+f"(c[k][1]), "+f"(c[k][2]), "+f"(c[k][3])
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[k][0]), "r"(b[k][1]));
    __syncthreads();
    if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < CHAINS; ++k) sum += c[k][0] + c[k][1] + c[k][2] + c[k][3];
    if (sum == 1.2345f) *sink = sum;
}
