// Attention of few queries and many keys: one split of the keys for one kv-head (Flash-Decoding).
//
//   keys of a split      tile t              tile t + 1
//                  | w0 | w1 | w2 | w3 | w0 | w1 | w2 | w3 | ...     four warps, 16 keys each of every tile of 64
//   ROWS rows  S = |    |    |    |    |
//                  each warp: own keys, own ring in shared memory, own m, l and O; they meet once, at the end
//
// Packed heads: the query heads that share a kv-head are rows of one tile (row = query * group + head), so K and V are
// read once for all of them. One thread block of 128 threads a (kv-head, row tile, split), the split fastest.
//
// Bytes are all that counts here, so the copies never wait for anybody: a warp reads only the keys that it copied
// itself (cp.async, 16 bytes a lane, STAGES - 1 slots of 16 keys of K and V under way), and the loop has no block-wide
// barrier. Scores and O stay in registers (mma.sync with 16 rows, most of which are empty when few heads are packed).
//
// Q [batch, heads, n_q, D], K, V [batch, kv_heads, n_k, D], 16 bits. The key tiles that a row tile sees are shared out:
// split s of S has tiles [many * s / S, many * (s + 1) / S).
// SPLIT 0 (S = 1): writes O, 16 bits, and the log-sum-exp [batch, heads, n_q].
// SPLIT 1: writes O of its keys in fp32 to o_parts [batch, kv_heads, S, rows, D], and their log-sum-exp to
// lse_parts [batch, kv_heads, S, rows], rows = n_q * heads / kv_heads; `decode_combine` joins them.
//
// In words of the tile program `decode` (pack-gqa=on), a kv-head, Tr = ceil(rows / ROWS):
//   read    Tr * n_k * 4D  +  S * rows * 2D            K and V once a row tile; Q once a split
//   write   rows * 2D, or S * rows * 4 (D + 1)
// CAUSAL: query r sees keys 0 .. r + n_k - n_q. Rows that see nothing give O = 0, log-sum-exp = -inf.
//
// Built for sm_80 and later; D = 32, 64, 96, 128, 256; ROWS = 16, 32 (16 at D = 256); STAGES = 2 .. 6; fp16, bf16.
// Shared memory: 2 ROWS D for Q, and the larger of the rings, 256 D STAGES, and the warps' results on their way out.

constexpr int WARPS = 4, THREADS = 32 * WARPS, WARP_KEYS = 16, KEYS = WARPS * WARP_KEYS;
constexpr int Q_BYTES = ROWS * D * 2, PART_BYTES = WARP_KEYS * D * 2, SLOT_BYTES = 2 * PART_BYTES;
constexpr int TALL = ROWS / 16, OUT_BLOCKS = D / 8, STEPS = D / 16;
constexpr bool Q_IN_REGISTERS = TALL == 1 && D <= 128;
constexpr int QK_UNROLL = D > 128 ? 1 : STEPS;  // fewer addresses in registers where those are scarce
constexpr int OUT_STRIDE = D + 8;  // floats; a row further is 32 bytes further in the banks

extern "C" __global__ void __launch_bounds__(THREADS, 1)
decode_split(const u16 *q, const u16 *k, const u16 *v, u16 *o, float *lse, float *o_parts, float *lse_parts, int n_q,
             int n_k, int kv_heads, int group, int splits, float scale) {
    extern __shared__ __align__(128) char shared[];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int rows = n_q * group, row_tiles = ceil_div(rows, ROWS), offset = n_k - n_q;
    const int split = blockIdx.x % splits, left = blockIdx.x / splits;
    const int first_row = left % row_tiles * ROWS, row_end = min(first_row + ROWS, rows);
    const i64 kv_head = left / row_tiles;  // of all of the batch
    k += kv_head * n_k * D, v += kv_head * n_k * D;
    // Row r of a kv-head's tile is query r / group of query head r % group; of one query, simply head r.
    auto address = [&](int r) {
        return n_q == 1 ? kv_head * group + r : (kv_head * group + r % group) * n_q + r / group;
    };

    const u32 q_tile = shared_address(shared), ring = q_tile + Q_BYTES + warp * STAGES * SLOT_BYTES;
#pragma unroll 4
    for (int n = thread; n < ROWS * D / 8; n += THREADS) {
        const int row = n / (D / 8), chunk = n % (D / 8);
        const bool inside = first_row + row < row_end;
        const u16 *from = inside ? q + address(first_row + row) * D + 8 * chunk : q;
        copy_async_16(q_tile + swizzled<D * 2>(row, chunk), from, inside);
    }
    copy_commit();

    // The tiles of this split, of those that the last row sees; keys that this lane's rows see.
    int seen_by_all = n_k, seen_by_one = n_k, seen[TALL][2];
#if CAUSAL
    seen_by_all = max(0, min(n_k, first_row / group + offset + 1));
    seen_by_one = max(0, min(n_k, (row_end - 1) / group + offset + 1));
#endif
#pragma unroll
    for (int y = 0; y < TALL; ++y)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int r = first_row + 16 * y + 8 * half + lane / 4;
            seen[y][half] = CAUSAL ? min(n_k, r / group + offset + 1) : n_k;
        }
    const i64 many = ceil_div(seen_by_one, KEYS);
    const int begin = many * split / splits, end = many * (split + 1) / splits;

    auto fetch = [&](int t) {  // this warp's keys of tile t; one group, also where there is nothing left to copy
        if (t < end) {
            const i64 key = (i64)t * KEYS + warp * WARP_KEYS;
            const u32 slot = ring + (t - begin) % STAGES * SLOT_BYTES;
            copy_tile<WARP_KEYS, D, 32>(slot, k + key * D, D, n_k - key, D, lane);
            copy_tile<WARP_KEYS, D, 32>(slot + PART_BYTES, v + key * D, D, n_k - key, D, lane);
        }
        copy_commit();
    };
#pragma unroll
    for (int t = 0; t < STAGES - 1; ++t) fetch(begin + t);
    copy_wait<STAGES - 1>();
    __syncthreads();  // Q has landed for all
    u32 q_kept[Q_IN_REGISTERS ? STEPS : 1][4];
    if (Q_IN_REGISTERS) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) load_rows<D>(q_kept[Q_IN_REGISTERS ? step : 0], q_tile, 0, step, lane);
    }

    float out[TALL][OUT_BLOCKS][4] = {}, m[TALL][2], l[TALL][2] = {};
#pragma unroll
    for (int y = 0; y < TALL; ++y) m[y][0] = m[y][1] = LOWEST;
    scale *= LOG2_E;
#pragma unroll 1
    for (int t = begin; t < end; ++t) {
        copy_wait<STAGES - 2>();
        __syncwarp();  // tile t has landed for the whole warp, which is done with the slot that is filled next
        fetch(t + STAGES - 1);
        const u32 k_tile = ring + (t - begin) % STAGES * SLOT_BYTES, v_tile = k_tile + PART_BYTES;

        float s[TALL][2][4] = {};
#pragma unroll QK_UNROLL
        for (int step = 0; step < STEPS; ++step) {
            u32 b[4];
            load_keys<D>(b, k_tile, 0, step, lane);
#pragma unroll
            for (int y = 0; y < TALL; ++y) {
                u32 read[4];
                if (!Q_IN_REGISTERS) load_rows<D>(read, q_tile, 16 * y, step, lane);
                const u32(&a)[4] = Q_IN_REGISTERS ? q_kept[Q_IN_REGISTERS ? step : 0] : read;
                mma_16x8x16(s[y][0], a, b[0], b[1]);
                mma_16x8x16(s[y][1], a, b[2], b[3]);
            }
        }

        const bool masked = (i64)(t + 1) * KEYS > seen_by_all;
        const int key = t * KEYS + warp * WARP_KEYS + lane % 4 * 2;
        float largest[TALL][2];
        bool grows = false;
#pragma unroll
        for (int y = 0; y < TALL; ++y)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                largest[y][half] = m[y][half];
#pragma unroll
                for (int x = 0; x < 4; ++x) {
                    float &score = s[y][x / 2][2 * half + x % 2];
                    score *= scale;
                    if (masked && key + x / 2 * 8 + x % 2 >= seen[y][half]) score = NEG_INF;
                    largest[y][half] = fmaxf(largest[y][half], score);
                }
                largest[y][half] = quad_max(largest[y][half]);
                grows |= largest[y][half] > m[y][half];
            }
        float alpha[TALL][2];  // always worked out, so that the count of exponentials does not depend on the data
#pragma unroll
        for (int y = 0; y < TALL; ++y)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                alpha[y][half] = exp2_fast(m[y][half] - largest[y][half]);
                m[y][half] = largest[y][half];
                l[y][half] *= alpha[y][half];
            }
        if (__any_sync(0xffffffffu, grows)) {  // bring O so far to the new maximum
#pragma unroll
            for (int y = 0; y < TALL; ++y)
#pragma unroll
                for (int b = 0; b < OUT_BLOCKS; ++b)
#pragma unroll
                    for (int i = 0; i < 4; ++i) out[y][b][i] *= alpha[y][i / 2];
        }
        u32 p[TALL][4];  // S of 16 keys, as the A operand of the second product
#pragma unroll
        for (int y = 0; y < TALL; ++y)
#pragma unroll
            for (int x = 0; x < 2; ++x)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float p0 = exp2_fast(s[y][x][2 * half] - m[y][half]);
                    const float p1 = exp2_fast(s[y][x][2 * half + 1] - m[y][half]);
                    l[y][half] += p0 + p1;  // of this lane's keys; the quad's are joined at the end
                    p[y][2 * x + half] = pack2(p0, p1);
                }
#pragma unroll
        for (int x = 0; x < OUT_BLOCKS / 2; ++x) {
            u32 b[4];
            load_values<D>(b, v_tile, 16 * x, 0, lane);
#pragma unroll
            for (int y = 0; y < TALL; ++y) {
                mma_16x8x16(out[y][2 * x], p[y], b[0], b[1]);
                mma_16x8x16(out[y][2 * x + 1], p[y], b[2], b[3]);
            }
        }
    }
    copy_wait<0>();
    __syncthreads();  // the rings are free: the warps' results go there

    float *parts = (float *)(shared + Q_BYTES), *statistics = parts + WARPS * ROWS * OUT_STRIDE;
#pragma unroll
    for (int y = 0; y < TALL; ++y)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = warp * ROWS + 16 * y + 8 * half + lane / 4;
            const float sum = quad_sum(l[y][half]);
            if (lane % 4 == 0) statistics[2 * row] = m[y][half], statistics[2 * row + 1] = sum;
#pragma unroll
            for (int b = 0; b < OUT_BLOCKS; ++b) {
                float2 *at = (float2 *)(parts + row * OUT_STRIDE + 8 * b + lane % 4 * 2);
                *at = make_float2(out[y][b][2 * half], out[y][b][2 * half + 1]);
            }
        }
    __syncthreads();
    if (thread < ROWS) {  // the weight of each warp's part of a row, in the place of its statistics
        float top = LOWEST, sum = 0.f, weight[WARPS];
#pragma unroll
        for (int w = 0; w < WARPS; ++w) top = fmaxf(top, statistics[2 * (w * ROWS + thread)]);
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            weight[w] = exp2_fast(statistics[2 * (w * ROWS + thread)] - top);
            sum += weight[w] * statistics[2 * (w * ROWS + thread) + 1];
        }
        const float reciprocal = sum > 0.f ? 1.f / sum : 0.f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) statistics[2 * (w * ROWS + thread)] = weight[w] * reciprocal;
        statistics[2 * thread + 1] = sum > 0.f ? (top + log2_fast(sum)) * LN_2 : NEG_INF;
    }
    __syncthreads();
#pragma unroll 1
    for (int n = thread; n < (row_end - first_row) * (D / 8); n += THREADS) {
        const int row = n / (D / 8), column = n % (D / 8) * 8;
        float x[8] = {};
        const float log_sum = statistics[2 * row + 1];
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            const float weight = statistics[2 * (w * ROWS + row)];
#pragma unroll
            for (int i = 0; i < 8; ++i) x[i] += weight * parts[(w * ROWS + row) * OUT_STRIDE + column + i];
        }
        const int r = first_row + row;
#if SPLIT
        const i64 at = (kv_head * splits + split) * rows + r;
        float4 *target = (float4 *)(o_parts + at * D + column);
        target[0] = make_float4(x[0], x[1], x[2], x[3]);
        target[1] = make_float4(x[4], x[5], x[6], x[7]);
        if (column == 0) lse_parts[at] = log_sum;
#else
        const i64 at = address(r);
        store_16(o + at * D + column, make_uint4(pack2(x[0], x[1]), pack2(x[2], x[3]), pack2(x[4], x[5]),
                                                 pack2(x[6], x[7])));
        if (column == 0) lse[at] = log_sum;
#endif
    }
}
