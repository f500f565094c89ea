// Standard attention, last of three kernels: O = P V.
//
//                   V_j [64 x COLUMNS]       one thread block of 256 threads a tile of O: 128 rows x COLUMNS
//                 +------------+             it walks all keys, 64 at a time: P_ij and V_j through a ring of
//   P_ij          |  O_i       |             STAGES slots in shared memory, filled by cp.async while the slot
//   [128 x 64]    |            |             before is multiplied (mma.sync, fp32 sums in registers)
//                 +------------+
//
// P [batch, heads, n_q, p_stride], V [batch, kv_heads, n_k, D] -> O [batch, heads, n_q, D], all 16 bits.
// P is zero from n_k to p_stride (n_k rounded up to 16). COLUMNS = min(D, 128): D = 256 is two tiles, and reads P twice.
// Tiles of hidden scores are read and multiplied like all others, as in the tile program `standard`.
//
// Bytes between L2 and the SMs, a head:  read   ceil(D / 128) * n_q * n_k * 2   (P; with n_k rounded up to 16)
//                                             + ceil(n_q / 128) * n_k * 2D      (V once for every row of tiles)
//                                        write  n_q * 2D
// Built for sm_80 and later; D = 32, 64, 96, 128, 256; fp16, bf16.
// Shared memory: STAGES * (16 KiB + 128 * COLUMNS bytes), at least 256 * COLUMNS.

constexpr int ROWS = 128, KEYS = 64, THREADS = 256, COLUMNS = D < 128 ? D : 128;
// Warps side by side: four of 32 columns, two of 32, or one across all of COLUMNS.
constexpr int ACROSS = COLUMNS == 128 ? 4 : COLUMNS == 64 ? 2 : 1;
constexpr int WARP_COLUMNS = COLUMNS / ACROSS, WARP_ROWS = ROWS / (THREADS / 32 / ACROSS);
constexpr int P_BYTES = ROWS * KEYS * 2, V_BYTES = KEYS * COLUMNS * 2, STAGE_BYTES = P_BYTES + V_BYTES;

extern "C" __global__ void __launch_bounds__(THREADS, 2)
pv_gemm(const u16 *p, const u16 *v, u16 *o, int n_q, int n_k, int p_stride, int heads, int kv_heads) {
    extern __shared__ __align__(128) char shared[];
    const u32 ring = shared_address(shared);
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    constexpr int COLUMN_TILES = D / COLUMNS;
    const int row_tiles = ceil_div(n_q, ROWS), steps = ceil_div(n_k, KEYS);
    const int column = blockIdx.x % COLUMN_TILES * COLUMNS, left = blockIdx.x / COLUMN_TILES;
    const int i = left % row_tiles, head = left / row_tiles;
    const i64 kv_head = head / heads * kv_heads + head % heads / (heads / kv_heads);
    const i64 row = (i64)i * ROWS;
    const u16 *p_rows = p + ((i64)head * n_q + row) * p_stride, *v_rows = v + kv_head * n_k * D + column;

    auto fetch = [&](int j) {  // starts the copies of step j; one group, also where there is nothing left to copy
        if (j < steps) {
            const u32 slot = ring + j % STAGES * STAGE_BYTES;
            const i64 key = (i64)j * KEYS;
            copy_tile<ROWS, KEYS, THREADS>(slot, p_rows + key, p_stride, n_q - row, p_stride - key, thread);
            copy_tile<KEYS, COLUMNS, THREADS>(slot + P_BYTES, v_rows + key * D, D, n_k - key, COLUMNS, thread);
        }
        copy_commit();
    };
    for (int j = 0; j < STAGES - 1; ++j) fetch(j);

    constexpr int TALL = WARP_ROWS / 16, WIDE = WARP_COLUMNS / 8;
    const int warp_row = warp / ACROSS * WARP_ROWS, warp_column = warp % ACROSS * WARP_COLUMNS;
    float sums[TALL][WIDE][4] = {};
#pragma unroll 1
    for (int j = 0; j < steps; ++j) {
        copy_wait<STAGES - 2>();
        __syncthreads();  // step j has landed for all, and everyone is done with the slot that is filled next
        fetch(j + STAGES - 1);
        const u32 p_tile = ring + j % STAGES * STAGE_BYTES, v_tile = p_tile + P_BYTES;
#pragma unroll 1
        for (int step = 0; step < KEYS / 16; ++step) {
            u32 a[TALL][4];
#pragma unroll
            for (int y = 0; y < TALL; ++y) load_rows<KEYS>(a[y], p_tile, warp_row + 16 * y, step, lane);
#pragma unroll
            for (int x = 0; x < WIDE / 2; ++x) {
                u32 b[4];
                load_values<COLUMNS>(b, v_tile, warp_column + 16 * x, step, lane);
#pragma unroll
                for (int y = 0; y < TALL; ++y) {
                    mma_16x8x16(sums[y][2 * x], a[y], b[0], b[1]);
                    mma_16x8x16(sums[y][2 * x + 1], a[y], b[2], b[3]);
                }
            }
        }
    }
    copy_wait<0>();
    __syncthreads();
    stage_tile<COLUMNS>(shared, sums, warp_row, warp_column, 1.f, lane);
    __syncthreads();
    u16 *target = o + ((i64)head * n_q + row) * D + column;
    store_tile<ROWS, COLUMNS, THREADS>(shared, target, D, n_q - row, COLUMNS, thread);
}
