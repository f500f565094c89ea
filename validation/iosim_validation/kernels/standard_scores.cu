// Standard attention, first of three kernels: S = scale * Q K^T, whole, into memory.
//
//                K_j [128 x D]            one thread block of 256 threads a tile of S: (i, j), j fastest
//              +---------------+          Q_i and K_j come on chip whole, in swizzled shared memory
//   Q_i        |  S_ij         |          each of 8 warps computes 64 x 32 scores in registers (mma.sync, fp32 sums)
//   [128 x D]  |  [128 x 128]  |          scaled in fp32, rounded to 16 bits, out through shared memory in whole rows
//              +---------------+
//
// Q [batch, heads, n_q, D], K [batch, kv_heads, n_k, D] -> S [batch, heads, n_q, s_stride], all 16 bits.
// s_stride is n_k rounded up to 16, so that rows begin on a sector of 32 bytes: a copy of 16 bytes never takes halves of
// two. The values past n_k are zero.
// A mask is left to the softmax: nothing is skipped here, as in the tile program `standard` with gemm-tiles=128x128.
//
// Bytes between L2 and the SMs, a head:  read   ceil(n_k / 128) * n_q * 2D   (Q once for every column of tiles)
//                                             + ceil(n_q / 128) * n_k * 2D   (K once for every row of tiles)
//                                        write  n_q * n_k * 2                (S; with n_k rounded up to 16)
// Built for sm_80 and later; D = 32, 64, 96, 128, 256; fp16, bf16. Shared memory: 128 * 4D bytes, at least 32 KiB.

constexpr int TILE = 128, THREADS = 256, WARP_ROWS = 64, WARP_COLUMNS = 32;

extern "C" __global__ void __launch_bounds__(THREADS, 2)
qk_gemm(const u16 *q, const u16 *k, u16 *s, int n_q, int n_k, int s_stride, int heads, int kv_heads, float scale) {
    extern __shared__ __align__(128) char shared[];
    const u32 q_tile = shared_address(shared), k_tile = q_tile + TILE * D * 2;
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int row_tiles = ceil_div(n_q, TILE), column_tiles = ceil_div(n_k, TILE);
    const int j = blockIdx.x % column_tiles, left = blockIdx.x / column_tiles;
    const int i = left % row_tiles, head = left / row_tiles;  // head: of all of the batch
    const i64 kv_head = head / heads * kv_heads + head % heads / (heads / kv_heads);
    const i64 row = (i64)i * TILE, column = (i64)j * TILE;

    copy_tile<TILE, D, THREADS>(q_tile, q + ((i64)head * n_q + row) * D, D, n_q - row, D, thread);
    copy_tile<TILE, D, THREADS>(k_tile, k + (kv_head * n_k + column) * D, D, n_k - column, D, thread);
    copy_commit();
    copy_wait<0>();
    __syncthreads();

    constexpr int TALL = WARP_ROWS / 16, WIDE = WARP_COLUMNS / 8;
    const int warp_row = warp / 4 * WARP_ROWS, warp_column = warp % 4 * WARP_COLUMNS;
    float sums[TALL][WIDE][4] = {};
#pragma unroll
    for (int step = 0; step < D / 16; ++step) {
        u32 a[TALL][4], b[WIDE / 2][4];
#pragma unroll
        for (int y = 0; y < TALL; ++y) load_rows<D>(a[y], q_tile, warp_row + 16 * y, step, lane);
#pragma unroll
        for (int x = 0; x < WIDE / 2; ++x) load_keys<D>(b[x], k_tile, warp_column + 16 * x, step, lane);
#pragma unroll
        for (int y = 0; y < TALL; ++y)
#pragma unroll
            for (int x = 0; x < WIDE; ++x) mma_16x8x16(sums[y][x], a[y], b[x / 2][x % 2 * 2], b[x / 2][x % 2 * 2 + 1]);
    }
    __syncthreads();  // every warp has read Q_i and K_j: their place is free for S_ij
    stage_tile<TILE>(shared, sums, warp_row, warp_column, scale, lane);
    __syncthreads();
    u16 *target = s + ((i64)head * n_q + row) * s_stride + column;
    store_tile<TILE, TILE, THREADS>(shared, target, s_stride, n_q - row, s_stride - column, thread);
}
