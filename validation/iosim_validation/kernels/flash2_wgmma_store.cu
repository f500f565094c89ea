// flash2_wgmma, the end of a tile: O / l and the log-sum-exp to memory, straight from registers.
//
// A quad of lanes holds a row as words of two columns, word i of a chunk of 8 columns in lane i. Two exchanges between
// neighbours turn 4 chunks x 4 lanes round, so that lane i has all of chunk i and stores 16 bytes at once:
//
//     lane 0  lane 1  lane 2  lane 3              lane 0  lane 1  lane 2  lane 3
//      a0      a1      a2      a3                  a0      b0      c0      d0
//      b0      b1      b2      b3       ->         a1      b1      c1      d1
//      c0      c1      c2      c3                  a2      b2      c2      d2
//      d0      d1      d2      d3                  a3      b3      c3      d3
//
// No shared memory: it is full, and rows past the end are left out by a predicate.

struct Output { u16 *o; float *lse; i64 batch_stride, head_stride, row_stride; };  // strides of o, in elements

DEVICE uint4 turn_quad(const u32 (&x)[4], bool odd, bool upper) {
    const u32 y0 = __shfl_xor_sync(~0u, odd ? x[0] : x[1], 1), y1 = __shfl_xor_sync(~0u, odd ? x[2] : x[3], 1);
    const u32 a0 = odd ? y0 : x[0], a1 = odd ? x[1] : y0, b0 = odd ? y1 : x[2], b1 = odd ? x[3] : y1;
    const u32 z0 = __shfl_xor_sync(~0u, upper ? a0 : b0, 2), z1 = __shfl_xor_sync(~0u, upper ? a1 : b1, 2);
    return make_uint4(upper ? z0 : a0, upper ? z1 : a1, upper ? b0 : z0, upper ? b1 : z1);
}

DEVICE void store_tile(float (&o)[OUTPUTS], const RowState &row, const Output &out, int tile_index, const Problem &z,
                       int consumer, float c) {
    forget_origin(tile_index);
    const Tile tile = tile_at(tile_index, z);
    const u32 lane = thread_in_block() & 31, warp = thread_in_block() >> 5 & 3;
    const int first = tile.first_row + consumer * 64 + warp * 16 + (lane >> 2);
    const i64 lse_at = ((i64)tile.batch * z.heads + tile.head) * z.seq_q;
    u16 *const plane = out.o + tile.batch * out.batch_stride + tile.head * out.head_stride + 8 * (lane & 3);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const float sum = quad_sum(row.sum[h]);
        const float inverse = sum > 0.f ? 1.f / sum : 0.f;  // a row that sees nothing: zeros, and log(0) below
        const int r = first + 8 * h;
        const bool inside = r < z.seq_q;
        if (inside && (lane & 3) == 0) out.lse[lse_at + r] = (row.max[h] * c + log2_fast(sum)) * LN_2;
        u16 *const to = plane + r * out.row_stride;
#pragma unroll
        for (int g = 0; g < OUTPUTS / 16; ++g) {
            u32 words[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int at = 16 * g + 4 * i + 2 * h;
                words[i] = pack2(o[at] * inverse, o[at + 1] * inverse);
            }
            const uint4 chunk = turn_quad(words, lane & 1, lane & 2);
            if (inside) store_16(to + 32 * g, chunk);
        }
    }
}
