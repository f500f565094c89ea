// How fast bytes move: HBM, L2 and shared memory of the GPU at hand.
//
//   read_chunks   block b reads vectors [b * stride, b * stride + chunk) `passes` times
//                   stride = chunk, one pass over a large array   -> HBM read bandwidth
//                   stride = chunk, many passes over a small one  -> L2, every block its own share
//                   stride = 0, many passes                       -> L2, all blocks the same bytes, in step
//   write_chunks  the same addresses written                      -> HBM write bandwidth
//   copy_chunks   read from one array, written to another         -> HBM copy bandwidth
//   read_shared   conflict-free 16-byte loads of shared memory    -> bytes a clock and SM
//   spin, nothing a kernel that waits, one that does nothing      -> time between launches
//
// A vector is 16 bytes. Eight loads of a thread are in flight before the first is used: HBM needs the depth.
// Loads skip L1 (`.cg`), or the second pass over a small chunk would not reach L2. Built for sm_80 and later.
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int DEPTH = 8;

struct Vector {
    u32 x, y, z, w;
};

__device__ __forceinline__ Vector load(const Vector* at) {
    Vector v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
    return v;
}

__device__ __forceinline__ void store(Vector* at, const Vector& v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w));
}

extern "C" __global__ void __launch_bounds__(1024) read_chunks(const Vector* data, u64 chunk, u64 stride, int passes, u32* sink) {
    const Vector* own = data + blockIdx.x * stride;
    u32 sum = 0;
    for (int pass = 0; pass < passes; ++pass) {
        u64 i = threadIdx.x;
        for (; i + (DEPTH - 1) * blockDim.x < chunk; i += DEPTH * blockDim.x) {
            Vector v[DEPTH];
#pragma unroll
            for (int k = 0; k < DEPTH; ++k) v[k] = load(own + i + k * blockDim.x);
#pragma unroll
            for (int k = 0; k < DEPTH; ++k) sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
        }
        for (; i < chunk; i += blockDim.x) sum += load(own + i).x;
    }
    if (sum == 0x12345678) *sink = sum;  // practically never: keeps the loads alive
}

extern "C" __global__ void __launch_bounds__(1024) write_chunks(Vector* data, u64 chunk, u64 stride, u32 value) {
    Vector* own = data + blockIdx.x * stride;
    for (u64 i = threadIdx.x; i < chunk; i += blockDim.x) {
        u32 mixed = (u32)i * 2654435761u + value;
        store(own + i, {mixed, ~mixed, mixed ^ value, mixed + 1});
    }
}

extern "C" __global__ void __launch_bounds__(1024) copy_chunks(const Vector* from, Vector* to, u64 chunk, u64 stride) {
    const Vector* source = from + blockIdx.x * stride;
    Vector* target = to + blockIdx.x * stride;
    u64 i = threadIdx.x;
    for (; i + (DEPTH - 1) * blockDim.x < chunk; i += DEPTH * blockDim.x) {
        Vector v[DEPTH];
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) v[k] = load(source + i + k * blockDim.x);
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) store(target + i + k * blockDim.x, v[k]);
    }
    for (; i < chunk; i += blockDim.x) store(target + i, load(source + i));
}

// Every warp reads 512 bytes an instruction, four wavefronts of 128 bytes without a conflict.
extern "C" __global__ void __launch_bounds__(1024) read_shared(int steps, u64* cycles, u32* sink) {
    extern __shared__ Vector words[];
    words[threadIdx.x] = {threadIdx.x, 1, 2, 3};
    u32 at = (u32)__cvta_generic_to_shared(words + threadIdx.x), sum = 0;
    __syncthreads();
    u64 start = clock64();
    for (int step = 0; step < steps; ++step) {
        Vector v[DEPTH];
#pragma unroll
        for (int k = 0; k < DEPTH; ++k)
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v[k].x), "=r"(v[k].y), "=r"(v[k].z), "=r"(v[k].w) : "r"(at));
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) sum += v[k].x;
    }
    __syncthreads();
    if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
    if (sum == 0x12345678) *sink = sum;
}

extern "C" __global__ void spin(u64 clocks) {
    u64 start = clock64();
    while (clock64() - start < clocks) {}
}

extern "C" __global__ void nothing() {}
