// Standard attention, second of three kernels: P = softmax(S), row by row, in one of four ways.
//
//                     passes over S   accesses an element            what is kept on chip
//   SOFTMAX 0 naive        2          3: sum of exp; divide          one sum: no maximum, large scores overflow
//   SOFTMAX 1 safe         3          4: maximum; sum; divide        the maximum, the sum
//   SOFTMAX 2 online       2          3: both at once; divide        the maximum and the sum, rescaled as it grows
//   SOFTMAX 3 fused        1          2: read; write                 the whole row, in registers
//
// One thread block of THREADS threads a row; a thread takes every THREADS-th piece of 8 scores (16 bytes). Loads go
// past the L1 (ld.global.cg), so that every pass over a row really comes from the L2: the count of accesses can be
// read off the bytes between L2 and the SMs. (Whether it also comes from HBM is for the L2 to say: it keeps the rows
// that are at work.) SOFTMAX 3 holds CHUNKS pieces a thread: rows of at most THREADS * CHUNKS * 8 scores.
//
// S, P [batch, heads, n_q, stride], 16 bits; stride is n_k rounded up to 16 and P is zero past n_k. Sums in fp32.
// CAUSAL: row r sees keys 0 .. r + n_k - n_q; the others are read all the same and get P = 0, as in the tile program
// `standard`. A row that sees nothing gets P = 0.
//
// Bytes between L2 and the SMs, a head: (accesses - 1) * n_q * n_k * 2 read, n_q * n_k * 2 written.
// Exponentials an element: naive, safe 2; online 2 and one for every piece of 8; fused 1.
// Built for sm_80 and later, fp16 and bf16. No dynamic shared memory.

constexpr int WARPS = THREADS / 32;

template <bool MAXIMUM> DEVICE float over_block(float x) {  // the maximum or the sum over all threads, to all threads
    __shared__ float parts[32];
#pragma unroll
    for (int distance = 16; distance; distance /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, x, distance);
        x = MAXIMUM ? fmaxf(x, other) : x + other;
    }
    if (WARPS == 1) return x;
    __syncthreads();  // the parts of the reduction before have been read
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = parts[0];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) x = MAXIMUM ? fmaxf(x, parts[w]) : x + parts[w];
    return x;
}

struct Piece { float x[8]; };  // eight scores in units of log2: exp(s) = exp2(x); hidden ones are -inf

DEVICE Piece read_piece(const u16 *row, int chunk, int seen) {
    const uint4 words = load_16(row + 8 * (i64)chunk);
    const u32 w[4] = {words.x, words.y, words.z, words.w};
    Piece piece;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float s = i % 2 ? high_half(w[i / 2]) : low_half(w[i / 2]);
        piece.x[i] = 8 * chunk + i < seen ? s * LOG2_E : NEG_INF;
    }
    return piece;
}
DEVICE float largest(const Piece &piece, float m) {
#pragma unroll
    for (int i = 0; i < 8; ++i) m = fmaxf(m, piece.x[i]);
    return m;
}
DEVICE void exponentials(Piece &piece, float m) {
#pragma unroll
    for (int i = 0; i < 8; ++i) piece.x[i] = exp2_fast(piece.x[i] - m);
}
DEVICE float sum(const Piece &piece) {
    return ((piece.x[0] + piece.x[1]) + (piece.x[2] + piece.x[3])) +
           ((piece.x[4] + piece.x[5]) + (piece.x[6] + piece.x[7]));
}
DEVICE void write_piece(u16 *row, int chunk, const Piece &piece, float factor) {
    u32 w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = pack2(piece.x[2 * i] * factor, piece.x[2 * i + 1] * factor);
    store_16(row + 8 * (i64)chunk, make_uint4(w[0], w[1], w[2], w[3]));
}
DEVICE float reciprocal(float l) { return l > 0.f ? 1.f / l : 0.f; }

extern "C" __global__ void __launch_bounds__(THREADS)
softmax(const u16 *s, u16 *p, int n_q, int n_k, int stride) {
    const u16 *scores = s + (i64)blockIdx.x * stride;
    u16 *result = p + (i64)blockIdx.x * stride;
    const int chunks = stride / 8;
    int seen = n_k;
#if CAUSAL
    seen = max(0, min(n_k, (int)(blockIdx.x % n_q) + n_k - n_q + 1));
#endif

#if SOFTMAX == 3
    Piece kept[CHUNKS];
    float m = LOWEST, l = 0.f;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        const int chunk = c * THREADS + threadIdx.x;
        if (chunk < chunks) kept[c] = read_piece(scores, chunk, seen);
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
        if (c * THREADS + threadIdx.x < chunks) m = largest(kept[c], m);
    m = over_block<true>(m);
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
        if (c * THREADS + threadIdx.x < chunks) {
            exponentials(kept[c], m);
            l += sum(kept[c]);
        }
    const float factor = reciprocal(over_block<false>(l));
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        const int chunk = c * THREADS + threadIdx.x;
        if (chunk < chunks) write_piece(result, chunk, kept[c], factor);
    }
#else
    float m = SOFTMAX == 0 ? 0.f : LOWEST, l = 0.f;
#if SOFTMAX == 1  // the maximum has a pass of its own
#pragma unroll 4
    for (int chunk = threadIdx.x; chunk < chunks; chunk += THREADS) m = largest(read_piece(scores, chunk, seen), m);
    m = over_block<true>(m);
#endif
#pragma unroll 4
    for (int chunk = threadIdx.x; chunk < chunks; chunk += THREADS) {
        Piece piece = read_piece(scores, chunk, seen);
#if SOFTMAX == 2  // what was summed so far is brought to the new maximum
        const float larger = largest(piece, m);
        l *= exp2_fast(m - larger);
        m = larger;
#endif
        exponentials(piece, m);
        l += sum(piece);
    }
#if SOFTMAX == 2  // every thread has a maximum of its own: bring the sums to a common one
    const float top = over_block<true>(m);
    l *= exp2_fast(m - top);
    m = top;
#endif
    const float factor = reciprocal(over_block<false>(l));
#pragma unroll 4
    for (int chunk = threadIdx.x; chunk < chunks; chunk += THREADS) {
        Piece piece = read_piece(scores, chunk, seen);
        exponentials(piece, m);
        write_piece(result, chunk, piece, factor);
    }
#endif
}
