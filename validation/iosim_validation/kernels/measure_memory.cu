// How fast bytes move: HBM, L2 and shared memory of the GPU at hand.
//
//   read_tiles    a block reads `count` vectors, `passes` times, tile by tile (a tile: DEPTH vectors a thread);
//                 its first tile lies at block * first, each next one `next` vectors on
//                   tiles dealt in turn, one pass over a large array   -> HBM read bandwidth
//                   tiles in one piece a block, many passes            -> L2, every block its own share
//                   first = 0, many passes                             -> L2, all blocks the same bytes, in step
//   write_tiles   the same addresses written                           -> HBM write bandwidth
//   copy_tiles    read from one array, written to another              -> HBM copy bandwidth
//   read_shared   conflict-free 16-byte loads of shared memory    -> bytes a clock and SM
//   spin, nothing a kernel that waits, one that does nothing      -> time between launches
//
// A vector is 16 bytes. DEPTH loads of a thread are in flight before the first is used: HBM needs that.
// Loads skip L1 (`.cg`), or the second pass over a small chunk would not reach L2. Built for sm_80 and later.
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int DEPTH = 4;

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

extern "C" __global__ void __launch_bounds__(1024)
read_tiles(const Vector* data, u64 count, u64 first, u64 next, int passes, u32* sink) {
    const u64 tile = DEPTH * blockDim.x;
    u32 sum = 0;
    for (int pass = 0; pass < passes; ++pass) {
        const Vector* at = data + blockIdx.x * first + threadIdx.x;
        u64 done = 0;
        for (; done + tile <= count; done += tile, at += next) {
            Vector v[DEPTH];
#pragma unroll
            for (int k = 0; k < DEPTH; ++k) v[k] = load(at + k * blockDim.x);
#pragma unroll
            for (int k = 0; k < DEPTH; ++k) sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
        }
        for (u64 i = threadIdx.x; i < count - done; i += blockDim.x, at += blockDim.x) sum += load(at).x;
    }
    if (sum == 0x12345678) *sink = sum;  // practically never: keeps the loads alive
}

extern "C" __global__ void __launch_bounds__(1024) write_tiles(Vector* data, u64 count, u64 first, u64 next, u32 value) {
    const u64 tile = DEPTH * blockDim.x;
    Vector* at = data + blockIdx.x * first + threadIdx.x;
    for (u64 done = 0; done + tile <= count; done += tile, at += next)
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            u32 mixed = (u32)done * 2654435761u + value + threadIdx.x + k;
            store(at + k * blockDim.x, {mixed, ~mixed, mixed ^ value, mixed + 1});
        }
}

extern "C" __global__ void __launch_bounds__(1024)
copy_tiles(const Vector* from, Vector* to, u64 count, u64 first, u64 next) {
    const u64 tile = DEPTH * blockDim.x;
    u64 at = blockIdx.x * first + threadIdx.x;
    for (u64 done = 0; done + tile <= count; done += tile, at += next) {
        Vector v[DEPTH];
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) v[k] = load(from + at + k * blockDim.x);
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) store(to + at + k * blockDim.x, v[k]);
    }
}

// Every warp reads 512 bytes an instruction, four wavefronts of 128 bytes without a conflict. The loads are volatile:
// the assembler would drop one that it has seen.
extern "C" __global__ void __launch_bounds__(1024) read_shared(int steps, u64* cycles, u32* sink) {
    extern __shared__ Vector words[];
    words[threadIdx.x] = {threadIdx.x, 1, 2, 3};
    u32 at = (u32)__cvta_generic_to_shared(words + threadIdx.x), sum = 0;
    __syncthreads();
    u64 start = clock64();
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        Vector v[DEPTH];
#pragma unroll
        for (int k = 0; k < DEPTH; ++k)
            asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v[k].x), "=r"(v[k].y), "=r"(v[k].z), "=r"(v[k].w) : "r"(at));
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
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
