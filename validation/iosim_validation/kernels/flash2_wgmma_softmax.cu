// flash2_wgmma, softmax: masks, running maximum and sum, and the 16-bit weights, all in registers.
//
// How a warpgroup's 64 x N accumulator lies in its 128 threads (given by wgmma): warp w has rows 16 w to 16 w + 15, and
//
//     accumulator i of a lane     row     lane / 4 + 8 (i / 2 % 2)            two rows a lane: "upper" and "lower"
//                                 column  8 (i / 4) + 2 (lane % 4) + i % 2
//
// so the four lanes of a quad share two rows: a row's maximum and sum need two shuffles, and the special functions of
// a row (one rescale factor a block) are computed by four lanes alike. Packed in pairs in this order, the accumulators
// of S already are the A operand of P V: P never leaves the registers.

struct RowState { float max[2], sum[2], rescale[2]; };  // of the lane's two rows; the sum is the lane's own part

// Columns past the end, and under a causal mask those to the right of the diagonal, to minus infinity.
DEVICE void mask_scores(float (&s)[SCORES], int first_column, int tile_index, const Problem &z) {
    forget_origin(tile_index);
    const int thread = thread_in_block() - WARPGROUP;  // among the consumers: 32 threads hold 16 rows
    const int column = first_column + 2 * (thread & 3);
    int last[2];  // last visible column of the two rows, counted from `column`
    last[0] = last[1] = z.seq_k - 1 - column;
    if (CAUSAL) {
        const int row = tile_at(tile_index, z).first_row + (thread >> 5) * 16 + (thread >> 2 & 7);
        const int diagonal = row + z.seq_k - z.seq_q - column;
        last[0] = min(last[0], diagonal);
        last[1] = min(last[1], diagonal + 8);
    }
#pragma unroll
    for (int i = 0; i < SCORES; ++i)
        if (8 * (i >> 2) + (i & 1) > last[i >> 1 & 1]) s[i] = NEG_INF;
}

// Scores -> weights exp2(c (s - max)), c = scale log2(e); maximum, sum and the factor for what came before.
// Two chains each for maximum and sum: one would wait for its own latency 32 times.
template <bool FIRST> DEVICE void softmax(float (&s)[SCORES], RowState &row, float c) {
    float high[2][2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        high[h][0] = fmaxf(FIRST ? LOWEST : row.max[h], s[2 * h]);
        high[h][1] = s[2 * h + 1];
#pragma unroll
        for (int j = 1; j < SCORES / 4; ++j) {
            high[h][0] = fmaxf(high[h][0], s[4 * j + 2 * h]);
            high[h][1] = fmaxf(high[h][1], s[4 * j + 2 * h + 1]);
        }
    }
    float scaled_max[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const float max = quad_max(fmaxf(high[h][0], high[h][1]));
        scaled_max[h] = max * c;
        if (!FIRST) row.rescale[h] = exp2_fast(row.max[h] * c - scaled_max[h]);
        row.max[h] = max;
    }
#pragma unroll
    for (int i = 0; i < SCORES; ++i) s[i] = exp2_fast(s[i] * c - scaled_max[i >> 1 & 1]);
    float sum[2][2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        sum[h][0] = FIRST ? s[2 * h] : row.sum[h] * row.rescale[h] + s[2 * h];
        sum[h][1] = s[2 * h + 1];
#pragma unroll
        for (int j = 1; j < SCORES / 4; ++j) {
            sum[h][0] += s[4 * j + 2 * h];
            sum[h][1] += s[4 * j + 2 * h + 1];
        }
        row.sum[h] = sum[h][0] + sum[h][1];
    }
}

DEVICE void pack_weights(const float (&s)[SCORES], u32 (&p)[SCORES / 2]) {
#pragma unroll
    for (int i = 0; i < SCORES / 2; ++i) p[i] = pack2(s[2 * i], s[2 * i + 1]);
}
DEVICE void rescale_output(float (&o)[OUTPUTS], const RowState &row) {
#pragma unroll
    for (int i = 0; i < OUTPUTS; ++i) o[i] *= row.rescale[i >> 1 & 1];
}
