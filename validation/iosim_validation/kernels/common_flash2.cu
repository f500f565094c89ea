// The pieces of a FlashAttention-2 thread block that `flash2` and `block_sparse` share: how a tile comes into shared
// memory, S = Q K^T, the mask, the running softmax, O += P V, and how O leaves. Follows common_mma.cu.
//
// A block of WARPS warps owns BR rows of Q and meets K and V tiles of BC rows; all rows are D wide.
//
//     shared memory      | Q  BR x D | K ring 2 x BC x D | V ring 2 x BC x D |      16-bit, rows swizzled
//     registers, a warp  | S (then P)  ROWS x BC | O  ROWS x D | m, l of its rows |    fp32; ROWS = BR / WARPS
//
// Every warp owns whole rows (split-Q): it reads all of K and V and its own rows of Q, and never talks to another.
// With ROWS = 32 a fragment of K or V that was read once feeds two mma instructions; with ROWS = 16 only one.

constexpr int THREADS = 32 * WARPS;
constexpr int ROWS = BR / WARPS;           // rows of Q that a warp owns
constexpr int ROW_TILES = ROWS / 16;       // of 16 rows, the height of an mma
constexpr int KEY_TILES = BC / 8;          // of 8 keys, the width of an mma
constexpr int ROW_BYTES = 2 * D;
constexpr int Q_BYTES = BR * ROW_BYTES;
constexpr int KV_BYTES = BC * ROW_BYTES;
static_assert(BR % (16 * WARPS) == 0 && BC % 16 == 0 && D % 32 == 0, "whole mma tiles");

struct Problem {
    int seq_q, seq_k;
    int kv_heads;
    int diagonal;   // row r sees keys up to r + diagonal: seq_k - seq_q if causal, seq_k (no limit) if not
    float scale;    // of the scores, times log2(e)
};

// Read again where they are needed, rather than kept in registers through the loop over K and V.
DEVICE u32 thread_again() {
    u32 t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    return t;
}
DEVICE u32 row_tile_again() {
    u32 t;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(t));
    return t;
}
DEVICE u32 head_again() {
    u32 h, b;
    asm volatile("mov.u32 %0, %%ctaid.y;" : "=r"(h));
    asm volatile("mov.u32 %0, %%ctaid.z;" : "=r"(b));
    return b * gridDim.y + h;
}
// A value that all threads of a warp agree on, told to the compiler: it then needs no register of every thread.
DEVICE int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

// The first row of this block's tile in Q, O and lse; the grid is (row tiles, heads, batch). Rows of all heads are
// counted in 32 bits (the plan sees to it), bytes in 64.
DEVICE u32 first_row_of_tile(const Problem &p) { return head_again() * p.seq_q + row_tile_again() * BR; }

// ---- tiles into shared memory --------------------------------------------------------------------------------------
// One 16-byte chunk a thread and turn. Lanes side by side take chunks side by side, so that whole sectors are fetched;
// from turn to turn a thread moves down by a fixed number of rows, so that all its addresses are one base plus
// constants. A row of 12 chunks (D = 96) does not divide a warp: there the threads cover 4 chunks at a time.
constexpr int CHUNKS = ROW_BYTES / 16;
constexpr int LANES_PER_ROW = CHUNKS % 3 ? CHUNKS : CHUNKS / 3;
constexpr int ROWS_PER_TURN = THREADS / LANES_PER_ROW;

// A tile of TILE_ROWS rows, one after the other in memory, of which the first `valid` exist; the others become zeros
// (in V they must: 0 x NaN is NaN). CHECKED false: all exist.
template <int TILE_ROWS, bool CHECKED> DEVICE void load_tile(u32 tile, const char *rows, int valid) {
    const u32 thread = thread_again(), first_row = thread / LANES_PER_ROW, first_chunk = thread % LANES_PER_ROW;
    const char *from = rows + (first_row * ROW_BYTES + first_chunk * 16);
#pragma unroll
    for (int r = 0; r < TILE_ROWS; r += ROWS_PER_TURN)
#pragma unroll
        for (int c = 0; c < CHUNKS; c += LANES_PER_ROW) {
            // Where the turns are whole spans of 8 rows the swizzle is that of the first row, and a turn is a constant.
            const u32 to = ROWS_PER_TURN % 8 ? tile + swizzled<ROW_BYTES>(first_row + r, first_chunk + c)
                                             : tile + swizzled<ROW_BYTES>(first_row, first_chunk + c) + r * ROW_BYTES;
            if (CHECKED) copy_async_16(to, from + r * ROW_BYTES + c * 16, (int)first_row + r < valid);
            else copy_async_16(to, from + r * ROW_BYTES + c * 16);
        }
}

// ---- fragments -----------------------------------------------------------------------------------------------------
// Where a lane reads with ldmatrix, from the start of a tile: one of 16 rows, one of two neighbouring chunks. By rows:
// lanes 0-15 the rows of the first chunk (Q; V transposed). By chunks: lanes 0-7 and 8-15 the two chunks of rows 0-7,
// then rows 8-15 (K). Kept apart from the tile's own address, which is one for the whole warp and costs no register.
DEVICE u32 lane_by_rows() {
    const int lane = threadIdx.x % 32;
    return swizzled<ROW_BYTES>(lane % 16, lane / 16);
}
DEVICE u32 lane_by_chunks() {
    const int lane = threadIdx.x % 32;
    return swizzled<ROW_BYTES>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}
// Where three blocks share an SM: copies of a lane's address, XOR-ed for each move, are not worth registers between steps.
DEVICE void make_again(u32 &lane) {
    if (FORGET) asm volatile("" : "+r"(lane));
}
// The same lane `step` times 16 rows down and `pair` times two chunks to the right. The swizzle permutes chunks within
// 128 bytes (64 where rows are no multiple of 128), so a move inside that is an XOR, and one beyond it is a constant:
// no address arithmetic is left but an XOR for each of up to four moves.
DEVICE u32 moved(u32 lane, int step, int pair) {
    constexpr int span = ROW_BYTES % 128 ? 64 : 128;
    const int bytes = pair * 32;
    return (lane ^ (bytes % span)) + bytes / span * span + step * 16 * ROW_BYTES;
}

// ---- S = Q K^T -----------------------------------------------------------------------------------------------------
typedef float Scores[ROW_TILES][KEY_TILES][4];
typedef float Output[ROW_TILES][D / 8][4];
typedef float PerRow[ROW_TILES][2];  // a lane holds parts of rows g and g + 8 of each mma, g = lane / 4

DEVICE void matmul_scores(Scores &s, u32 q_rows, u32 q_lane, u32 k_tile, u32 k_lane) {
    make_again(q_lane), make_again(k_lane);
#pragma unroll
    for (int t = 0; t < ROW_TILES; ++t)
#pragma unroll
        for (int n = 0; n < KEY_TILES; ++n) s[t][n][0] = s[t][n][1] = s[t][n][2] = s[t][n][3] = 0.f;
#pragma unroll UNROLL
    for (int step = 0; step < D / 16; ++step) {
        u32 q[ROW_TILES][4];
#pragma unroll
        for (int t = 0; t < ROW_TILES; ++t) load_matrix_x4(q[t], q_rows + moved(q_lane, t, step));
#pragma unroll
        for (int n = 0; n < KEY_TILES; n += 2) {
            u32 k[4];  // 16 keys
            load_matrix_x4(k, k_tile + moved(k_lane, n / 2, step));
#pragma unroll
            for (int t = 0; t < ROW_TILES; ++t) {
                mma_16x8x16(s[t][n], q[t], k[0], k[1]);
                mma_16x8x16(s[t][n + 1], q[t], k[2], k[3]);
            }
        }
    }
}

// -inf where a key lies past the end or past the row's diagonal. `first_row`: of this warp; `first_key`: of the tile.
DEVICE void hide(Scores &s, const Problem &p, int first_row, int first_key) {
    const int lane = threadIdx.x % 32;
    const int column = first_key + 2 * (lane % 4);
#pragma unroll
    for (int t = 0; t < ROW_TILES; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + 16 * t + 8 * half + lane / 4;
            const int last = min(p.seq_k - 1, row + p.diagonal) - column;  // counted from this lane's first key
#pragma unroll
            for (int n = 0; n < KEY_TILES; ++n)
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    if (8 * n + i > last) s[t][n][2 * half + i] = NEG_INF;
        }
}

// ---- the running softmax -------------------------------------------------------------------------------------------
// m: the reference of a row's exponentials, l: their sum so far, this lane's part of it only. The scale and log2(e) are
// one factor c, folded into the exponent: exp(scale s) / 2^m = exp2(c s - m), one multiply-add and one special function.
// m starts at a finite LOWEST, so that rows which see nothing need no test: exp2(-inf + 1e30) = 0.
//
// Any m near the row's largest score is as good as the largest itself: m cancels when O is divided by l. So m is raised
// only when the new scores pass it by more than 2^SLACK, and O, all of it, is rescaled only when some row of the warp
// was raised; after the first tiles that is rare. P stays below 2^8, far from the end of fp16.
#define SLACK 8.f

DEVICE void raise_reference(const Scores &s, PerRow &m, PerRow &l, Output &o, float c) {
    PerRow keep;  // 2^(m before - m after), 1 where nothing changed
    bool raised = false;
#pragma unroll
    for (int t = 0; t < ROW_TILES; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float top = fmaxf(s[t][0][2 * half], s[t][0][2 * half + 1]);
#pragma unroll
            for (int n = 1; n < KEY_TILES; ++n) top = fmaxf(top, fmaxf(s[t][n][2 * half], s[t][n][2 * half + 1]));
            top = quad_max(top) * c;
            const float before = m[t][half];
            const bool up = top > before + SLACK;
            raised |= up;
            m[t][half] = up ? top : before;
            keep[t][half] = exp2_fast(before - m[t][half]);
        }
    if (!__any_sync(0xffffffffu, raised)) return;
#pragma unroll
    for (int t = 0; t < ROW_TILES; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            l[t][half] *= keep[t][half];
#pragma unroll
            for (int n = 0; n < D / 8; ++n) {
                o[t][n][2 * half] *= keep[t][half];
                o[t][n][2 * half + 1] *= keep[t][half];
            }
        }
}

// O += P V, 16 keys at a time: their exponentials are taken just before their products, so that the special-function
// units work on the next 16 while the tensor cores work on these. The accumulators of S, packed to 16 bits, already
// lie as the A operand wants them, so P never leaves its registers. O is divided by l once, at the very end.
DEVICE void add_values(Scores &s, const PerRow &m, PerRow &l, Output &o, u32 v_tile, u32 v_lane,
                       float c) {
    make_again(v_lane);
#pragma unroll
    for (int step = 0; step < BC / 16; ++step) {
        u32 p[ROW_TILES][4];
#pragma unroll
        for (int t = 0; t < ROW_TILES; ++t)
#pragma unroll
            for (int i = 0; i < 4; ++i) {  // (g, c), (g + 8, c), (g, c + 8), (g + 8, c + 8)
                const int half = i % 2;
                const float *at = &s[t][2 * step + i / 2][2 * half];
                const float low = exp2_fast(at[0] * c - m[t][half]);
                const float high = exp2_fast(at[1] * c - m[t][half]);
                l[t][half] += low + high;
                p[t][i] = pack2(low, high);
            }
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            u32 v[4];  // 16 keys x 16 columns
            load_matrix_x4_transposed(v, v_tile + moved(v_lane, step, n / 2));
#pragma unroll
            for (int t = 0; t < ROW_TILES; ++t) {
                mma_16x8x16(o[t][n], p[t], v[0], v[1]);
                mma_16x8x16(o[t][n + 1], p[t], v[2], v[3]);
            }
        }
    }
}

// ---- O and the log-sum-exp out -------------------------------------------------------------------------------------
// O goes through the warp's own rows of the Q tile, which nobody else reads: accumulators in, rows of 16 bytes out.
// `o_rows`, `lse_rows`: first row of this warp in memory, of which `valid` exist. A row that saw nothing: 0 and -inf.
DEVICE void store_output(Output &o, const PerRow &m, PerRow &l, u32 own_rows, char *o_rows, float *lse_rows,
                         int valid) {
    const int lane = thread_again() % 32;
    __syncwarp();  // other lanes have read Q there
#pragma unroll
    for (int t = 0; t < ROW_TILES; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = 16 * t + 8 * half + lane / 4;
            const float sum = quad_sum(l[t][half]);
            const float inverse = sum > 0.f ? 1.f / sum : 0.f;
            const float lse = sum > 0.f ? (m[t][half] + log2_fast(sum)) * LN_2 : NEG_INF;
            if (lane % 4 == 0 && row < valid) lse_rows[row] = lse;
#pragma unroll
            for (int n = 0; n < D / 8; ++n) {
                const u32 word = pack2(o[t][n][2 * half] * inverse, o[t][n][2 * half + 1] * inverse);
                store_shared_4(own_rows + swizzled<ROW_BYTES>(row, n) + 4 * (lane % 4), word);
            }
        }
    __syncwarp();
    for (u32 i = lane; i < ROWS * CHUNKS; i += 32) {
        const int row = i / CHUNKS, chunk = i % CHUNKS;
        if (row < valid)
            store_16(o_rows + row * ROW_BYTES + chunk * 16, load_shared_16(own_rows + swizzled<ROW_BYTES>(row, chunk)));
    }
}
