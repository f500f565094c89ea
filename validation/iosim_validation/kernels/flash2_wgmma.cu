// flash2_wgmma: the forward pass of FlashAttention-2, written for Hopper.
//
//     O = softmax(scale Q Kᵀ + mask) V        lse = log Σ exp(scale Q Kᵀ + mask)        row by row
//
// LOOPS (the tile program `flash2`; K and V are walked from the last block to the first)
//
//     for every tile of Br rows of Q of one head                     a thread block takes one after the other
//         for every block of Bc rows of K and V that the tile sees
//             S = Q Kᵀ        P = exp2(c (S - max))        O = O rescale + P V        c = scale log2(e)
//         O / sum and lse go out
//
// BYTES between the L2 and one SM, for a tile that sees n blocks (elements of 2 bytes):
//     read 2 d Br of Q, 2 · 2 d Bc n of K and V        written 2 d Br of O, 4 Br of lse
// Nothing else moves: S and P live and die in registers. Rows past the end of a head are neither read nor written.
//
// WHO DOES WHAT. A thread block is 1 + C warpgroups of 128 threads, one block an SM, Br = 64 C.
//
//     warpgroup 0         producer     one thread of it: takes tiles from a counter, drives the copy engine
//     warpgroups 1 to C   consumers    64 rows each: products, softmax, output
//
//     registers a thread              launch   producer   consumer      (65,536 an SM)
//         C = 3, Br = 192             128      32         160           128 · 32 + 384 · 160 = 512 · 128 = 65,536
//         C = 2, Br = 128             168      24         240           128 · 24 + 256 · 240 = 384 · 168 = 64,512
//         C = 1, Br = 64              240      32         240
//     What the consumers take must have been given back: beyond (1 + C) · launch registers they would wait for ever.
//     S takes Bc / 2, O takes d / 2, P takes Bc / 4 or, where it replaces S, nothing.
//
// WHAT LIES WHERE in shared memory: Q [Br × d] | K ring [STAGES × Bc × d] | V ring, the same | barriers | mailbox.
//
// BARRIERS. A full one says that the bytes have landed, an empty one that their readers are done.
//
//     name        arrivals a phase             who waits    guards
//     q_full      producer, and the bytes      consumers    Q, and the mailbox with the number of the tile
//     q_empty     every consumer thread        producer     the same two; see THE MAILBOX
//     k_full[s]   producer, and the bytes      consumers    slot s of the ring of K; v_full likewise
//     k_empty[s]  every consumer warpgroup     producer     the same slot; v_empty likewise
//     turn 1..3   named barriers: 128 threads announce, 128 wait; `turn n` lets consumer n - 1 issue
//
// TIME, with C = 3 and turns. A consumer issues P V of the block before and then Q Kᵀ of this one in one go; its softmax
// runs while the two others multiply, so the tensor cores always have a customer.
//
//     copy engine    K₇ Q  K₆ V₇     K₅ V₆     K₄ V₅  ...           up to STAGES blocks ahead of the slowest consumer
//     consumer 0     [PV QK]--softmax-------[PV QK]--softmax-------[PV QK]
//     consumer 1            [PV QK]--softmax-------[PV QK]--softmax-------[PV QK]
//     consumer 2                   [PV QK]--softmax-------[PV QK]--softmax-------
//     tensor cores   [  0  ][  1  ][  2  ][  0  ][  1  ][  2  ][  0  ]  ...
//
// OVERLAP is the other way to hide the softmax, inside one warpgroup: Q Kᵀ of block j goes out together with P V of
// block j + 1 (the one before: the walk goes down), and the softmax of j runs beside the second product. P then needs
// registers of its own.
//
//     consumer       [QK₆ PV₇-----]                  [QK₅ PV₆-----]
//                          --softmax₆--                    --softmax₅--
//
// THE MAILBOX. The producer takes the next tile while the consumers finish the last one, and fetches its first K and V.
// It may write the next number only when every consumer thread has read the last, and an arrival speaks for the thread
// that makes it: so all of them arrive at q_empty, once a tile. For K and V one thread speaks for its warpgroup: a
// product is one operation of all four warps, which none can see complete before all have issued it.
//
// WHAT EACH CHOICE GAINED is in docs/kernels/hopper.md, with numbers.
//
// BUILT FOR sm_90a (wgmma exists nowhere else); fp16 and bf16; d = 64 and 128; full and causal; any N and strides, GQA.
//     Br = 192, C = 3    Bc = 64, 96, 128              turns; overlap at d = 64 only (at 128 P has no registers)
//     Br = 128, C = 2    Bc = 64, 128, 160             overlap, no turns (with two they cost more than they order)
//     Br = 64,  C = 1    Bc = 64, 96, 128, 160, 192    overlap
// Default: 128 columns, and the rows with which the busiest SM is done first (rungs/flash2_wgmma.py).

struct Ring {  // STAGES slots; the phase is the parity of the lap
    u32 full, empty;  // addresses of the barriers of slot 0
    u32 slot, phase;
    DEVICE u32 slot_full() const { return full + slot * BARRIER_BYTES; }
    DEVICE u32 slot_empty() const { return empty + slot * BARRIER_BYTES; }
    DEVICE void next() {
        if (++slot == STAGES) {
            slot = 0;
            phase ^= 1;
        }
    }
};

// ---- the producer: one thread ---------------------------------------------------------------------------------------
DEVICE void load_block(const TensorMap *map, u32 ring_data, Ring &ring, int block, int head, int batch) {
    barrier_wait(ring.slot_empty(), ring.phase ^ 1);  // passes at once on the first lap
    barrier_arrive_expecting(ring.slot_full(), KV_BYTES);
#pragma unroll
    for (int half = 0; half < HALVES; ++half)
        copy_box(ring_data + ring.slot * KV_BYTES + half * KV_HALF_BYTES, map, ring.slot_full(), half * BOX_COLUMNS,
                 block * BLOCK_COLS, head, batch);
    ring.next();
}

// Tiles come from a counter, not dealt beforehand, since causal tiles differ. Every block counts one for each of its
// tiles (the first is its own index; its last count tells it to stop), so `tiles` counts in all, and a counter that
// wraps after `tiles` is back at zero for the next launch.
DEVICE void produce(const TensorMap *q_map, const TensorMap *k_map, const TensorMap *v_map, u32 shared,
                    volatile int *mailbox, u32 *counter, const Problem &z) {
    Ring k = {shared + K_FULL_AT, shared + K_EMPTY_AT, 0, 0}, v = {shared + V_FULL_AT, shared + V_EMPTY_AT, 0, 0};
    u32 q_phase = 0;
    int index = blockIdx.x;
    for (; index < z.tiles; index = gridDim.x + atomicInc(counter, z.tiles - 1)) {
        const Tile tile = tile_at(index, z);
        const int kv_head = tile.head / z.heads_per_kv;
        int block = tile.blocks - 1;
        load_block(k_map, shared + K_AT, k, block, kv_head, tile.batch);
        barrier_wait(shared + Q_EMPTY_AT, q_phase ^ 1);
        q_phase ^= 1;
        *mailbox = index;
        barrier_arrive_expecting(shared + Q_FULL_AT, Q_BYTES);
#pragma unroll
        for (int half = 0; half < HALVES; ++half)
            copy_box(shared + half * Q_HALF_BYTES, q_map, shared + Q_FULL_AT, half * BOX_COLUMNS, tile.first_row,
                     tile.head, tile.batch);
#pragma unroll 1  // unrolled, it would need more than the producer's registers
        for (; block > 0; --block) {  // in the order in which the consumers want them: K a block ahead of V
            load_block(k_map, shared + K_AT, k, block - 1, kv_head, tile.batch);
            load_block(v_map, shared + V_AT, v, block, kv_head, tile.batch);
        }
        load_block(v_map, shared + V_AT, v, 0, kv_head, tile.batch);
    }
    barrier_wait(shared + Q_EMPTY_AT, q_phase ^ 1);
    *mailbox = index;  // no tile has this number: the consumers stop
    barrier_arrive(shared + Q_FULL_AT);
}

// ---- a consumer: one warpgroup --------------------------------------------------------------------------------------
struct Consumer {
    int number;   // 0 to C - 1
    bool leader;  // the thread that speaks for the warpgroup
    u64 q_operand, k_operand, v_operand;  // descriptors of its rows of Q and of slot 0 of the rings
    Ring k, v;
    float c;
    float s[SCORES], o[OUTPUTS];
    u32 p[SCORES / 2];
    RowState row;
};

// Barriers 1 to 3, literals; barrier 0 is __syncthreads. At the end one announcement is left over, which is allowed.
DEVICE void turn_wait(int number) {
    if (!TURNS) return;
    if (number == 0) named_wait<1, 2 * WARPGROUP>();
    else if (number == 1) named_wait<2, 2 * WARPGROUP>();
    else named_wait<3, 2 * WARPGROUP>();
}
DEVICE void turn_announce(int number) {
    if (!TURNS) return;
    if (number == 0) named_announce<1, 2 * WARPGROUP>();
    else if (number == 1) named_announce<2, 2 * WARPGROUP>();
    else named_announce<3, 2 * WARPGROUP>();
}
DEVICE void turn_pass(int number) { turn_announce(number + 1 == CONSUMERS ? 0 : number + 1); }

DEVICE void wait_full(const Ring &ring) { barrier_wait(ring.slot_full(), ring.phase); }
DEVICE void release(Ring &ring, bool leader) {
    if (leader) barrier_arrive(ring.slot_empty());
    ring.next();
}

DEVICE void issue_scores(Consumer &me) {  // S = Q Kᵀ, 16 columns of d an instruction, 4 instructions a half
    const u64 k = me.k_operand + me.k.slot * operand_step(KV_BYTES);
    products_begin();
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 16; ++i)
        product_qk(me.s, me.q_operand + operand_step(i / 4 * Q_HALF_BYTES + i % 4 * 32),
                   k + operand_step(i / 4 * KV_HALF_BYTES + i % 4 * 32), i > 0);
    products_commit();
}
DEVICE void issue_output(Consumer &me) {  // O += P V, 16 rows of V an instruction
    const u64 v = me.v_operand + me.v.slot * operand_step(KV_BYTES);
    products_begin();
#pragma unroll
    for (int i = 0; i < BLOCK_COLS / 16; ++i)
        product_pv(me.o, me.p + 4 * i, v + operand_step(i * 16 * SWIZZLE_ROW_BYTES), 1);
    products_commit();
}

// One block of K, and V of the block before, whose weights wait in `p`.
template <bool MASKED> DEVICE void step(Consumer &me, int block, int index, const Problem &z) {
#if OVERLAP
    wait_full(me.k);
    turn_wait(me.number);
    issue_scores(me);
    wait_full(me.v);
    issue_output(me);
    turn_pass(me.number);
    products_wait<1>();  // the scores are there, the output still at work
    changed(me.s);
    release(me.k, me.leader);
    if (MASKED) {
        mask_scores(me.s, block * BLOCK_COLS, index, z);
        changed(me.s);
    }
    softmax<false>(me.s, me.row, me.c);
    products_wait<0>();
    changed(me.o);
    release(me.v, me.leader);
#else
    wait_full(me.v);
    turn_wait(me.number);
    issue_output(me);
    wait_full(me.k);
    products_wait<0>();  // the weights have been read: the scores may take their registers
    changed(me.o);
    issue_scores(me);
    turn_pass(me.number);
    release(me.v, me.leader);
    products_wait<0>();
    changed(me.s);
    release(me.k, me.leader);
    if (MASKED) {
        mask_scores(me.s, block * BLOCK_COLS, index, z);
        changed(me.s);
    }
    softmax<false>(me.s, me.row, me.c);
#endif
    pack_weights(me.s, me.p);
    rescale_output(me.o, me.row);
}

// A causal tile's last blocks may lie wholly to the right of this warpgroup's 64 rows: their slots and its turns are
// handed on, nothing is computed.
DEVICE void skip_block(Consumer &me) {
    wait_full(me.k);
    release(me.k, me.leader);
    wait_full(me.v);
    release(me.v, me.leader);
    turn_wait(me.number);
    turn_pass(me.number);
}

DEVICE void consume_tile(Consumer &me, u32 shared, int index, const Problem &z) {
    const Tile tile = tile_at(index, z);
    int block = tile.blocks - 1;
#pragma unroll
    for (int i = 0; i < OUTPUTS; ++i) me.o[i] = 0.f;
#if CAUSAL
    const int last_key = tile.first_row + me.number * 64 + 63 + z.seq_k - z.seq_q;  // that its last row sees
    for (; block > 0 && block * BLOCK_COLS > last_key; --block) skip_block(me);
#endif
    // First block: scores and softmax only. It is the one that the end of the keys crosses.
    wait_full(me.k);
    issue_scores(me);
    products_wait<0>();
    changed(me.s);
    release(me.k, me.leader);
    if (block >= tile.unmasked) mask_scores(me.s, block * BLOCK_COLS, index, z);
    softmax<true>(me.s, me.row, me.c);
    pack_weights(me.s, me.p);
    --block;
    // Masked blocks, those on the diagonal, in a loop of their own: the one that does the work has no test for it.
#if CAUSAL
#pragma unroll 1
    for (; block >= tile.unmasked; --block) step<true>(me, block, index, z);
#endif
#pragma unroll 1
    for (; block >= 0; --block) step<false>(me, block, index, z);
    barrier_arrive(shared + Q_EMPTY_AT);  // every thread for itself: it has read Q and the mailbox for the last time
    wait_full(me.v);
    issue_output(me);
    products_wait<0>();
    changed(me.o);
    release(me.v, me.leader);
}

DEVICE void consume(u32 shared, const volatile int *mailbox, int number, const Output &out, const Problem &z, float c) {
    Consumer me;
    me.number = number;
    me.leader = threadIdx.x % WARPGROUP == 0;
    me.c = c;
    me.q_operand = operand(shared + number * 64 * SWIZZLE_ROW_BYTES, 16);
    me.k_operand = operand(shared + K_AT, 16);
    me.v_operand = operand(shared + V_AT, KV_HALF_BYTES);
    me.k = {shared + K_FULL_AT, shared + K_EMPTY_AT, 0, 0};
    me.v = {shared + V_FULL_AT, shared + V_EMPTY_AT, 0, 0};
    if (number == 0) turn_announce(0);  // the first turn is free
    u32 q_phase = 0;
    while (true) {
        barrier_wait(shared + Q_FULL_AT, q_phase);
        // Either place is right. Early, the compiler orders the full loop better (3 %); late, the causal one has no spill.
        if (!CAUSAL) q_phase ^= 1;
        const int index = __shfl_sync(~0u, *mailbox, 0);  // the shuffle tells the compiler that it is uniform
        if (index >= z.tiles) break;
        consume_tile(me, shared, index, z);
        store_tile(me.o, me.row, out, index, z, number, c);
        if (CAUSAL) q_phase ^= 1;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)  // without the 1 the registers cannot be moved
flash2_wgmma(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
             const __grid_constant__ TensorMap v_map, u16 *o, float *lse, i64 o_batch_stride, i64 o_head_stride,
             i64 o_row_stride, int seq_q, int seq_k, int heads, int heads_per_kv, int batch, int tiles,
             int group_heads, u32 *counter, float scale_log2) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 shared = shared_address(memory);
    volatile int *mailbox = (volatile int *)(memory + MAILBOX_AT);
    const Problem z = {seq_q, seq_k, heads, heads_per_kv, batch, tiles, group_heads};
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / WARPGROUP, 0);
    if (threadIdx.x == 0) {
        barrier_init(shared + Q_FULL_AT, 1);
        barrier_init(shared + Q_EMPTY_AT, CONSUMERS * WARPGROUP);
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(shared + K_FULL_AT + i * BARRIER_BYTES, 1);
            barrier_init(shared + V_FULL_AT + i * BARRIER_BYTES, 1);
            barrier_init(shared + K_EMPTY_AT + i * BARRIER_BYTES, CONSUMERS);
            barrier_init(shared + V_EMPTY_AT + i * BARRIER_BYTES, CONSUMERS);
        }
        barrier_init_done();
    }
    __syncthreads();
    if (warpgroup == 0) {
        registers_give_back<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce(&q_map, &k_map, &v_map, shared, mailbox, counter, z);
    } else {
        registers_take<CONSUMER_REGISTERS>();
        const Output out = {o, lse, o_batch_stride, o_head_stride, o_row_stride};
        consume(shared, mailbox, warpgroup - 1, out, z, scale_log2);
    }
}
