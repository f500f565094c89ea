// FlashAttention-1, forward, with its loops as printed: keys outside, queries inside.
//
//                      Q_i, O_i, m_i, l_i  (i runs inside)
//                    +-----+-----+-----+-----+
//   K_j, V_j         |  O_0 and its statistics come in, take the keys of tile j in, and go out again: so do
//   (j runs outside) |  O_1, O_2 ... and all of them once more for j + 1
//                    +-----+-----+-----+-----+
//
// One thread block a (batch, head) does all of it, so nothing has to be agreed between blocks; a batch of few heads
// leaves most of the GPU idle. That, and O going through memory for every key tile, is what FlashAttention-2 changed.
//
// Where things live: K_j and V_j [KEYS x D] in shared memory for a whole inner loop; Q_i [ROWS x D] in one of two
// slots there, the next one on its way by cp.async; S, P and O_i of 16 rows in the registers of a warp (mma.sync,
// ROWS / 16 warps); between two visits O_i in fp32 scratch `o_between` [batch, heads, n_q, D] and the statistics in
// `m`, `l` [batch, heads, n_q rounded up to 8], fp32: each head's begin on a sector of 32 bytes, and the 8 rows that a
// warp asks for at once are one sector and not two. A warp has a waiting room of its own in shared memory for its rows of O: O_i+1
// comes in there by cp.async from when O_i has left it for the registers until it is needed itself, so that the way
// through memory runs beside the products. After the last key tile O is rounded and the log-sum-exp written.
//
// In words of the tile program `flash1` (variant=fp32-between), read and written a head at
// Tc = ceil(n_k / KEYS), full mask:
//   read    n_k * 4D  +  Tc * n_q * 2D  +  (Tc - 1) * n_q * (4D + 8)  +  n_q * (4D + 8)
//           K and V      Q                 O, m and l again               O, m and l for the last time
//   write   Tc * n_q * (4D + 8)  +  n_q * (2D + 4)
//           O, m and l              O rounded, log-sum-exp
// CAUSAL: query r sees keys 0 .. r + n_k - n_q; row tiles above the diagonal of a key tile are not visited.
// Numbers are kept in units of log2: exp(s) = exp2(s * log2 e).
//
// Built for sm_80 and later; D = 32, 64, 96, 128; ROWS = 64, 128; KEYS = 64, 128; fp16, bf16. (At D = 256
// O of 16 rows takes 128 of the 255 registers of a thread, and the rest spills.)
// Shared memory: 4D * (2 ROWS + KEYS) bytes.

constexpr int THREADS = ROWS / 16 * 32, Q_BYTES = ROWS * D * 2, KV_BYTES = KEYS * D * 2;
constexpr int QK_UNROLL = D * KEYS > 128 * 64 ? 1 : D / 16;  // fewer addresses in registers where those are scarce
constexpr int KEY_BLOCKS = KEYS / 8, OUT_BLOCKS = D / 8;  // accumulators of 16 x 8

// Past the L1: written by one pass and read by the next.
DEVICE float load_one(const float *from) {
    float r;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(r) : "l"(from) : "memory");
    return r;
}
DEVICE void store_pair(float *to, float x, float y) {
    asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x), "f"(y) : "memory");
}

struct Head {  // of one (batch, head): what goes through memory between visits
    float *o, *m, *l;
    int n_q, n_k;
};

constexpr int ROOM_BYTES = 16 * D * 4;  // a warp's waiting room for its rows of O

// Starts the way of 16 rows of O, from `row` on, into the waiting room.
DEVICE void fetch_o(const Head &head, u32 room, i64 row, int lane) {
#pragma unroll 4
    for (int n = lane; n < 16 * D / 4; n += 32) {
        const int r = n / (D / 4), chunk = n % (D / 4);
        const bool inside = row + r < head.n_q;
        const float *from = inside ? head.o + (row + r) * D + 4 * chunk : head.o;
        copy_async_16(room + swizzled<D * 4>(r, chunk), from, inside);
    }
}
// Out of the waiting room, as accumulators of mma.sync, brought to the new maximum.
DEVICE void take_o(float (&o)[OUT_BLOCKS][4], const char *room, const float (&factor)[2], int lane) {
#pragma unroll
    for (int b = 0; b < OUT_BLOCKS; ++b)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const u32 at = swizzled<D * 4>(lane / 4 + 8 * half, 2 * b + lane % 4 / 2) + lane % 2 * 8;
            const float2 pair = *(const float2 *)(room + at);
            o[b][2 * half] = pair.x * factor[half];
            o[b][2 * half + 1] = pair.y * factor[half];
        }
}

// Lines 9 to 13 of the algorithm for 16 rows of a warp. `row`: this lane's first row; the other is 8 below.
// `more`: another row tile follows in this pass.
DEVICE void visit(const Head &head, const char *room, u32 q_tile, u32 k_tile, u32 v_tile, int row, int key, float scale,
                  bool masked, bool fresh, bool more, int warp, int lane) {
    float m[2] = {LOWEST, LOWEST}, l[2] = {};
    const int column = lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // asked for now, needed after S is there
        const int r = row + 8 * half;
        if (fresh || r >= head.n_q) continue;
        m[half] = load_one(head.m + r);
        l[half] = load_one(head.l + r);
    }
    float s[KEY_BLOCKS][4] = {};
#pragma unroll QK_UNROLL
    for (int step = 0; step < D / 16; ++step) {
        u32 a[4], b[4];
        load_rows<D>(a, q_tile, 16 * warp, step, lane);
#pragma unroll
        for (int x = 0; x < KEY_BLOCKS / 2; ++x) {
            load_keys<D>(b, k_tile, 16 * x, step, lane);
            mma_16x8x16(s[2 * x], a, b[0], b[1]);
            mma_16x8x16(s[2 * x + 1], a, b[2], b[3]);
        }
    }
    u32 p[KEY_BLOCKS][2];
    float before[2], reciprocal[2];  // what O so far is multiplied by, and what O is in the end
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int seen = head.n_k;  // keys that this row sees
        if (CAUSAL) seen = min(seen, row + 8 * half + head.n_k - head.n_q + 1);
        float largest = LOWEST, sum = 0.f;
#pragma unroll
        for (int x = 0; x < KEY_BLOCKS; ++x)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
                s[x][i] *= scale;
                if (masked && key + 8 * x + column + (i & 1) >= seen) s[x][i] = NEG_INF;
                largest = fmaxf(largest, s[x][i]);
            }
        largest = quad_max(largest);
#pragma unroll
        for (int x = 0; x < KEY_BLOCKS; ++x)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
                s[x][i] = exp2_fast(s[x][i] - largest);
                sum += s[x][i];
            }
        sum = quad_sum(sum);
        const float m_new = fmaxf(m[half], largest);
        const float alpha = exp2_fast(m[half] - m_new), beta = exp2_fast(largest - m_new);
        const float old = alpha * l[half], l_new = old + beta * sum;
#pragma unroll
        for (int x = 0; x < KEY_BLOCKS; ++x) p[x][half] = pack2(beta * s[x][2 * half], beta * s[x][2 * half + 1]);
        before[half] = old;
        reciprocal[half] = l_new > 0.f ? 1.f / l_new : 0.f;
        m[half] = m_new;
        l[half] = l_new;
    }
    float o[OUT_BLOCKS][4] = {};
    copy_wait<1>();  // the newest group is the next Q; O came before
    __syncwarp();
    if (!fresh) take_o(o, room, before, lane);
    __syncwarp();  // the room is empty
    if (!fresh && more) fetch_o(head, shared_address(room), row - lane / 4 + ROWS, lane);
    copy_commit();
#pragma unroll
    for (int step = 0; step < KEYS / 16; ++step) {
        // Two neighbouring accumulators of S are the A operand of 16 keys as they stand.
        const u32 a[4] = {p[2 * step][0], p[2 * step][1], p[2 * step + 1][0], p[2 * step + 1][1]};
#pragma unroll
        for (int x = 0; x < OUT_BLOCKS / 2; ++x) {
            u32 b[4];
            load_values<D>(b, v_tile, 16 * x, step, lane);
            mma_16x8x16(o[2 * x], a, b[0], b[1]);
            mma_16x8x16(o[2 * x + 1], a, b[2], b[3]);
        }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int r = row + 8 * half;
        if (r >= head.n_q) continue;
#pragma unroll
        for (int b = 0; b < OUT_BLOCKS; ++b)
            store_pair(head.o + (i64)r * D + 8 * b + column, o[b][2 * half] * reciprocal[half],
                       o[b][2 * half + 1] * reciprocal[half]);
        if (lane % 4 == 0) {
            head.m[r] = m[half];
            head.l[r] = l[half];
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
flash1(const u16 *q, const u16 *k, const u16 *v, u16 *o, float *lse, float *o_between, float *m, float *l, int n_q,
       int n_k, int heads, int kv_heads, float scale) {
    extern __shared__ __align__(128) char shared[];
    const u32 k_tile = shared_address(shared), v_tile = k_tile + KV_BYTES, q_slots = v_tile + KV_BYTES;
    const u32 rooms = 2 * KV_BYTES + 2 * Q_BYTES;
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const i64 head = blockIdx.x, kv_head = head / heads * kv_heads + head % heads / (heads / kv_heads);
    const i64 first_row = head * n_q;
    q += first_row * D, o += first_row * D, lse += first_row;
    k += kv_head * n_k * D, v += kv_head * n_k * D;
    const i64 first_statistic = head * (ceil_div(n_q, 8) * 8);
    const Head own = {o_between + first_row * D, m + first_statistic, l + first_statistic, n_q, n_k};
    const int row_tiles = ceil_div(n_q, ROWS), key_tiles = ceil_div(n_k, KEYS), offset = n_k - n_q;

    // Row tiles that no key tile visits: the first n_q - n_k queries of a causal mask see nothing.
    const int blind = CAUSAL ? max(0, -offset) / ROWS : 0;
    for (i64 n = thread; n < (i64)blind * ROWS * D / 2; n += THREADS) store_pair(own.o + 2 * n, 0.f, 0.f);
    for (int r = thread; r < blind * ROWS; r += THREADS) own.m[r] = LOWEST, own.l[r] = 0.f;

    char *room = shared + rooms + warp * ROOM_BYTES;
    auto fetch_q = [&](int i, int slot) {
        const i64 row = (i64)i * ROWS;
        copy_tile<ROWS, D, THREADS>(q_slots + slot * Q_BYTES, q + row * D, D, n_q - row, D, thread);
    };
#pragma unroll 1
    for (int j = 0; j < key_tiles; ++j) {
        const i64 key = (i64)j * KEYS;
        const int first = CAUSAL ? max(0, j * KEYS - offset) / ROWS : 0;
        __syncthreads();  // everyone is done with K and V of the tile before, and O of the pass before is written
        copy_tile<KEYS, D, THREADS>(k_tile, k + key * D, D, n_k - key, D, thread);
        copy_tile<KEYS, D, THREADS>(v_tile, v + key * D, D, n_k - key, D, thread);
        const bool fresh = j == 0;
        fetch_q(first, 0);
        copy_commit();
        if (!fresh) fetch_o(own, shared_address(room), (i64)first * ROWS + 16 * warp, lane);
        copy_commit();
        int slot = 0;
#pragma unroll 1
        for (int i = first; i < row_tiles; ++i, slot ^= 1) {
            copy_wait<1>();   // the newest group is O_i, which is needed later
            __syncthreads();  // Q_i has landed for all, and everyone is done with the other slot
            const bool more = i + 1 < row_tiles;
            if (more) fetch_q(i + 1, slot ^ 1);
            copy_commit();
            const bool masked = key + KEYS > n_k || (CAUSAL && key + KEYS - 1 > i * ROWS + offset);
            const int row = i * ROWS + 16 * warp + lane / 4;
            const u32 q_tile = q_slots + slot * Q_BYTES;
            visit(own, room, q_tile, k_tile, v_tile, row, key, scale * LOG2_E, masked, fresh, more, warp, lane);
        }
    }

    // O and the statistics a last time: O in 16 bits, m and l become one number.
    __syncthreads();
#pragma unroll 4
    for (i64 n = thread; n < (i64)n_q * D / 4; n += THREADS) {  // neighbours read neighbours: no sector twice
        const uint4 x = load_16(own.o + 4 * n);
        const u32 low = pack2(__uint_as_float(x.x), __uint_as_float(x.y));
        const u32 high = pack2(__uint_as_float(x.z), __uint_as_float(x.w));
        *(uint2 *)(o + 4 * n) = make_uint2(low, high);
    }
    for (int r = thread; r < n_q; r += THREADS) {
        const float sum = load_one(own.l + r);
        lse[r] = sum > 0.f ? load_one(own.m + r) * LN_2 + log2_fast(sum) * LN_2 : NEG_INF;
    }
}
