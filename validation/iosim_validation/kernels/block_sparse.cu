// block_sparse: flash2 driven by a block mask. For sm_80 and later; needs common_mma.cu and common_flash2.cu.
//
//     Q, O [batch, heads, seq_q, D], K, V [batch, kv_heads, seq_k, D] in fp16 or bf16; lse [batch, heads, seq_q] fp32
//
//     block mask, tiles of BR x BC             lists in memory, one for every row tile
//        . # . . #                             starts 0 2 5 ...       [row tiles + 1]
//        # # . . #            -->              tiles  4 1 4 1 0 ...   column tiles, the last one first
//        ...                                   edges  1 1 ...         [row tiles] how many of them need the mask
//
// The loop is that of flash2 (its picture: flash2.cu), but where flash2 takes tile j - 1 after tile j, this one takes
// the next number of a list, and fetches the number after it a step ahead. A hidden tile costs nothing: neither its K
// and V nor its products. All heads share the mask. Numbers fall along a list, so that the tiles which the diagonal
// or the ragged end crosses come first, as in flash2. A row tile with an empty list gives o = 0 and lse = -inf.
//
// Bytes, as the tile program `flash2` with `block-mask` counts them, a head:
//     slow memory -> chip  Q once (of row tiles that see anything), K and V of every tile in the lists
//     chip -> slow memory  O once, 4 bytes a row of lse
// and 4 bytes a step for the list, which the program leaves out: one part in ten thousand.
//
// Built for: what flash2 is built for, with the same tiles but one: 128 x 64 at D 128 would spill on sm_80 and sm_89
// (designs.py).

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
block_sparse(const char *q, const char *k, const char *v, char *o, float *lse, int seq_q, int seq_k, int kv_heads,
             int diagonal, float scale, const int *starts, const int *tiles, const int *edges) {
    extern __shared__ __align__(128) char shared[];
    const u32 q_tile = shared_address(shared), k_ring = q_tile + Q_BYTES, v_ring = k_ring + 2 * KV_BYTES;
    const Problem p = {seq_q, seq_k, kv_heads, diagonal, scale};
    const int tile_row = blockIdx.x * BR, warp_row = uniform(threadIdx.x / 32) * ROWS;

    const int last = starts[blockIdx.x + 1];
    int at = starts[blockIdx.x];           // place in the list of the tile in use
    const int edge = at + edges[blockIdx.x];  // before it, tiles need the mask

    Output out = {};
    PerRow m, l;
#pragma unroll
    for (int t = 0; t < ROW_TILES; ++t) m[t][0] = m[t][1] = LOWEST, l[t][0] = l[t][1] = 0.f;

    const u32 kv_head = blockIdx.z * kv_heads + blockIdx.y / (gridDim.y / kv_heads);
    const u32 kv_row = uniform(kv_head * seq_k);  // of the first key of this head, in K and V
    int key = 0;                                  // first key of the tile in use
    if (at < last) {
        key = tiles[at] * BC;
        const i64 first = (i64)(kv_row + key) * ROW_BYTES;
        load_tile<BR, true>(q_tile, q + (i64)first_row_of_tile(p) * ROW_BYTES, seq_q - tile_row);
        load_tile<BC, true>(k_ring, k + first, seq_k - key);
        load_tile<BC, true>(v_ring, v + first, seq_k - key);
    }
    copy_commit();
    int next_key = at + 1 < last ? tiles[at + 1] * BC : 0;

    const u32 own_rows = q_tile + warp_row * ROW_BYTES;
    const u32 row_lane = lane_by_rows(), chunk_lane = lane_by_chunks();
    u32 half = 0;  // of the rings, in bytes: where the tile in use lies

    // As in flash2: wait for this tile, send for the next one of the list, multiply; then absorb.
    const auto arrive = [&](Scores &s) {
        copy_wait<0>();
        __syncthreads();
        if (at + 1 < last) {
            const i64 next = (i64)(kv_row + next_key) * ROW_BYTES;
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
        key = next_key;
        next_key = at + 2 < last ? tiles[at + 2] * BC : 0;
    };

    for (; at < edge; ++at) {
        Scores s;
        arrive(s);
        hide(s, p, tile_row + warp_row, key);
        absorb(s);
    }
    for (; at < last; ++at) {
        Scores s;
        arrive(s);
        absorb(s);
    }
    const u32 row = thread_again() / 32 * ROWS;
    const i64 first_row = first_row_of_tile(p) + row;
    store_output(out, m, l, q_tile + row * ROW_BYTES, o + first_row * ROW_BYTES, lse + first_row,
                 seq_q - row_tile_again() * BR - row);
}
