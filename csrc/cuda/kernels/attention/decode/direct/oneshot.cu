// attention_decode where every block meets its keys at one go: 16-bit elements in rows of 64, up to 8 query heads per
// K/V head. Nothing repeats: what a launch takes is a chain of latencies.
//   - q is the scores' tall operand, the halves of its rows' chunks its 16 rows: a head's weights are then where the
//     product with V, whose tall operand is V transposed, needs them;
//   - all loads are asked for before any is used;
//   - of 64 or 128 keys warps share the weights and each has 16 elements of all values, so that nothing is added up
//     between them; of 256, where a load a pair of elements is too many, they add up sums;
//   - a warp that rehearses runs the same code meanwhile on nothing, and stores nothing: it brings the records' lines
//     into the L2, where a poll that misses waits for memory, and the code nearer;
//   - the ticket is looked at after the block's records are stored: until then nobody has to know who adds; who does
//     takes its own block's maxima for all splits' where those lie close.
//
// On an H200 1 x 4096 keys of 2 K/V heads take 3.46 us, cold (direct.cu: 3.85): an empty kernel 0.62, all loads 1.45,
// sums 0.31, records' stores 0.14, their exchange 1.0. Slower: records fetched ahead by prefetches (2 %), warps that
// share the weights of 256 keys (6 to 13 %), combiners known beforehand (0.25 us) or fewer of them (0.5 us), 512
// instructions in a row instead of a loop of 32 (0.33 us). V loaded transposed from shared memory is no faster.
#include "cuda/kernels/attention/decode/combine.cuh"

namespace {

struct oneshot_work {
    const char *k, *v, *q;
    unsigned key_bytes, split_bytes;  // from one key, and from one split's first, to the next in k and v
    int64_t batch_bytes;              // from one entry to the next
    unsigned kv_heads, group;
    int keys, split_keys;
    float scale;
    bw_decode_exchange exchange;
    char *out;
};

constexpr int oneshot_heads = 8, row_bytes = 128, row_records = 4;

// True, but unknown to the compiler: ptxas moves no load across the branch. (A parameter would have to be waited for.)
BW_DEVICE bool oneshot_always() {
    unsigned y;
    asm volatile("mov.u32 %0, %%tid.y;" : "=r"(y));
    return y < 64;
}

BW_DEVICE uint32_t load_pair(const char *from) {
    uint32_t bits;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1];" : "=r"(bits) : "l"(from));
    return bits;
}

struct oneshot_place {
    int64_t block;          // of its first key in k and v
    unsigned column, row0;  // its K/V head, and that one's first query head, over all entries
    int keys;

    __device__ __forceinline__ explicit oneshot_place(const oneshot_work &work)
        : block((int64_t)blockIdx.z * work.batch_bytes + (blockIdx.y * work.split_bytes + blockIdx.x * row_bytes)),
          column(blockIdx.z * work.kv_heads + blockIdx.x),
          row0(column * work.group),
          keys(min(work.keys - (int)blockIdx.y * work.split_keys, work.split_keys)) {
    }
};

// The scores' operands. Lane 4 r + c: of head r, and of each 16 keys of r and r + 8, of every 32 elements the eight
// from 8 c on.
template <int tiles>
struct oneshot_scores {
    uint4 k[tiles][2][2], q[2];

    template <bool whole>
    __device__ __forceinline__ void load(const oneshot_work &work, const oneshot_place &place, int first_key) {
        const int r = (int)(threadIdx.x / 4), c = (int)(threadIdx.x % 4), left = place.keys - first_key;
        const char *from_q = work.q + (place.row0 + min(r, (int)work.group - 1)) * row_bytes + c * 16;
        const char *from_k = work.k + place.block + ((first_key + r) * work.key_bytes + c * 16);
#pragma unroll
        for (int j = 0; j < 2; j++) q[j] = bw_load_cached(from_q + j * 64);
#pragma unroll
        for (int u = 0; u < tiles; u++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int at = 16 * u + i / 2 * 8;
                k[u][i / 2][i % 2] = whole || at + r < left
                                         ? bw_load_streaming(from_k + at * work.key_bytes + i % 2 * 64)
                                         : make_uint4(0, 0, 0, 0);
            }
        }
    }

    // Whatever is in the registers.
    __device__ __forceinline__ void rehearse() {
#pragma unroll
        for (int u = 0; u < tiles; u++) {
#pragma unroll
            for (int i = 0; i < 4; i++) any(k[u][i / 2][i % 2]);
        }
        any(q[0]);
        any(q[1]);
    }
    static __device__ __forceinline__ void any(uint4 &bits) {
        asm volatile("" : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w));
    }

    // Weights of head r, of each 16 keys 2 c and 2 c + 1 and, packed.y, 2 c + 8 and 2 c + 9, on their maximum.
    template <typename T, bool whole>
    __device__ __forceinline__ float weigh(int left, float scale, uint2 (&packed)[tiles]) const {
        const int c = (int)(threadIdx.x % 4);
        float p[tiles][4], top = -INFINITY;
#pragma unroll
        for (int u = 0; u < tiles; u++) {
            float low[2][4] = {}, high[2][4] = {};  // four chains of two products
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const uint32_t a[4] = {q[j].x, q[j].z, q[j].y, q[j].w};
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    bw_multiply(low[n], a, k[u][n][j].x, k[u][n][j].y, T());
                    bw_multiply(high[n], a, k[u][n][j].z, k[u][n][j].w, T());
                }
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                p[u][i] = low[i / 2][i % 2] + high[i / 2][2 + i % 2];
                if (!whole && 16 * u + i / 2 * 8 + 2 * c + i % 2 >= left) p[u][i] = -INFINITY;
            }
            top = fmaxf(top, fmaxf(fmaxf(p[u][0], p[u][1]), fmaxf(p[u][2], p[u][3])));
        }
        top = bw_quad_max(top) * scale;
        const float reference = bw_softmax_reference(top);
#pragma unroll
        for (int u = 0; u < tiles; u++) {
#pragma unroll
            for (int i = 0; i < 4; i++) p[u][i] = bw_exp2(fmaf(p[u][i], scale, -reference));
            packed[u] = make_uint2(bw_pack_pair(p[u][0], p[u][1], T()), bw_pack_pair(p[u][2], p[u][3], T()));
        }
        return top;
    }
};

// What a warp that rehearses must not store is a predicate, not a branch: a branch's code would not be fetched.
BW_DEVICE void store_if(bool wanted, char *to, float4 part) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n@p st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};\n}" ::"l"(to),
        "f"(part.x), "f"(part.y), "f"(part.z), "f"(part.w), "r"((unsigned)wanted)
        : "memory");
}
BW_DEVICE void store_if(bool wanted, char *to, float2 part) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %3, 0;\n@p st.relaxed.gpu.global.v2.f32 [%0], {%1, %2};\n}" ::"l"(to),
        "f"(part.x), "f"(part.y), "r"((unsigned)wanted)
        : "memory");
}
BW_DEVICE void store_if(bool wanted, char *to, uint16_t bits) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n@p st.global.b16 [%0], %1;\n}" ::"l"(to), "h"(bits),
                 "r"((unsigned)wanted)
                 : "memory");
}

// A barrier of the warps that work, and one of those that rehearse.
template <int id, int threads, int rehearsing_threads>
BW_DEVICE void meet(bool rehearsing) {
    if (rehearsing_threads && rehearsing) {
        asm volatile("bar.sync %0, %1;" ::"n"(id + 1), "n"(rehearsing_threads ? rehearsing_threads : 32) : "memory");
    } else {
        asm volatile("bar.sync %0, %1;" ::"n"(id), "n"(threads) : "memory");
    }
}

BW_DEVICE void store_pair(bool wanted, char *to, float first, float second) {
    store_if(wanted, to, make_float2(bw_record_word(first), bw_record_word(second)));
}

// Not all ones where all six words are there.
BW_DEVICE unsigned missing(float4 values, float2 stand) {
    return max(max(max(__float_as_uint(values.x), __float_as_uint(values.y)),
                   max(__float_as_uint(values.z), __float_as_uint(values.w))),
               max(__float_as_uint(stand.x), __float_as_uint(stand.y)));
}

// Where `lanes` lanes hold the splits of the same four values, the others' lanes between them: each exchange halves
// what a lane keeps. The value that a lane ends with is element(lane).
template <int lanes>
struct split_sum {
    static constexpr int near = 32 / lanes, far = 2 * near;
    float weight = 0.0f, value[4] = {};

    static __device__ __forceinline__ int element(int lane) {
        return (lane & near ? 2 : 0) + (lane & far ? 1 : 0);
    }
    template <int count>
    __device__ __forceinline__ void add(const float4 (&values)[count], const float2 (&stand)[count], float reference) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const float scale = bw_exp2(stand[i].x - reference);
            weight = fmaf(stand[i].y, scale, weight);
            value[0] = fmaf(values[i].x, scale, value[0]);
            value[1] = fmaf(values[i].y, scale, value[1]);
            value[2] = fmaf(values[i].z, scale, value[2]);
            value[3] = fmaf(values[i].w, scale, value[3]);
        }
    }
    __device__ __forceinline__ float total(int lane) const {
        const bool high = lane & near, upper = lane & far;
        const float even =
            (high ? value[2] : value[0]) + __shfl_xor_sync(bw_all_lanes, high ? value[0] : value[2], near);
        const float odd =
            (high ? value[3] : value[1]) + __shfl_xor_sync(bw_all_lanes, high ? value[1] : value[3], near);
        float sum = (upper ? odd : even) + __shfl_xor_sync(bw_all_lanes, upper ? even : odd, far), all = weight;
#pragma unroll
        for (int offset = 2 * far; offset < 32; offset *= 2) sum += __shfl_xor_sync(bw_all_lanes, sum, offset);
#pragma unroll
        for (int offset = near; offset < 32; offset *= 2) all += __shfl_xor_sync(bw_all_lanes, all, offset);
        return __fdividef(sum, all);
    }
};

// One combiner's share of a column's records, as bw_decode_combine's: a warp takes all splits of four values of one,
// or, where there are few, of all sixteen. The block is one of the splits, so that its maxima, `tops`, stand for all
// splits' where none of the others lies far above.
template <typename T, int warps, int rehearsing_warps, bool apart>
BW_DEVICE void add_splits(const oneshot_work &work, const float (&tops)[oneshot_heads][warps], unsigned row0,
                          int combiner, bool rehearsing) {
    constexpr int lanes = apart ? 32 : bw_split_lanes, ahead = 2;
    const bw_decode_exchange &exchange = work.exchange;
    const float empty = __uint_as_float(bw_decode_empty);
    const int lane = (int)threadIdx.x, warp = (int)threadIdx.y - (rehearsing ? warps : 0), splits = exchange.splits;
    const int sub = apart ? lane : lane / bw_record_quads, first = combiner * exchange.combiner_items;
    const int items = min(exchange.combiner_items, (int)work.group * row_records - first);
#pragma unroll 1
    for (int unit = warp; unit < (apart ? items * bw_record_quads : items); unit += warps) {
        const int own = first + (apart ? unit / bw_record_quads : unit), quad = (apart ? unit : lane) % bw_record_quads;
        const unsigned item = row0 * row_records + own;
        char *const out = work.out + (item * 16 + quad * 4 + split_sum<lanes>::element(lane)) * sizeof(T);
        char *const values = (char *)exchange.values + (item * splits + sub) * 64 + quad * 16;
        char *const sums = (char *)exchange.sums + (item * splits + sub) * 8;
        float reference = tops[own / row_records][0];
#pragma unroll
        for (int i = 1; i < warps; i++) reference = fmaxf(reference, tops[own / row_records][i]);
        float4 part[ahead];
        float2 stand[ahead];
#pragma unroll
        for (int i = 0; i < ahead; i++) {
            const bool wanted = i * lanes + sub < splits;
            part[i] = make_float4(wanted ? empty : 0.0f, 0.0f, 0.0f, 0.0f);
            stand[i] = make_float2(-INFINITY, 0.0f);
        }
        unsigned most;
        do {  // what is missing, at once: a round trip is long
            most = 0;
#pragma unroll
            for (int i = 0; i < ahead; i++) {
                if (missing(part[i], stand[i]) == bw_decode_empty) {
                    part[i] = bw_record_load((const float4 *)(values + i * lanes * 64));
                    stand[i] = bw_record_load((const float2 *)(sums + i * lanes * 8));
                }
            }
#pragma unroll
            for (int i = 0; i < ahead; i++) most = max(most, missing(part[i], stand[i]));
        } while (!__all_sync(bw_all_lanes, most != bw_decode_empty || rehearsing));
        split_sum<lanes> sum;
        sum.add(part, stand, reference);
        const float highest = fmaxf(stand[0].x, stand[1].x);
        const bool near = reference > -INFINITY && highest - reference <= bw_softmax_slack;
#pragma unroll
        for (int i = 0; i < ahead; i++) {
            const bool there = i * lanes + sub < splits && !rehearsing;
            store_if(there, values + i * lanes * 64, make_float4(empty, empty, empty, empty));
            if (!apart) store_if(there && quad == 0, sums + i * lanes * 8, make_float2(empty, empty));
        }
        if (!__all_sync(bw_all_lanes, near)) {
            const int order = __reduce_max_sync(bw_all_lanes, bw_float_order(__float_as_int(highest)));
            sum = split_sum<lanes>();
            sum.add(part, stand, bw_softmax_reference(__int_as_float(bw_float_order(order))));
        }
        T narrow;
        uint16_t bits;
        bw_from_float(sum.total(lane), &narrow);
        memcpy(&bits, &narrow, sizeof bits);
        store_if(lane < 4 * split_sum<lanes>::near && !rehearsing, out, bits);
    }
    if (!apart) return;
    meet<3, warps * 32, rehearsing_warps * 32>(rehearsing);  // a sum has been read by four warps
#pragma unroll 1
    for (int i = warp * 32 + lane; i < items * splits; i += warps * 32) {
        store_if(!rehearsing, (char *)exchange.sums + ((row0 * row_records + first) * splits + i) * 8,
                 make_float2(empty, empty));
    }
}

template <typename T, int warps, int rehearsing_warps, bool apart>
BW_DEVICE void finish(const oneshot_work &work, const float (&tops)[oneshot_heads][warps], unsigned row0,
                      unsigned ticket, unsigned &shared_ticket, bool rehearsing) {
    if (threadIdx.x + threadIdx.y == 0) shared_ticket = ticket;
    meet<1, warps * 32, rehearsing_warps * 32>(rehearsing);
    int combiner = (int)shared_ticket - (work.exchange.splits - work.exchange.combiners);
    if (rehearsing) combiner = (int)(blockIdx.y % (unsigned)work.exchange.combiners);
    if (combiner >= 0) {
        add_splits<T, warps, rehearsing_warps, apart>(work, tops, row0, combiner, rehearsing);
    }
}

template <int tiles>
struct __align__(16) weight_memory {
    uint2 weight[tiles][32];
    float top[oneshot_heads][4];
    unsigned ticket;
};

// A warp weighs 16 or 32 keys for all heads and, after a barrier, multiplies all of the block's weights with 16
// elements of its values, a pair of elements of a key a load: a lane's sums are words of a record.
template <typename T, int tiles, int rehearsing_warps, int resident, bool apart, bool whole>
__global__ void __launch_bounds__((4 + rehearsing_warps) * 32, resident)
    attention_decode_oneshot_kernel(const __grid_constant__ oneshot_work work) {
    constexpr int warps = 4, all_tiles = warps * tiles;
    __shared__ weight_memory<all_tiles> memories[rehearsing_warps ? 2 : 1];
    const bool rehearsing = rehearsing_warps && threadIdx.y >= warps;
    const unsigned lane = threadIdx.x, warp = threadIdx.y - (rehearsing ? warps : 0), r = lane / 4, c = lane % 4;
    const oneshot_place place(work);
    const int first_key = (int)warp * tiles * 16;
    oneshot_scores<tiles> keys;
    uint4 v[all_tiles];  // of each 16 keys 2 c, 2 c + 1, 2 c + 8, 2 c + 9: elements 2 r and 2 r + 1 of this warp's
    unsigned ticket = 0, heads = 0;
    char *to = nullptr, *to_sums = nullptr;  // this lane's part of head 2 c's record, and of head 2 c + r's sums
    if (rehearsing_warps ? !rehearsing : oneshot_always()) {
        keys.template load<whole>(work, place, first_key);
    } else {
        keys.rehearse();
    }
    if (!rehearsing && oneshot_always()) {
        const char *from_v = work.v + place.block + (2 * c * work.key_bytes + warp * 32 + r * 4);
#pragma unroll
        for (int m = 0; m < all_tiles; m++) {
            uint32_t pair[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int at = 16 * m + i % 2 + i / 2 * 8;
                pair[i] = whole || at + 2 * (int)c < place.keys ? load_pair(from_v + at * work.key_bytes) : 0;
            }
            v[m] = make_uint4(pair[0], pair[1], pair[2], pair[3]);
        }
        if (warp == 0) ticket = bw_decode_ticket(work.exchange, place.column, work.exchange.splits);
        const unsigned record = ((place.row0 + 2 * c) * row_records + warp) * work.exchange.splits + blockIdx.y;
        to = (char *)work.exchange.values + record * 64 + r * 8;
        to_sums = (char *)work.exchange.sums + (record + (r ? row_records * work.exchange.splits : 0)) * 8;
        heads = max((int)(work.group - 2 * c), 0);
    } else {
#pragma unroll
        for (int m = 0; m < all_tiles; m++) oneshot_scores<1>::any(v[m]);
    }
    weight_memory<all_tiles> &memory = memories[rehearsing];
    uint2 packed[tiles];
    const float top = keys.template weigh<T, whole>(place.keys - first_key, work.scale, packed);
#pragma unroll
    for (int u = 0; u < tiles; u++) memory.weight[warp * tiles + u][lane] = packed[u];
    if (c == 0) memory.top[r][warp] = top;
    meet<1, warps * 32, rehearsing_warps * 32>(rehearsing);

    // Rows r and r + 8 are the pair's elements, columns 2 c and 2 c + 1 heads.
    float part[warps][4] = {}, weight[warps][4] = {};
    const uint32_t one = bw_pack_pair(1.0f, 1.0f, T()), ones[4] = {one, one, one, one};
#pragma unroll
    for (int m = 0; m < all_tiles; m++) {
        const uint2 b = memory.weight[m][lane];
        const uint32_t a[4] = {__byte_perm(v[m].x, v[m].y, 0x5410), __byte_perm(v[m].x, v[m].y, 0x7632),
                               __byte_perm(v[m].z, v[m].w, 0x5410), __byte_perm(v[m].z, v[m].w, 0x7632)};
        bw_multiply(part[m / tiles], a, b.x, b.y, T());
        bw_multiply(weight[m / tiles], ones, b.x, b.y, T());
    }
    float value[2][2], highest[2], sum[2];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const float4 all = *(const float4 *)memory.top[2 * c + e];
        highest[e] = fmaxf(fmaxf(all.x, all.y), fmaxf(all.z, all.w));
        const float reference = bw_softmax_reference(highest[e]);
        const float scale[4] = {bw_exp2(all.x - reference), bw_exp2(all.y - reference), bw_exp2(all.z - reference),
                                bw_exp2(all.w - reference)};
        sum[e] = fmaf(weight[0][e], scale[0], weight[1][e] * scale[1]) +
                 fmaf(weight[2][e], scale[2], weight[3][e] * scale[3]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            value[e][i] = fmaf(part[0][e + 2 * i], scale[0], part[1][e + 2 * i] * scale[1]) +
                          fmaf(part[2][e + 2 * i], scale[2], part[3][e + 2 * i] * scale[3]);
        }
    }
    store_pair(heads > 0, to, value[0][0], value[0][1]);
    store_pair(heads > 1, to + row_records * 64 * work.exchange.splits, value[1][0], value[1][1]);
    store_pair(r < 2 && heads > r, to_sums, r ? highest[1] : highest[0], r ? sum[1] : sum[0]);
    finish<T, warps, rehearsing_warps, apart>(work, memory.top, place.row0, ticket, memory.ticket, rehearsing);
}

template <int warps>
struct oneshot_memory {
    float value[warps][oneshot_heads][16 * row_records + 4];
    float top[oneshot_heads][warps], weight[oneshot_heads][warps];
    unsigned ticket;
};

// Four values of a record over the block's warps, and what they stand on.
template <int warps>
BW_DEVICE float4 add_warps(const oneshot_memory<warps> &memory, int head, int element, float2 &stand) {
    float scale[warps];
    stand = make_float2(memory.top[head][0], 0.0f);
#pragma unroll
    for (int i = 1; i < warps; i++) stand.x = fmaxf(stand.x, memory.top[head][i]);
    const float reference = bw_softmax_reference(stand.x);
#pragma unroll
    for (int i = 0; i < warps; i++) scale[i] = bw_exp2(memory.top[head][i] - reference);
    float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < warps; i++) {
        bw_add_scaled(value, *(const float4 *)&memory.value[i][head][element], scale[i]);
        stand.y = fmaf(memory.weight[head][i], scale[i], stand.y);
    }
    return value;
}

// A warp meets its keys alone. Lane 4 r + c holds, of each 16 keys' values, 2 c, 2 c + 1, 2 c + 8, 2 c + 9, the eight
// elements from 8 r on.
template <typename T, int warps, int tiles, int resident, bool apart, bool whole>
__global__ void __launch_bounds__(warps * 32, resident)
    attention_decode_oneshot_sums_kernel(const __grid_constant__ oneshot_work work) {
    __shared__ __align__(16) oneshot_memory<warps> memory;
    const int lane = (int)threadIdx.x, warp = (int)threadIdx.y, r = lane / 4, c = lane % 4;
    const oneshot_place place(work);
    const int first_key = warp * tiles * 16, left = place.keys - first_key;
    oneshot_scores<tiles> keys;
    uint4 v[tiles][4];
    unsigned ticket = 0;
    if (oneshot_always()) {
        keys.template load<whole>(work, place, first_key);
        const char *from_v = work.v + place.block + ((first_key + 2 * c) * work.key_bytes + r * 16);
#pragma unroll
        for (int u = 0; u < tiles; u++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int at = 16 * u + i % 2 + i / 2 * 8;
                v[u][i] = whole || at + 2 * c < left ? bw_load_streaming(from_v + at * work.key_bytes)
                                                     : make_uint4(0, 0, 0, 0);
            }
        }
        if (warp == 0) ticket = bw_decode_ticket(work.exchange, place.column, work.exchange.splits);
    }
    uint2 packed[tiles];
    const float top = keys.template weigh<T, whole>(left, work.scale, packed);
    float sums[4][4] = {}, weight[4] = {};  // of elements 8 r + 2 t and + 2 t + 1: rows r and r + 8
    const uint32_t one = bw_pack_pair(1.0f, 1.0f, T()), ones[4] = {one, one, one, one};
#pragma unroll
    for (int u = 0; u < tiles; u++) {
        bw_multiply(weight, ones, packed[u].x, packed[u].y, T());
        const uint32_t word[4][4] = {{v[u][0].x, v[u][0].y, v[u][0].z, v[u][0].w},
                                     {v[u][1].x, v[u][1].y, v[u][1].z, v[u][1].w},
                                     {v[u][2].x, v[u][2].y, v[u][2].z, v[u][2].w},
                                     {v[u][3].x, v[u][3].y, v[u][3].z, v[u][3].w}};
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const uint32_t a[4] = {
                __byte_perm(word[0][t], word[1][t], 0x5410), __byte_perm(word[0][t], word[1][t], 0x7632),
                __byte_perm(word[2][t], word[3][t], 0x5410), __byte_perm(word[2][t], word[3][t], 0x7632)};
            bw_multiply(sums[t], a, packed[u].x, packed[u].y, T());
        }
    }
    if (c == 0) memory.top[r][warp] = top;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        if (r == 0) memory.weight[2 * c + e][warp] = weight[e];
        float4 *const cell = (float4 *)&memory.value[warp][2 * c + e][8 * r];
        cell[0] = make_float4(sums[0][e], sums[0][e + 2], sums[1][e], sums[1][e + 2]);
        cell[1] = make_float4(sums[2][e], sums[2][e + 2], sums[3][e], sums[3][e + 2]);
    }
    __syncthreads();

    const int thread = warp * 32 + lane, item = thread / bw_record_quads, quad = thread % bw_record_quads;
    if (item < (int)work.group * row_records) {
        const unsigned record = (place.row0 * row_records + item) * work.exchange.splits + blockIdx.y;
        float2 stand;
        const float4 value = add_warps(memory, item / row_records, item % row_records * 16 + quad * 4, stand);
        bw_record_store(work.exchange.values + record * bw_record_quads + quad,
                        make_float4(bw_record_word(value.x), bw_record_word(value.y), bw_record_word(value.z),
                                    bw_record_word(value.w)));
        store_pair(quad == 0, (char *)work.exchange.sums + record * 8, stand.x, stand.y);
    }
    finish<T, warps, 0, apart>(work, memory.top, place.row0, ticket, memory.ticket, false);
}

template <typename Kernel>
void choose(Kernel *kernel_function, int warps, const bw_attention_shape &shape, const bw_decode_plan &plan,
            const oneshot_work &work, bw_cuda_launch_spec *out) {
    bw_cuda_kernel *kernel =
        bw_choose(out, kernel_function, dim3((unsigned)shape.kv_heads, (unsigned)plan.splits, (unsigned)shape.batch),
                  dim3(32, warps), 0, work);
    bw_decode_place_operands<oneshot_work>(kernel);
    bw_decode_place_exchange(kernel, 0, offsetof(oneshot_work, exchange), plan);
}

template <int warps, int tiles, typename Choose>
void choose_ends(const bw_attention_shape &shape, const bw_decode_plan &plan, const Choose &choose) {
    constexpr int64_t step = warps * tiles * 16;
    const bool apart = plan.splits > 2 * bw_split_lanes, whole = plan.split_keys == step && shape.keys % step == 0;
    if (apart && whole) {
        choose(std::true_type(), std::true_type());
    } else if (apart) {
        choose(std::true_type(), std::false_type());
    } else if (whole) {
        choose(std::false_type(), std::true_type());
    } else {
        choose(std::false_type(), std::false_type());
    }
}

}  // namespace

// Its offsets are numbers of 32 bits. Few combiners would wait for more records in turn, and a lane has two splits.
bool bw_decode_oneshot_takes(bw_dtype dtype, const bw_attention_shape &shape, const bw_decode_plan &plan) {
    const int most_items = plan.splits > 2 * bw_split_lanes ? 2 : 4;
    return dtype != BW_FP32 && shape.head_dim == 64 && plan.parts == 0 && plan.splits > 1 && plan.splits <= 64 &&
           plan.combiner_items <= most_items && plan.split_keys <= plan.step_keys &&
           shape.keys * shape.kv_heads * row_bytes <= UINT32_MAX && plan.scratch_bytes <= UINT32_MAX;
}

bw_status bw_decode_oneshot_choose(bw_dtype dtype, const bw_attention_shape &shape, const bw_decode_plan &plan,
                                   const bw_decode_exchange &exchange, bw_cuda_launch_spec *out) {
    oneshot_work work = {};
    work.key_bytes = (unsigned)(shape.kv_heads * row_bytes);
    work.split_bytes = (unsigned)(plan.split_keys * work.key_bytes);
    work.batch_bytes = shape.keys * work.key_bytes;
    work.kv_heads = (unsigned)shape.kv_heads;
    work.group = (unsigned)shape.group;
    work.keys = (int)shape.keys;
    work.split_keys = (int)plan.split_keys;
    work.scale = shape.scale;
    work.exchange = exchange;
    return bw_cuda_by_half_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (plan.warps == 8) {
            choose_ends<8, 2>(shape, plan, [&](auto apart, auto whole) {
                choose(attention_decode_oneshot_sums_kernel<T, 8, 2, 2, apart, whole>, 8, shape, plan, work, out);
            });
        } else if (plan.step_keys == 128) {
            choose_ends<4, 2>(shape, plan, [&](auto apart, auto whole) {
                choose(attention_decode_oneshot_kernel<T, 2, 0, 2, apart, whole>, 4, shape, plan, work, out);
            });
        } else {
            choose_ends<4, 1>(shape, plan, [&](auto apart, auto whole) {
                choose(attention_decode_oneshot_kernel<T, 1, 1, 3, apart, whole>, 5, shape, plan, work, out);
            });
        }
        return BW_OK;
    });
}
