// flash2: FlashAttention-2 forward on mma.sync, for sm_80 and later.
//
//     O = softmax(scale Q K^T + mask) V,   lse = log sum exp(scale Q K^T + mask)
//     Q, O [batch, heads, seq_q, D], K, V [batch, heads / group, seq_k, D] in fp16 or bf16; lse [batch, heads, seq_q]
//
//                    K_j, V_j  (BC rows)                  one thread block: one row tile i of one head
//               +-----+-----+-----+-----+
//     Q_i  -->  | <-- | <-- | <-- | <-- |  -->  O_i       K and V stream past it, last tile first; O stays in
//   (BR rows)   +-----+-----+-----+-----+       lse_i     registers, unnormalised, and is divided by l once
//
//     grid (row tiles, heads, batch), row tiles fastest: blocks that run side by side share the K and V of a head
//
//     tensor cores  |  S_j = Q K_j^T  |           |  O += P V_j     |  S_j-1 ...        two or three blocks share an
//     other units   |                 |  softmax  |  exp of 16 keys |                   SM, so that one multiplies
//     copies        |  K_j-1 and V_j-1 on their way from L2 to the other half of the ring     while another exponentiates
//
// One barrier a step: when it opens, tile j has landed and everybody is done with the ring half that j + 1 was in, so
// the copies of j - 1 may overwrite it. They have the whole step to arrive.
// Walking from the last tile to the first meets the tiles that need a mask (the diagonal, the ragged end) first; the
// loop after it carries no compare. Tiles wholly past the diagonal are never touched.
//
// Bytes, as the tile program `flash2` (lse=on) counts them, a head:
//     slow memory -> chip  Q once, and K and V once for each row tile (under a causal mask: the tiles it sees)
//     chip -> slow memory  O once, 4 bytes a row of lse
//     shared memory, a step: K and V filled once, read once by every warp; Q read once
//
// Built for: sm_80, sm_89, sm_90, sm_100; BF16 0 and 1; D 32, 64, 96, 128 with BR x BC of {64, 128} x {32, 64, 128} and
// D 256 with {64, 128} x {32, 64}; WARPS, BLOCKS (an SM), UNROLL and FORGET follow from these (designs.py). Everything
// else is refused before launch. What each choice gained on an H200: docs/kernels/flash2.md.

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
flash2(const char *q, const char *k, const char *v, char *o, float *lse, int seq_q, int seq_k, int kv_heads,
       int diagonal, float scale) {
    extern __shared__ __align__(128) char shared[];
    const u32 q_tile = shared_address(shared), k_ring = q_tile + Q_BYTES, v_ring = k_ring + 2 * KV_BYTES;
    const Problem p = {seq_q, seq_k, kv_heads, diagonal, scale};
    const int tile_row = blockIdx.x * BR, warp_row = uniform(threadIdx.x / 32) * ROWS;

    // Tiles [0, seen) hold a key that some row sees; in [0, whole) every row sees every key.
    const int last_row = min(tile_row + BR, seq_q) - 1;
    const int seen = ceil_div(max(0, min(seq_k, last_row + diagonal + 1)), BC);
    const int whole = max(0, min(seq_k, tile_row + diagonal + 1)) / BC;

    Output out = {};
    PerRow m, l;
#pragma unroll
    for (int t = 0; t < ROW_TILES; ++t) m[t][0] = m[t][1] = LOWEST, l[t][0] = l[t][1] = 0.f;

    int j = seen - 1;
    const u32 kv_head = blockIdx.z * kv_heads + blockIdx.y / (gridDim.y / kv_heads);
    const u32 kv_row = uniform(kv_head * seq_k);  // of the first key of this head, in K and V
    if (seen > 0) {
        load_tile<BR, true>(q_tile, q + (i64)first_row_of_tile(p) * ROW_BYTES, seq_q - tile_row);
        const i64 first = (i64)(kv_row + j * BC) * ROW_BYTES;
        load_tile<BC, true>(k_ring, k + first, seq_k - j * BC);
        load_tile<BC, true>(v_ring, v + first, seq_k - j * BC);
    }
    copy_commit();

    const u32 own_rows = q_tile + warp_row * ROW_BYTES;
    const u32 row_lane = lane_by_rows(), chunk_lane = lane_by_chunks();
    u32 half = 0;  // of the rings, in bytes: where tile j lies

    // What happens at every step around the mask: wait for tile j, send for tile j - 1, multiply; then absorb.
    const auto arrive = [&](Scores &s) {
        copy_wait<0>();
        __syncthreads();
        if (j > 0) {
            const i64 next = (i64)(kv_row + (j - 1) * BC) * ROW_BYTES;
            load_tile<BC, false>(k_ring + (KV_BYTES - half), k + next, BC);
            load_tile<BC, false>(v_ring + (KV_BYTES - half), v + next, BC);
        }
        copy_commit();
        matmul_scores(s, own_rows, row_lane, k_ring + half, chunk_lane);
    };
    const auto absorb = [&](Scores &s) {
        raise_reference(s, m, l, out, scale);
        add_values(s, m, l, out, v_ring + half, row_lane, scale);
        half = KV_BYTES - half;
    };

    for (; j >= whole; --j) {
        Scores s;
        arrive(s);
        hide(s, p, tile_row + warp_row, j * BC);
        absorb(s);
    }
    for (; j >= 0; --j) {
        Scores s;
        arrive(s);
        absorb(s);
    }
    const u32 row = thread_again() / 32 * ROWS;
    const i64 first_row = first_row_of_tile(p) + row;
    store_output(out, m, l, q_tile + row * ROW_BYTES, o + first_row * ROW_BYTES, lse + first_row,
                 seq_q - row_tile_again() * BR - row);
}
