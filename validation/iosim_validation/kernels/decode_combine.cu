// Joins the splits of `decode_split`: O = sum over s of exp(lse_s - lse) O_s, lse = log(sum over s of exp(lse_s)).
//
// One warp a row (a query of a query head), four in a thread block. The weights of all splits come first, into shared
// memory, then the rows of O_s stream past, two columns a lane at a time.
//
// o_parts [batch, kv_heads, splits, rows, D], lse_parts [batch, kv_heads, splits, rows], fp32, rows = n_q * group
//   -> O [batch, heads, n_q, D], 16 bits, lse [batch, heads, n_q], fp32
// Read: splits * rows * 4 (D + 1) a kv-head; written: rows * (2D + 4). Built for sm_80 and later, all D, fp16, bf16.

constexpr int WARPS = 4, MOST_SPLITS = 512, PAIRS = (D / 2 + 31) / 32;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
decode_combine(const float *o_parts, const float *lse_parts, u16 *o, float *lse, int n_q, int group, int splits,
               i64 all_rows) {
    __shared__ float weights[WARPS][MOST_SPLITS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int rows = n_q * group;
    const i64 n = (i64)blockIdx.x * WARPS + warp;
    if (n >= all_rows) return;  // a whole warp; there is no block-wide barrier below
    const i64 kv_head = n / rows;
    const int r = n % rows;
    const i64 first = kv_head * splits * rows + r;  // split s of this row is `rows` rows further for every s

    float top = NEG_INF, sum = 0.f;
    for (int s = lane; s < splits; s += 32) {
        const float x = lse_parts[first + (i64)s * rows];
        weights[warp][s] = x;
        top = fmaxf(top, x);
    }
#pragma unroll
    for (int distance = 16; distance; distance /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, distance));
    const float base = top == NEG_INF ? 0.f : top;  // -inf - -inf is no number
    for (int s = lane; s < splits; s += 32) {
        const float weight = exp2_fast((weights[warp][s] - base) * LOG2_E);
        weights[warp][s] = weight;
        sum += weight;
    }
#pragma unroll
    for (int distance = 16; distance; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    __syncwarp();

    float2 x[PAIRS] = {};
#pragma unroll 4
    for (int s = 0; s < splits; ++s) {
        const float2 *part = (const float2 *)(o_parts + (first + (i64)s * rows) * D);
        const float weight = weights[warp][s];
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
            const int pair = 32 * i + lane;
            if (D % 64 && pair >= D / 2) continue;
            const float2 y = part[pair];
            x[i].x += weight * y.x;
            x[i].y += weight * y.y;
        }
    }
    const i64 at = (kv_head * group + r % group) * n_q + r / group;
    const float reciprocal = sum > 0.f ? 1.f / sum : 0.f;
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
        const int pair = 32 * i + lane;
        if (D % 64 && pair >= D / 2) continue;
        ((u32 *)(o + at * D))[pair] = pack2(x[i].x * reciprocal, x[i].y * reciprocal);
    }
    if (lane == 0) lse[at] = sum > 0.f ? base + log2_fast(sum) * LN_2 : NEG_INF;
}
