// Tiles of 16-bit values: from global memory into swizzled shared memory, from there into the operands of mma.sync,
// and results back out. Needs common_mma.cu in front of it.
//
// A tile is HEIGHT rows of WIDTH values; WIDTH * 2 bytes is a row of `swizzled`. Global rows are `stride` values
// apart and begin at multiples of 16 bytes. What lies past the end of a tensor reads as zero and is not written.

// All COPIERS threads copy a tile; `rows` and `columns` (a multiple of 8) are what the tensor has from here on.
template <int HEIGHT, int WIDTH, int COPIERS>
DEVICE void copy_tile(u32 tile, const u16 *source, i64 stride, i64 rows, i64 columns, int thread) {
    constexpr int CHUNKS = WIDTH / 8, ALL = HEIGHT * CHUNKS, TOGETHER = ALL / COPIERS > 8 ? 4 : 8;
#pragma unroll TOGETHER
    for (int first = 0; first < ALL; first += COPIERS) {
        const int n = first + thread, row = n / CHUNKS, chunk = n % CHUNKS;
        if (ALL % COPIERS && n >= ALL) break;
        const bool inside = row < rows && 8 * chunk < columns;
        const u16 *from = inside ? source + row * stride + 8 * chunk : source;
        copy_async_16(tile + swizzled<WIDTH * 2>(row, chunk), from, inside);
    }
}

// A operand: rows [row, row + 16), values [16 step, 16 step + 16) of a tile that has its rows along the sum.
template <int WIDTH> DEVICE void load_rows(u32 (&a)[4], u32 tile, int row, int step, int lane) {
    load_matrix_x4(a, tile + swizzled<WIDTH * 2>(row + (lane & 15), 2 * step + (lane >> 4)));
}

// B operand of S = Q K^T, two column tiles of eight keys: keys [key, key + 16), values [16 step, 16 step + 16).
// b[0], b[1] are the operand of the first eight keys, b[2], b[3] that of the other eight.
template <int WIDTH> DEVICE void load_keys(u32 (&b)[4], u32 tile, int key, int step, int lane) {
    const int row = key + (lane & 7) + (lane >> 4) * 8;
    load_matrix_x4(b, tile + swizzled<WIDTH * 2>(row, 2 * step + (lane >> 3 & 1)));
}

// B operand of O = P V, two column tiles of eight: keys [16 step, 16 step + 16), values [column, column + 16).
// The keys are the sum here and lie across the rows: ldmatrix transposes on the way.
template <int WIDTH> DEVICE void load_values(u32 (&b)[4], u32 tile, int column, int step, int lane) {
    load_matrix_x4_transposed(b, tile + swizzled<WIDTH * 2>(16 * step + (lane & 15), column / 8 + (lane >> 4)));
}

// Accumulators of one warp (TALL x WIDE blocks of 16 x 8, at row, column of the tile) times `factor`, as 16-bit values
// into a swizzled tile in shared memory, from which whole rows go out in pieces of 16 bytes.
template <int WIDTH, int TALL, int WIDE>
DEVICE void stage_tile(char *tile, const float (&c)[TALL][WIDE][4], int row, int column, float factor, int lane) {
#pragma unroll
    for (int i = 0; i < TALL; ++i)
#pragma unroll
        for (int j = 0; j < WIDE; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int r = row + 16 * i + 8 * half + lane / 4, chunk = column / 8 + j;
                u32 *at = (u32 *)(tile + swizzled<WIDTH * 2>(r, chunk)) + lane % 4;
                *at = pack2(c[i][j][2 * half] * factor, c[i][j][2 * half + 1] * factor);
            }
}
template <int HEIGHT, int WIDTH, int COPIERS>
DEVICE void store_tile(const char *tile, u16 *target, i64 stride, i64 rows, i64 columns, int thread) {
    constexpr int CHUNKS = WIDTH / 8, ALL = HEIGHT * CHUNKS;
#pragma unroll 4
    for (int n = thread; n < ALL; n += COPIERS) {
        const int row = n / CHUNKS, chunk = n % CHUNKS;
        if (row < rows && 8 * chunk < columns)
            store_16(target + row * stride + 8 * chunk, *(const uint4 *)(tile + swizzled<WIDTH * 2>(row, chunk)));
    }
}
