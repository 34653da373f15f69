// Putting a decode's pieces together: first the block's own warps, then, by the last block of a K/V head to finish, the
// splits. A piece is, per query head, the maximum of its scores, the sum of its weights and its weighted values; all
// exponentials are powers of 2.
#ifndef BW_CUDA_ATTENTION_MERGE_CUH
#define BW_CUDA_ATTENTION_MERGE_CUH

#include "cuda/attention.cuh"
#include "cuda/intrinsics.cuh"

// Where a block stands.
struct bw_decode_place {
    int64_t batch, kv_head, chunk, split;
    int64_t length;      // keys of this batch entry
    int64_t first, end;  // this block's keys; empty when the entry has fewer splits than the grid
    int64_t splits;      // of this entry
    int64_t head0;       // first query head
    int heads;           // query heads of this block
};

BW_DEVICE bw_decode_place bw_decode_locate(const bw_attention_shape &shape, const bw_decode_work &work) {
    bw_decode_place place;
    int64_t rest = (int64_t)blockIdx.x;
    place.split = rest % work.splits;
    rest /= work.splits;
    place.chunk = rest % work.chunks;
    rest /= work.chunks;
    place.kv_head = rest % shape.kv_heads;
    place.batch = rest / shape.kv_heads;
    place.length = work.kv_lens ? min(max((int64_t)work.kv_lens[place.batch], (int64_t)1), shape.keys) : shape.keys;
    place.splits = (place.length + work.split_keys - 1) / work.split_keys;
    place.first = place.split * work.split_keys;
    place.end = min(place.length, place.first + work.split_keys);
    place.head0 = place.kv_head * shape.group + place.chunk * work.block_heads;
    place.heads = (int)min((int64_t)work.block_heads, shape.group - place.chunk * work.block_heads);
    return place;
}

// A weight relative to a maximum that is -infinity while nothing was seen.
BW_DEVICE float bw_decode_reference(float top) {
    return top == -INFINITY ? 0.0f : top;
}

// One block's cells in shared memory: a cell is a (part of a) warp that met some of the keys for `cell_heads` heads.
// Head h of the block belongs to slot h / cell_heads; its cells are (share * head_slots + slot) * parts + part.
template <int cell_heads, int padded, int parts>
struct bw_decode_cells {
    float *top, *sum, *out;  // [cell][cell_heads], [cell][cell_heads], [cell][cell_heads][padded]
    int shares, head_slots;

    __device__ __forceinline__ void place_at(float *memory, int cells) {
        out = memory;  // first: it is read in vectors
        top = out + cells * cell_heads * padded;
        sum = top + cells * cell_heads;
    }
    __device__ __forceinline__ int row(int head, int share, int part) const {
        return ((share * head_slots + head / cell_heads) * parts + part) * cell_heads + head % cell_heads;
    }
    // The head's maximum over its cells and its sum relative to it.
    __device__ __forceinline__ void total(int head, float &best, float &weight) const {
        best = -INFINITY;
        weight = 0.0f;
        for (int share = 0; share < shares; share++) {
            for (int part = 0; part < parts; part++) best = fmaxf(best, top[row(head, share, part)]);
        }
        for (int share = 0; share < shares; share++) {
            for (int part = 0; part < parts; part++) {
                const int at = row(head, share, part);
                weight += sum[at] * bw_exp2(top[at] - bw_decode_reference(best));
            }
        }
    }
    __device__ __forceinline__ float value(int head, int dim, float best) const {
        float result = 0.0f;
        for (int share = 0; share < shares; share++) {
            for (int part = 0; part < parts; part++) {
                const int at = row(head, share, part);
                result = fmaf(out[at * padded + dim], bw_exp2(top[at] - bw_decode_reference(best)), result);
            }
        }
        return result;
    }
};

// Writes the block's result: to `out` when the entry has one split, else to scratch. Every split has at least one key,
// so that sums are positive.
template <typename Cells, typename T>
BW_DEVICE void bw_decode_store(const Cells &cells, const bw_attention_shape &shape, const bw_decode_work &work,
                               const bw_decode_place &place, T *out) {
    const int64_t row0 = place.batch * shape.heads + place.head0;
    for (int i = (int)threadIdx.x; i < place.heads * shape.head_dim; i += (int)blockDim.x) {
        const int head = i / shape.head_dim, dim = i % shape.head_dim;
        float best, weight;
        cells.total(head, best, weight);
        const float value = cells.value(head, dim, best) / weight;
        if (place.splits == 1) {
            bw_from_float(value, &out[(row0 + head) * shape.head_dim + dim]);
        } else {
            const int64_t at = (row0 + head) * work.splits + place.split;
            work.outputs[at * shape.head_dim + dim] = value;
            if (dim == 0) work.sums[at] = best + log2f(weight);
        }
    }
}

// True in every thread of the block that is the last of its (batch, K/V head, chunk) to come here; all the others'
// scratch is then visible to it. The ticket counts to the number of splits and wraps to 0, ready for the next launch.
BW_DEVICE bool bw_decode_is_last(const bw_attention_shape &shape, const bw_decode_work &work,
                                 const bw_decode_place &place) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        const int64_t at = (place.batch * shape.kv_heads + place.kv_head) * work.chunks + place.chunk;
        last = atomicInc(&work.tickets[at], (unsigned)place.splits - 1) == (unsigned)place.splits - 1;
    }
    __syncthreads();
    if (last) __threadfence();
    return last;
}

// Each split's share in the result, into shared memory [head][splits]: one warp per head.
BW_DEVICE void bw_decode_shares(const bw_decode_work &work, const bw_decode_place &place, int64_t row0, float *shares) {
    const int lane = (int)threadIdx.x % 32, splits = (int)place.splits;
    for (int head = (int)threadIdx.x / 32; head < place.heads; head += (int)blockDim.x / 32) {
        const float *sums = work.sums + (row0 + head) * work.splits;
        float best = -INFINITY, total = 0.0f;
        for (int s = lane; s < splits; s += 32) best = fmaxf(best, __ldcg(&sums[s]));
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) {
            best = fmaxf(best, __shfl_xor_sync(bw_all_lanes, best, offset));
        }
        for (int s = lane; s < splits; s += 32) {
            const float weight = bw_exp2(__ldcg(&sums[s]) - best);
            shares[head * bw_decode_split_limit + s] = weight;
            total += weight;
        }
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) total += __shfl_xor_sync(bw_all_lanes, total, offset);
        for (int s = lane; s < splits; s += 32) shares[head * bw_decode_split_limit + s] /= total;
    }
}

// The last block's work. `shares` holds heads * bw_decode_split_limit floats of shared memory.
template <typename T>
BW_DEVICE void bw_decode_combine(const bw_attention_shape &shape, const bw_decode_work &work,
                                 const bw_decode_place &place, float *shares, T *out) {
    const int64_t row0 = place.batch * shape.heads + place.head0;
    const int dims = shape.head_dim, splits = (int)place.splits;
    bw_decode_shares(work, place, row0, shares);
    __syncthreads();
    if (dims % 4 == 0) {
        const int quads = dims / 4;
        for (int i = (int)threadIdx.x; i < place.heads * quads; i += (int)blockDim.x) {
            const int head = i / quads, dim = i % quads * 4;
            const float *from = work.outputs + (row0 + head) * work.splits * dims + dim;
            float value[4] = {};
#pragma unroll 8
            for (int s = 0; s < splits; s++) {
                const float4 part = __ldcg((const float4 *)(from + (int64_t)s * dims));
                const float share = shares[head * bw_decode_split_limit + s];
                value[0] = fmaf(part.x, share, value[0]);
                value[1] = fmaf(part.y, share, value[1]);
                value[2] = fmaf(part.z, share, value[2]);
                value[3] = fmaf(part.w, share, value[3]);
            }
#pragma unroll
            for (int e = 0; e < 4; e++) bw_from_float(value[e], &out[(row0 + head) * dims + dim + e]);
        }
        return;
    }
    for (int i = (int)threadIdx.x; i < place.heads * dims; i += (int)blockDim.x) {
        const int head = i / dims, dim = i % dims;
        const float *from = work.outputs + (row0 + head) * work.splits * dims + dim;
        float value = 0.0f;
        for (int s = 0; s < splits; s++) {
            value = fmaf(__ldcg(from + (int64_t)s * dims), shares[head * bw_decode_split_limit + s], value);
        }
        bw_from_float(value, &out[(row0 + head) * dims + dim]);
    }
}

// The end of every decode kernel. The cells lie in `shared`, which is then used again.
template <typename Cells, typename T>
BW_DEVICE void bw_decode_finish(const Cells &cells, const bw_attention_shape &shape, const bw_decode_work &work,
                                const bw_decode_place &place, float *shared, T *out) {
    bw_decode_store(cells, shape, work, place, out);
    if (place.splits == 1) return;
    if (bw_decode_is_last(shape, work, place)) bw_decode_combine(shape, work, place, shared, out);
}

#endif
