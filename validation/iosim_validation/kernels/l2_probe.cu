// What the L2 keeps: one launch a row of a plan, one block an SM, every phase behind a grid-wide barrier.
//
//   l2_probe PLAN SIDES    PLAN: lines of "footprint base piece passes written written_base second reader writer",
//                          sizes and addresses in bytes
//                          SIDES: the partition of each SM, separated by blanks
//
// A pass is a read phase and a write phase. Readers go through the buffer in steps of 4 KiB (256 threads of 16 bytes):
//   reader -1  every SM the whole buffer, in step      reader 0, 1  the SMs of one side, likewise
//   reader -2  every SM its own share of the steps     reader 1000 + s  SM 0 in the first pass, SM s afterwards
// Writers share the steps of `written` bytes: -1 all SMs, 0 or 1 those of one side. The bytes are fresh in every pass
// if `second` is 0, the same if 1; if 2 they are fresh but read, not written. With `piece` > 0 the buffer is cut into
// pieces of that size, a power of two, which lie scattered over the first 4 GiB (`place`; `base` draws where).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

constexpr int THREADS = 256;
constexpr uint64_t STEP = THREADS * sizeof(uint4);
constexpr uint64_t MEMORY = 6ull << 30;

#define CHECK(call)                                                                       \
    do {                                                                                  \
        cudaError_t status = (call);                                                      \
        if (status != cudaSuccess) {                                                      \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, cudaGetErrorString(status));  \
            std::exit(1);                                                                 \
        }                                                                                 \
    } while (0)

struct Row {
    uint64_t footprint, base, piece;
    int passes;
    uint64_t written, written_base;
    int second, reader, writer;
};

__device__ void barrier(unsigned* arrived, unsigned& phase) {
    __syncthreads();
    phase += gridDim.x;
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (*reinterpret_cast<volatile unsigned*>(arrived) < phase) {}
    }
    __syncthreads();
}

// Where step `step` of the buffer lies: pieces are numbered through a bijection on their count in 4 GiB.
__device__ uint64_t place(const Row& row, uint64_t step) {
    uint64_t at = step * STEP;
    if (!row.piece) return row.base + at;
    uint64_t mask = (4ull << 30) / row.piece - 1, x = at / row.piece;
    int shift = (64 - __clzll(mask)) / 2;
    for (int round = 0; round < 3; ++round) {
        x = (x * 2654435761ull + row.base) & mask;
        x ^= x >> shift;
    }
    return x * row.piece + at % row.piece;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    l2_probe(char* memory, Row row, const int* sides, unsigned* arrived, uint4* sink) {
    unsigned sm, phase = 0;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    int rank = 0, writers = 0;  // among the SMs that write
    for (unsigned s = 0; s < gridDim.x; ++s) {
        bool chosen = row.writer < 0 || sides[s] == row.writer;
        rank += chosen && s < sm;
        writers += chosen;
    }
    bool writes = row.writer < 0 || sides[sm] == row.writer;
    uint4 sum = {0, 0, 0, 0};
    for (int pass = 0; pass < row.passes; ++pass) {
        bool reads = row.reader < 0 || (row.reader < 1000 ? sides[sm] == row.reader
                                                          : int(sm) == (pass ? row.reader - 1000 : 0));
        uint64_t first = row.reader == -2 ? sm : 0, apart = row.reader == -2 ? gridDim.x : 1;
        if (reads) {
#pragma unroll 4
            for (uint64_t step = first; step < row.footprint / STEP; step += apart) {
                uint4 v = __ldcg(reinterpret_cast<uint4*>(memory + place(row, step)) + threadIdx.x);
                sum.x ^= v.x, sum.y ^= v.y, sum.z ^= v.z, sum.w ^= v.w;
            }
        }
        barrier(arrived, phase);
        if (row.written) {
            char* start = memory + row.written_base + (row.second == 1 ? 0 : pass * row.written);
            for (uint64_t step = rank; writes && step < row.written / STEP; step += writers) {
                if (row.second == 2) {
                    uint4 v = __ldcg(reinterpret_cast<uint4*>(start + step * STEP) + threadIdx.x);
                    sum.x ^= v.x, sum.y ^= v.y, sum.z ^= v.z, sum.w ^= v.w;
                    continue;
                }
                uint32_t x = uint32_t(step * 2654435761u) ^ (threadIdx.x * 40503u + pass);
                reinterpret_cast<uint4*>(start + step * STEP)[threadIdx.x] = make_uint4(x, x * 3, x * 5, x * 7);
            }
            barrier(arrived, phase);
        }
    }
    if (sum.x == 1 && sum.y == 2 && sum.z == 3) *sink = sum;  // never; keeps the loads
}

__global__ void fill(uint32_t* memory, uint64_t words) {
    uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x;
    for (; i < words; i += uint64_t(gridDim.x) * blockDim.x) memory[i] = uint32_t(i * 2654435761ull ^ (i >> 13));
}

int main(int count, char** arguments) {
    if (count != 3) return std::fprintf(stderr, "usage: l2_probe PLAN SIDES\n"), 2;
    std::vector<Row> plan;
    std::ifstream lines(arguments[1]);
    for (Row r; lines >> r.footprint >> r.base >> r.piece >> r.passes >> r.written >> r.written_base >> r.second >>
                r.reader >> r.writer;)
        plan.push_back(r);
    std::vector<int> sides;
    std::ifstream map(arguments[2]);
    for (int side; map >> side;) sides.push_back(side);
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    if (int(sides.size()) != device.multiProcessorCount) return std::fprintf(stderr, "one side an SM\n"), 2;
    char* memory;
    int* device_sides;
    unsigned* arrived;
    uint4* sink;
    CHECK(cudaMalloc(&memory, MEMORY));
    CHECK(cudaMalloc(&device_sides, sides.size() * sizeof(int)));
    CHECK(cudaMalloc(&arrived, plan.size() * 128));
    CHECK(cudaMalloc(&sink, sizeof(uint4)));
    CHECK(cudaMemset(arrived, 0, plan.size() * 128));
    CHECK(cudaMemcpy(device_sides, sides.data(), sides.size() * sizeof(int), cudaMemcpyHostToDevice));
    fill<<<1024, 256>>>(reinterpret_cast<uint32_t*>(memory), MEMORY / 4);
    int shared = device.sharedMemPerBlockOptin - 1024;  // more than half of an SM: one block each
    CHECK(cudaFuncSetAttribute(l2_probe, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    for (size_t i = 0; i < plan.size(); ++i) {
        l2_probe<<<device.multiProcessorCount, THREADS, shared>>>(memory, plan[i], device_sides, arrived + i * 32, sink);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
    }
    std::printf("%zu launches\n", plan.size());
}
