// attention_decode where every block meets its keys at one go: 16-bit elements in rows of 64, up to 8 query heads per
// K/V head. Nothing repeats: what a launch takes is a chain of latencies.
//   - q is the matrix instructions' tall operand, the group's heads its rows, and keys their columns: a head's weights
//     are where the product with V needs them, and a lane's sums are one record of combine.cuh;
//   - all loads are asked for before any is used;
//   - `rehearsing` warps run the same code meanwhile on nothing, and store nothing: they bring the records' lines into
//     the L2, where a poll that misses waits for memory;
//   - the ticket is looked at after the block's records are stored: until then nobody has to know who adds.
//
// 1 x 4096 keys of 2 K/V heads, cold, on an H200 take 3.59 us by the graph timer (direct.cu 3.85). Where they go, by a
// bench of copies that ends kernels early (direct.cu 4.02 us there, this one 3.72, without rehearsing warps 3.97): an
// empty kernel 0.60, parameters 0.04, all loads 1.39 (a plain read 1.21), direct.cu's arithmetic 0.40, its records'
// stores 0.38, their exchange 1.21 (0.97 where scratch is in the L2). By clocks in a forerunner of this kernel: loads
// are asked for 0.20 us after a block starts, keys are there after 0.94, records stored after 1.48, all of them polled
// 0.55 after the slowest block's store, the output written 0.24 later; from the last block's end to the next launch's
// first block 0.80. 512 instructions in a row cost 0.33 us more than in a loop of 32, hot launches 0.36.
// What brought nothing: combiners known beforehand (+0.25), a maximum that the warps agree on first, fewer combiners
// (14: +0.5), blocks of 128 keys with half as many records. 8 x 4096 keys: 9 % less than direct.cu in that bench.
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

template <int warps>
struct oneshot_memory {
    float cell[warps][32][20];  // a warp's sums: a record a lane, apart from the next one's banks
    float top[oneshot_heads][warps], weight[oneshot_heads][warps];
    unsigned ticket[4];
};

// ---- shared memory and scratch ----

BW_DEVICE void put(uint32_t shared, float4 part) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "f"(part.x), "f"(part.y), "f"(part.z),
                 "f"(part.w)
                 : "memory");
}

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

// Not all ones where all six words are there.
BW_DEVICE unsigned missing(float4 values, float2 stand) {
    return max(max(max(__float_as_uint(values.x), __float_as_uint(values.y)),
                   max(__float_as_uint(values.z), __float_as_uint(values.w))),
               max(__float_as_uint(stand.x), __float_as_uint(stand.y)));
}

// ---- keys ----

// A warp's keys. Lane 4 r + c, of each 16 of them:
//   K: keys r and r + 8, of every 32 elements the eight from 8 c on
//   V: keys 2 c, 2 c + 1, 2 c + 8, 2 c + 9, the eight elements from 8 r on
template <int tiles>
struct oneshot_keys {
    uint4 k[tiles][2][2], v[tiles][4], q[2];

    static __device__ __forceinline__ int v_key(int i) {
        return i % 2 + i / 2 * 8;
    }
    __device__ __forceinline__ void load(const char *from_k, const char *from_v, unsigned key_bytes) {
#pragma unroll
        for (int u = 0; u < tiles; u++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                k[u][i / 2][i % 2] = bw_load_streaming(from_k + (16 * u + i / 2 * 8) * key_bytes + i % 2 * 64);
            }
        }
#pragma unroll
        for (int u = 0; u < tiles; u++) {
#pragma unroll
            for (int i = 0; i < 4; i++) v[u][i] = bw_load_streaming(from_v + (16 * u + v_key(i)) * key_bytes);
        }
    }
    // `left` keys, zeros behind them.
    __device__ __forceinline__ void load_some(const char *from_k, const char *from_v, unsigned key_bytes, int left) {
        const int r = (int)(threadIdx.x / 4), c = (int)(threadIdx.x % 4);
        const uint4 none = make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int u = 0; u < tiles; u++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int at = 16 * u + i / 2 * 8, v_at = 16 * u + v_key(i);
                k[u][i / 2][i % 2] = at + r < left ? bw_load_streaming(from_k + at * key_bytes + i % 2 * 64) : none;
                v[u][i] = v_at + 2 * c < left ? bw_load_streaming(from_v + v_at * key_bytes) : none;
            }
        }
    }
    // Whatever is in the registers.
    __device__ __forceinline__ void rehearse() {
#pragma unroll
        for (int u = 0; u < tiles; u++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                any(k[u][i / 2][i % 2]);
                any(v[u][i]);
            }
        }
        any(q[0]);
        any(q[1]);
    }
    static __device__ __forceinline__ void any(uint4 &bits) {
        asm volatile("" : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w));
    }
};

// A lane's sums for head r: of the weighted values the 16 from 16 c on, value[t][0] and value[t][1] those of elements t
// and t + 8; the rows of heads 8 to 15 are not used.
struct oneshot_sums {
    float value[8][4] = {}, weight[4] = {}, top = -INFINITY;
};

template <typename T, bool whole, int tiles>
BW_DEVICE void weigh(const oneshot_keys<tiles> &keys, int left, float scale, oneshot_sums &sums) {
    const int c = (int)(threadIdx.x % 4);
    float p[tiles][4];
#pragma unroll
    for (int u = 0; u < tiles; u++) {
        float score[2][2][4] = {};  // of 8 keys each; two chains of dependent products are half as long
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const uint4 q = keys.q[j], k = keys.k[u][n][j];
                const uint32_t first[4] = {q.x, 0, q.y, 0}, second[4] = {q.z, 0, q.w, 0};
                bw_multiply(score[n][j], first, k.x, k.y, T());
                bw_multiply(score[n][j], second, k.z, k.w, T());
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) p[u][i] = score[i / 2][0][i % 2] + score[i / 2][1][i % 2];
    }
    if (!whole && left < tiles * 16) {
#pragma unroll
        for (int u = 0; u < tiles; u++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (16 * u + i / 2 * 8 + 2 * c + i % 2 >= left) p[u][i] = -INFINITY;
            }
        }
    }
#pragma unroll
    for (int u = 0; u < tiles; u++) {
        sums.top = fmaxf(sums.top, fmaxf(fmaxf(p[u][0], p[u][1]), fmaxf(p[u][2], p[u][3])));
    }
    sums.top = bw_quad_max(sums.top) * scale;
    const float reference = bw_softmax_reference(sums.top);
#pragma unroll
    for (int u = 0; u < tiles; u++) {
#pragma unroll
        for (int i = 0; i < 4; i++) p[u][i] = bw_exp2(fmaf(p[u][i], scale, -reference));
        const uint32_t weights[4] = {bw_pack_pair(p[u][0], p[u][1], T()), 0, bw_pack_pair(p[u][2], p[u][3], T()), 0};
        const uint32_t ones = bw_pack_pair(1.0f, 1.0f, T());
        bw_multiply(sums.weight, weights, ones, ones, T());
        const uint4 *v = keys.v[u];
        const uint32_t word[4][4] = {{v[0].x, v[0].y, v[0].z, v[0].w},
                                     {v[1].x, v[1].y, v[1].z, v[1].w},
                                     {v[2].x, v[2].y, v[2].z, v[2].w},
                                     {v[3].x, v[3].y, v[3].z, v[3].w}};
#pragma unroll
        for (int t = 0; t < 8; t++) {
            const unsigned half = t % 2 ? 0x7632 : 0x5410;
            bw_multiply(sums.value[t], weights, __byte_perm(word[0][t / 2], word[1][t / 2], half),
                        __byte_perm(word[2][t / 2], word[3][t / 2], half), T());
        }
    }
}

// ---- sums ----

// Four values of a record over the block's warps, and what they stand on.
template <int warps>
BW_DEVICE float4 add_warps(const oneshot_memory<warps> &memory, int item, int quad, float2 &stand) {
    const int head = item / row_records;
    float scale[warps];
    stand = make_float2(-INFINITY, 0.0f);
#pragma unroll
    for (int i = 0; i < warps; i++) stand.x = fmaxf(stand.x, memory.top[head][i]);
    const float reference = bw_softmax_reference(stand.x);
#pragma unroll
    for (int i = 0; i < warps; i++) scale[i] = bw_exp2(memory.top[head][i] - reference);
    float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < warps; i++) {
        const float4 part = *(const float4 *)&memory.cell[i][item][quad * 4];
        value.x = fmaf(part.x, scale[i], value.x);
        value.y = fmaf(part.y, scale[i], value.y);
        value.z = fmaf(part.z, scale[i], value.z);
        value.w = fmaf(part.w, scale[i], value.w);
        stand.y = fmaf(memory.weight[head][i], scale[i], stand.y);
    }
    return value;
}

// Where `lanes` lanes hold the splits of the same four values, the others' lanes between them: each exchange halves
// what a lane keeps. The value that a lane ends with is element(lane).
template <int lanes>
struct split_sum {
    static constexpr int near = 32 / lanes, far = 2 * near;
    float top = -INFINITY, weight = 0.0f, value[4] = {};

    static __device__ __forceinline__ int element(int lane) {
        return (lane & near ? 2 : 0) + (lane & far ? 1 : 0);
    }
    template <int count>
    __device__ __forceinline__ void add(const float4 (&values)[count], const float2 (&stand)[count]) {
        float most = top;
#pragma unroll
        for (int i = 0; i < count; i++) most = fmaxf(most, stand[i].x);
        most = __int_as_float(bw_float_order(__reduce_max_sync(bw_all_lanes, bw_float_order(__float_as_int(most)))));
        const float reference = bw_softmax_reference(most), shrink = bw_exp2(top - reference);
        top = most;
        weight *= shrink;
#pragma unroll
        for (int e = 0; e < 4; e++) value[e] *= shrink;
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
// or, where there are few, of all sixteen.
template <typename T, int warps, int rehearsing_warps, bool apart>
BW_DEVICE void add_splits(const oneshot_work &work, unsigned row0, int combiner, int warp, bool rehearsing) {
    constexpr int lanes = apart ? 32 : bw_split_lanes, ahead = 2;
    const bw_decode_exchange &exchange = work.exchange;
    const float empty = __uint_as_float(bw_decode_empty);
    const int lane = (int)threadIdx.x, sub = apart ? lane : (int)threadIdx.x / bw_record_quads,
              splits = exchange.splits;
    const int first = combiner * exchange.combiner_items;
    const int items = min(exchange.combiner_items, (int)work.group * row_records - first);
#pragma unroll 1
    for (int unit = warp; unit < (apart ? items * bw_record_quads : items); unit += warps) {
        const unsigned item = row0 * row_records + first + (apart ? unit / bw_record_quads : unit);
        const int quad = (apart ? unit : lane) % bw_record_quads;
        char *const out = work.out + (item * 16 + quad * 4 + split_sum<lanes>::element(lane)) * sizeof(T);
        split_sum<lanes> sum;
#pragma unroll 1
        for (int pass = 0; pass < splits; pass += ahead * lanes) {
            char *const values = (char *)exchange.values + (item * splits + pass + sub) * 64 + quad * 16;
            char *const sums = (char *)exchange.sums + (item * splits + pass + sub) * 8;
            float4 part[ahead];
            float2 stand[ahead];
#pragma unroll
            for (int i = 0; i < ahead; i++) {
                const bool wanted = pass + i * lanes + sub < splits;
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
#pragma unroll
            for (int i = 0; i < ahead; i++) {
                const bool there = pass + i * lanes + sub < splits && !rehearsing;
                store_if(there, values + i * lanes * 64, make_float4(empty, empty, empty, empty));
                if (!apart) store_if(there && quad == 0, sums + i * lanes * 8, make_float2(empty, empty));
            }
            sum.add(part, stand);
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

template <typename T, int warps, int tiles, int rehearsing_warps, int resident, bool apart, bool whole>
__global__ void __launch_bounds__((warps + rehearsing_warps) * 32, resident)
    attention_decode_oneshot_kernel(const __grid_constant__ oneshot_work work) {
    __shared__ __align__(16) oneshot_memory<warps> memories[rehearsing_warps ? 2 : 1];
    const bool rehearsing = rehearsing_warps && threadIdx.y >= warps;
    const int lane = (int)threadIdx.x, warp = (int)threadIdx.y - (rehearsing ? warps : 0);
    const int r = (int)(threadIdx.x / 4), c = (int)(threadIdx.x % 4);
    const unsigned column = blockIdx.z * work.kv_heads + blockIdx.x, row0 = column * work.group;
    const int left = min(work.keys - (int)blockIdx.y * work.split_keys, work.split_keys) - warp * tiles * 16;
    oneshot_keys<tiles> keys;
    unsigned ticket = 0;
    // A branch, for any kernel: ptxas moves no load past its end, and would move some behind products.
    if (rehearsing_warps ? !rehearsing : work.group > 0) {
        const int64_t block =
            (int64_t)blockIdx.z * work.batch_bytes + (blockIdx.y * work.split_bytes + blockIdx.x * row_bytes);
        const char *from_k = work.k + block + ((warp * tiles * 16 + r) * work.key_bytes + c * 16);
        const char *from_v = work.v + block + ((warp * tiles * 16 + 2 * c) * work.key_bytes + r * 16);
        if constexpr (whole) {
            keys.load(from_k, from_v, work.key_bytes);
        } else {
            keys.load_some(from_k, from_v, work.key_bytes, left);
        }
        const char *q = work.q + (row0 + min(r, (int)work.group - 1)) * row_bytes + c * 16;
#pragma unroll
        for (int j = 0; j < 2; j++) keys.q[j] = bw_load_cached(q + j * 64);
        if (warp == 0) ticket = bw_decode_ticket(work.exchange, column);
    } else {
        keys.rehearse();
    }
    oneshot_memory<warps> &memory = memories[rehearsing];
    oneshot_sums sums;
    weigh<T, whole>(keys, left, work.scale, sums);
    if (c == 0) {
        memory.top[r][warp] = sums.top;
        memory.weight[r][warp] = sums.weight[0];
    }
    const uint32_t cell = bw_shared_address(memory.cell[warp][lane]);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int t = i % 2 * 4, half = i / 2;
        put(cell + 16 * i, make_float4(sums.value[t][half], sums.value[t + 1][half], sums.value[t + 2][half],
                                       sums.value[t + 3][half]));
    }
    meet<1, warps * 32, rehearsing_warps * 32>(rehearsing);

    const int thread = warp * 32 + lane, item = thread / bw_record_quads, quad = thread % bw_record_quads;
    if (item < (int)work.group * row_records) {
        const unsigned record = (row0 * row_records + item) * work.exchange.splits + blockIdx.y;
        float2 stand;
        const float4 value = add_warps(memory, item, quad, stand);
        store_if(!rehearsing, (char *)work.exchange.values + record * 64 + quad * 16,
                 make_float4(bw_record_word(value.x), bw_record_word(value.y), bw_record_word(value.z),
                             bw_record_word(value.w)));
        store_if(!rehearsing && quad == 0, (char *)work.exchange.sums + record * 8,
                 make_float2(bw_record_word(stand.x), bw_record_word(stand.y)));
    }
    if (thread == 0) memory.ticket[0] = ticket;
    meet<1, warps * 32, rehearsing_warps * 32>(rehearsing);
    int combiner = (int)memory.ticket[0] - (work.exchange.splits - work.exchange.combiners);
    if (rehearsing) combiner = (int)(blockIdx.y % (unsigned)work.exchange.combiners);
    if (combiner >= 0) add_splits<T, warps, rehearsing_warps, apart>(work, row0, combiner, warp, rehearsing);
}

}  // namespace

namespace {

template <typename T, int warps, int tiles, int rehearsing_warps, int resident, bool apart, bool whole>
void choose(const bw_attention_shape &shape, const bw_decode_plan &plan, const oneshot_work &work,
            bw_cuda_prepared *out) {
    bw_cuda_kernel *kernel =
        bw_choose(out, attention_decode_oneshot_kernel<T, warps, tiles, rehearsing_warps, resident, apart, whole>,
                  dim3((unsigned)shape.kv_heads, (unsigned)plan.splits, (unsigned)shape.batch),
                  dim3(32, warps + rehearsing_warps), 0, work);
    bw_choose_place(kernel, 0, offsetof(oneshot_work, k), bw_from_operand(BW_ATTENTION_K));
    bw_choose_place(kernel, 0, offsetof(oneshot_work, v), bw_from_operand(BW_ATTENTION_V));
    bw_choose_place(kernel, 0, offsetof(oneshot_work, q), bw_from_operand(BW_ATTENTION_Q));
    bw_choose_place(kernel, 0, offsetof(oneshot_work, out), bw_from_operand(BW_ATTENTION_OUT));
    bw_decode_place_exchange(kernel, 0, offsetof(oneshot_work, exchange), plan);
}

template <typename T, int warps, int tiles, int rehearsing_warps, int resident>
void choose_ends(const bw_attention_shape &shape, const bw_decode_plan &plan, const oneshot_work &work,
                 bw_cuda_prepared *out) {
    constexpr int64_t step = warps * tiles * 16;
    const bool apart = plan.splits > 2 * bw_split_lanes, whole = plan.split_keys == step && shape.keys % step == 0;
    if (apart && whole) {
        choose<T, warps, tiles, rehearsing_warps, resident, true, true>(shape, plan, work, out);
    } else if (apart) {
        choose<T, warps, tiles, rehearsing_warps, resident, true, false>(shape, plan, work, out);
    } else if (whole) {
        choose<T, warps, tiles, rehearsing_warps, resident, false, true>(shape, plan, work, out);
    } else {
        choose<T, warps, tiles, rehearsing_warps, resident, false, false>(shape, plan, work, out);
    }
}

}  // namespace

// Its offsets are numbers of 32 bits. Few combiners would wait for several records in turn, and a lane has two splits.
bool bw_decode_oneshot_takes(bw_dtype dtype, const bw_attention_shape &shape, const bw_decode_plan &plan) {
    const int64_t most_keys = plan.warps == 4 ? 64 : 256;
    return dtype != BW_FP32 && shape.head_dim == 64 && !plan.ragged && plan.splits > 1 && plan.splits <= 64 &&
           plan.combiner_items <= 2 && plan.split_keys <= most_keys &&
           shape.keys * shape.kv_heads * row_bytes <= UINT32_MAX && plan.scratch_bytes <= UINT32_MAX;
}

bw_status bw_decode_oneshot_choose(bw_dtype dtype, const bw_attention_shape &shape, const bw_decode_plan &plan,
                                   const bw_decode_exchange &exchange, bw_cuda_prepared *out) {
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
        if (plan.warps == 4) {
            choose_ends<T, 4, 1, 4, 3>(shape, plan, work, out);
        } else {
            choose_ends<T, 8, 2, 0, 2>(shape, plan, work, out);
        }
        return BW_OK;
    });
}
