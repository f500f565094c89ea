// split_k_warps: flash2 with the warp partition of FlashAttention-1, to measure what split-Q saves. For sm_80 and
// later; needs common_mma.cu and common_flash2.cu.
//
//     Q, O [batch, heads, seq_q, D], K, V [batch, kv_heads, seq_k, D] in fp16 or bf16; lse [batch, heads, seq_q] fp32
//
//     S = Q K^T of one tile, by four warps
//
//         split-Q (flash2)           split-K (here)
//        +-----------------+        +----+----+----+----+
//        | warp 0          |        |    |    |    |    |      Split-Q: a warp has whole rows of S, so the maximum, the
//        +-----------------+        |    |    |    |    |      sum and O of a row stay in its registers.
//        | warp 1          |        | w0 | w1 | w2 | w3 |      Split-K: a row of S lies in all four warps. Its maximum,
//        +-----------------+        |    |    |    |    |      its sum and its O exist in four parts, which meet in
//        | warp 2          |        |    |    |    |    |      shared memory, behind barriers, in every step.
//        +-----------------+        |    |    |    |    |
//        | warp 3          |        |    |    |    |    |
//        +-----------------+        +----+----+----+----+
//
//     a step   S of the own keys | own maxima out | barrier | all maxima in, P, own sums and O parts out | barrier |
//              the owner of a row adds up its four sums and its four parts of O
//
// Loops, ring, mask and output are those of flash2; every warp is also the owner of BR / WARPS rows, whose running O,
// l and m it holds. All warps hold m of all rows: they read the same maxima, so they agree without asking.
//
// Bytes between slow memory and chip: those of flash2 (tile program `flash2`, lse=on), since the tiles are the same.
// Shared memory a step, with part = WARPS x BR x 4 bytes (iosim.onchip, split-k):
//     filled    K and V (Q once a row tile)
//     operands  Q by every warp, K and V once: each row of them belongs to one warp
//     exchange  written 2 part + D part (maxima, sums, O), read WARPS part + part + D part
// and two barriers besides the one at which a tile has arrived.
//
// Built for: sm_80, sm_89, sm_90, sm_100; BF16 0 and 1; D 32 with BR x BC of {64, 128} x {64, 128}, D 64 with all of
// these but 128 x 128, D 96 with 64 x {64, 128}, D 128 with 64 x 64, which needs 210 KB of shared memory (designs.py).

constexpr int ALL_ROW_TILES = BR / 16;
constexpr int OWN_KEYS = BC / WARPS;
constexpr int PIECE = 16 / ALL_ROW_TILES;  // column tiles of an O part in registers at a time: 64 registers
constexpr int PART_BYTES = WARPS * BR * 4;  // one number a row from every warp
static_assert(OWN_KEYS % 16 == 0 && D / 8 % PIECE == 0 && D % 32 == 0, "whole mma tiles");

typedef float OwnScores[ALL_ROW_TILES][OWN_KEYS / 8][4];
typedef float AllRows[ALL_ROW_TILES][2];

DEVICE void store_float(u32 at, float x) { asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(x) : "memory"); }
DEVICE float load_float(u32 at) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at) : "memory");
    return x;
}

// Where a lane's two neighbours of column tile n lie in a warp's part of O, [BR][D] in fp32. The column tiles of a row
// are XOR-ed with the row, so that four rows, which lie in the same banks, take their 32 bytes from all of them.
DEVICE u32 part_of(u32 exchange, int warp, int row, int n) {
    const int lane = threadIdx.x % 32;
    return exchange + ((warp * BR + row) * D + (n ^ (row & 3)) * 8 + 2 * (lane % 4)) * 4;
}

// S of all rows and this warp's keys.
DEVICE void matmul_own(OwnScores &s, u32 q_tile, u32 q_lane, u32 own_k, u32 k_lane) {
#pragma unroll
    for (int t = 0; t < ALL_ROW_TILES; ++t)
#pragma unroll
        for (int n = 0; n < OWN_KEYS / 8; ++n) s[t][n][0] = s[t][n][1] = s[t][n][2] = s[t][n][3] = 0.f;
#pragma unroll
    for (int step = 0; step < D / 16; ++step) {
        u32 k[OWN_KEYS / 16][4];
#pragma unroll
        for (int n = 0; n < OWN_KEYS / 16; ++n) load_matrix_x4(k[n], own_k + moved(k_lane, n, step));
#pragma unroll
        for (int t = 0; t < ALL_ROW_TILES; ++t) {
            u32 q[4];
            load_matrix_x4(q, q_tile + moved(q_lane, t, step));
#pragma unroll
            for (int n = 0; n < OWN_KEYS / 16; ++n) {
                mma_16x8x16(s[t][2 * n], q, k[n][0], k[n][1]);
                mma_16x8x16(s[t][2 * n + 1], q, k[n][2], k[n][3]);
            }
        }
    }
}

// -inf where a key lies past the end or past the row's diagonal.
DEVICE void hide_own(OwnScores &s, const Problem &p, int tile_row, int first_key) {
    const int lane = threadIdx.x % 32;
    const int column = first_key + 2 * (lane % 4);
#pragma unroll
    for (int t = 0; t < ALL_ROW_TILES; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = tile_row + 16 * t + 8 * (i / 2) + lane / 4;
            const int last = min(p.seq_k - 1, row + p.diagonal) - column;
#pragma unroll
            for (int n = 0; n < OWN_KEYS / 8; ++n)
                if (8 * n + i % 2 > last) s[t][n][i] = NEG_INF;
        }
}

// This warp's maximum of every row, for all to read.
DEVICE void tell_maxima(const OwnScores &s, u32 maxima, int warp) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int t = 0; t < ALL_ROW_TILES; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float top = fmaxf(s[t][0][2 * half], s[t][0][2 * half + 1]);
#pragma unroll
            for (int n = 1; n < OWN_KEYS / 8; ++n)
                top = fmaxf(top, fmaxf(s[t][n][2 * half], s[t][n][2 * half + 1]));
            top = quad_max(top);
            if (lane % 4 == 0) store_float(maxima + (warp * BR + 16 * t + 8 * half + lane / 4) * 4, top);
        }
}

// The reference of every row from the maxima of all warps, by the rule of flash2; `keep` for the rows that this warp
// owns. (The compiler takes the exponential for every row and throws three quarters away; counters show it.)
DEVICE void hear_maxima(u32 maxima, AllRows &m, PerRow &keep, int warp, float c) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int t = 0; t < ALL_ROW_TILES; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const u32 at = maxima + (16 * t + 8 * half + lane / 4) * 4;
            float top = load_float(at);
#pragma unroll
            for (int w = 1; w < WARPS; ++w) top = fmaxf(top, load_float(at + w * BR * 4));
            top *= c;
            const float before = m[t][half];
            m[t][half] = top > before + SLACK ? top : before;
            if (t / ROW_TILES == warp) keep[t % ROW_TILES][half] = exp2_fast(before - m[t][half]);
        }
}

// P of the own keys, its row sums told to the owners, and its product with the own rows of V: this warp's part of O.
DEVICE void tell_parts(const OwnScores &s, const AllRows &m, u32 sums, u32 exchange, u32 own_v, u32 v_lane, int warp,
                       float c) {
    const int lane = threadIdx.x % 32;
    u32 p[OWN_KEYS / 16][ALL_ROW_TILES][4];
#pragma unroll
    for (int t = 0; t < ALL_ROW_TILES; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float sum = 0.f;
#pragma unroll
            for (int n = 0; n < OWN_KEYS / 8; ++n) {
                const float low = exp2_fast(s[t][n][2 * half] * c - m[t][half]);
                const float high = exp2_fast(s[t][n][2 * half + 1] * c - m[t][half]);
                sum += low + high;
                p[n / 2][t][n % 2 * 2 + half] = pack2(low, high);
            }
            sum = quad_sum(sum);
            if (lane % 4 == 0) store_float(sums + (warp * BR + 16 * t + 8 * half + lane / 4) * 4, sum);
        }
#pragma unroll
    for (int first = 0; first < D / 8; first += PIECE) {
        float part[ALL_ROW_TILES][PIECE][4] = {};
#pragma unroll
        for (int step = 0; step < OWN_KEYS / 16; ++step)
#pragma unroll
            for (int n = 0; n < PIECE; n += 2) {
                u32 v[4];  // 16 keys x 16 columns
                load_matrix_x4_transposed(v, own_v + moved(v_lane, step, (first + n) / 2));
#pragma unroll
                for (int t = 0; t < ALL_ROW_TILES; ++t) {
                    mma_16x8x16(part[t][n], p[step][t], v[0], v[1]);
                    mma_16x8x16(part[t][n + 1], p[step][t], v[2], v[3]);
                }
            }
#pragma unroll
        for (int t = 0; t < ALL_ROW_TILES; ++t)
#pragma unroll
            for (int n = 0; n < PIECE; ++n)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const u32 at = part_of(exchange, warp, 16 * t + 8 * half + lane / 4, first + n);
                    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(part[t][n][2 * half]),
                                 "f"(part[t][n][2 * half + 1]) : "memory");
                }
    }
}

// The owner adds up its rows. A row's sum is added by one lane of its quad.
DEVICE void hear_parts(u32 sums, u32 exchange, Output &o, PerRow &l, const PerRow &keep, int warp) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int t = 0; t < ROW_TILES; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = warp * ROWS + 16 * t + 8 * half + lane / 4;
            l[t][half] *= keep[t][half];
            if (lane % 4 == 0)
#pragma unroll
                for (int w = 0; w < WARPS; ++w) l[t][half] += load_float(sums + (w * BR + row) * 4);
#pragma unroll
            for (int n = 0; n < D / 8; ++n) {
                float low = o[t][n][2 * half] * keep[t][half], high = o[t][n][2 * half + 1] * keep[t][half];
#pragma unroll
                for (int w = 0; w < WARPS; ++w) {
                    float x, y;
                    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y)
                                 : "r"(part_of(exchange, w, row, n)) : "memory");
                    low += x, high += y;
                }
                o[t][n][2 * half] = low, o[t][n][2 * half + 1] = high;
            }
        }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
split_k_warps(const char *q, const char *k, const char *v, char *o, float *lse, int seq_q, int seq_k, int kv_heads,
              int diagonal, float scale) {
    extern __shared__ __align__(128) char shared[];
    const u32 q_tile = shared_address(shared), k_ring = q_tile + Q_BYTES, v_ring = k_ring + 2 * KV_BYTES;
    const u32 exchange = v_ring + 2 * KV_BYTES, maxima = exchange + D * PART_BYTES, sums = maxima + PART_BYTES;
    const Problem p = {seq_q, seq_k, kv_heads, diagonal, scale};
    const int tile_row = blockIdx.x * BR, warp = uniform(threadIdx.x / 32);

    // Tiles [0, seen) hold a key that some row sees; in [0, whole) every row sees every key.
    const int last_row = min(tile_row + BR, seq_q) - 1;
    const int seen = ceil_div(max(0, min(seq_k, last_row + diagonal + 1)), BC);
    const int whole = max(0, min(seq_k, tile_row + diagonal + 1)) / BC;

    Output out = {};
    PerRow l = {}, keep;
    AllRows m;
#pragma unroll
    for (int t = 0; t < ALL_ROW_TILES; ++t) m[t][0] = m[t][1] = LOWEST;

    const u32 kv_head = blockIdx.z * kv_heads + blockIdx.y / (gridDim.y / kv_heads);
    const u32 kv_row = uniform(kv_head * seq_k);  // of the first key of this head, in K and V
    const u32 row_lane = lane_by_rows(), chunk_lane = lane_by_chunks();
    const u32 own_keys = warp * OWN_KEYS * ROW_BYTES;
    u32 half = 0;  // of the rings, in bytes: where tile j lies

    if (seen > 0) {
        const int key = (seen - 1) * BC;
        const i64 first = (i64)(kv_row + key) * ROW_BYTES;
        load_tile<BR, true>(q_tile, q + (i64)first_row_of_tile(p) * ROW_BYTES, seq_q - tile_row);
        load_tile<BC, true>(k_ring, k + first, seq_k - key);
        load_tile<BC, true>(v_ring, v + first, seq_k - key);
    }
    copy_commit();
#pragma unroll 1
    for (int j = seen - 1; j >= 0; --j) {
        copy_wait<0>();
        __syncthreads();  // tile j is there; everybody is done with the other half of the rings and with the exchange
        if (j > 0) {
            const i64 next = (i64)(kv_row + (j - 1) * BC) * ROW_BYTES;
            load_tile<BC, false>(k_ring + (KV_BYTES - half), k + next, BC);
            load_tile<BC, false>(v_ring + (KV_BYTES - half), v + next, BC);
        }
        copy_commit();
        OwnScores s;
        matmul_own(s, q_tile, row_lane, k_ring + half + own_keys, chunk_lane);
        if (j >= whole) hide_own(s, p, tile_row, j * BC + warp * OWN_KEYS);
        tell_maxima(s, maxima, warp);
        __syncthreads();  // every warp's maxima are there
        hear_maxima(maxima, m, keep, warp, scale);
        tell_parts(s, m, sums, exchange, v_ring + half + own_keys, row_lane, warp, scale);
        __syncthreads();  // every warp's sums and parts of O are there
        hear_parts(sums, exchange, out, l, keep, warp);
        half = KV_BYTES - half;
    }
    PerRow own_m;
#pragma unroll
    for (int t = 0; t < ALL_ROW_TILES; ++t)
        if (t / ROW_TILES == warp) own_m[t % ROW_TILES][0] = m[t][0], own_m[t % ROW_TILES][1] = m[t][1];
    // The rows of Q that O leaves through are read by other warps until the last barrier above, and not after it.
    const i64 first_row = (i64)first_row_of_tile(p) + warp * ROWS;
    store_output(out, own_m, l, q_tile + warp * ROWS * ROW_BYTES, o + first_row * ROW_BYTES, lse + first_row,
                 seq_q - tile_row - warp * ROWS);
}
