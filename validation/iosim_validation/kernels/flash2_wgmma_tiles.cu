// flash2_wgmma, sizes and tiles: what a thread block holds, and in which order the tiles of Q are taken.
// The constants in capitals come from the host (`rungs/flash2_wgmma.py`), which says which of them go together.

constexpr int BLOCK_ROWS = 64 * CONSUMERS;              // Br: 64 rows a consumer warpgroup
constexpr int THREADS = WARPGROUP * (1 + CONSUMERS);    // one more warpgroup, the producer
constexpr int HALVES = HEAD_DIM / BOX_COLUMNS;          // a row of d columns lies as 1 or 2 swizzled halves
constexpr int Q_HALF_BYTES = BLOCK_ROWS * SWIZZLE_ROW_BYTES, Q_BYTES = HALVES * Q_HALF_BYTES;
constexpr int KV_HALF_BYTES = BLOCK_COLS * SWIZZLE_ROW_BYTES, KV_BYTES = HALVES * KV_HALF_BYTES;

// Shared memory, from byte 0 (a multiple of 1024): Q | ring of K | ring of V | barriers | mailbox.
constexpr int K_AT = Q_BYTES, V_AT = K_AT + STAGES * KV_BYTES, BARRIERS_AT = V_AT + STAGES * KV_BYTES;
constexpr int BARRIER_BYTES = 8, RING_BARRIER_BYTES = STAGES * BARRIER_BYTES;
constexpr int Q_FULL_AT = BARRIERS_AT, Q_EMPTY_AT = Q_FULL_AT + BARRIER_BYTES;
constexpr int K_FULL_AT = Q_EMPTY_AT + BARRIER_BYTES, K_EMPTY_AT = K_FULL_AT + RING_BARRIER_BYTES;
constexpr int V_FULL_AT = K_EMPTY_AT + RING_BARRIER_BYTES, V_EMPTY_AT = V_FULL_AT + RING_BARRIER_BYTES;
constexpr int MAILBOX_AT = V_EMPTY_AT + RING_BARRIER_BYTES;
static_assert(MAILBOX_AT + 16 == SHARED_BYTES, "host and kernel disagree about shared memory");

// Accumulators a thread: a 64 x N product leaves N / 2 in each of 128 threads.
constexpr int SCORES = BLOCK_COLS / 2, OUTPUTS = HEAD_DIM / 2;

struct Problem { int seq_q, seq_k, heads, heads_per_kv, batch, tiles, group_heads; };

// One tile of Q rows of one head. It sees the first `blocks` blocks of K and V; the first `unmasked` of those lie wholly
// inside what every one of its rows sees.
struct Tile { int first_row, head, batch, blocks, unmasked; };

// Full: all row tiles of a head together, so that its K and V are read while they are in the L2 cache.
// Causal: rows near the end see the most. They come first, over a group of heads whose K and V fit in the cache
// together, so that the short ones fill the gaps at the end of the group.
DEVICE Tile tile_at(int index, const Problem &z) {
    Tile tile;
    const int row_tiles = ceil_div(z.seq_q, BLOCK_ROWS);
    int row_tile, plane;  // plane: head and batch in one number
#if CAUSAL
    const int group = index / (z.group_heads * row_tiles), left = index - group * z.group_heads * row_tiles;
    const int planes = min(z.group_heads, z.heads * z.batch - group * z.group_heads);
    row_tile = row_tiles - 1 - left / planes;
    plane = group * z.group_heads + left % planes;
#else
    plane = index / row_tiles;
    row_tile = index - plane * row_tiles;
#endif
    tile.first_row = row_tile * BLOCK_ROWS;
    tile.batch = plane / z.heads;
    tile.head = plane - tile.batch * z.heads;
    tile.blocks = ceil_div(z.seq_k, BLOCK_COLS);
    tile.unmasked = z.seq_k / BLOCK_COLS;
#if CAUSAL  // row r sees the keys up to r + seq_k - seq_q
    const int first_sees = tile.first_row + z.seq_k - z.seq_q + 1;  // keys that the first row sees
    // A tile that sees nothing goes through one block all the same: its masked scores give zeros without a special case.
    tile.blocks = max(1, min(tile.blocks, ceil_div(first_sees + BLOCK_ROWS - 1, BLOCK_COLS)));
    tile.unmasked = max(0, min(tile.unmasked, first_sees / BLOCK_COLS));
#endif
    return tile;
}
