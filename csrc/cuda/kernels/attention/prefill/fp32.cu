// attention_prefill, flash, FP32: online softmax over tiles of keys, on CUDA cores, so that no product is rounded to
// TF32. A block holds `rows` queries of one head; K, then V, pass through one shared buffer, tile by tile.
//   threads 16 x 16: thread (tx, ty) owns queries ty + 16 i; in S the keys tx + 16 j; in the output the columns
//   4 tx + 64 c .. + 3. A query's 16 threads are half a warp, so that its maximum and sum need shuffles only.
// head_dim is padded to 64, 128 or 256 with zeros in shared memory.
#include "cuda/kernels/attention/prefill/order.cuh"
#include "cuda/kernels/common/softmax.cuh"
#include "cuda/launch/choose.cuh"

namespace {

constexpr int threads = 256;  // 16 x 16: rows and keys of a tile are multiples of 16

// Rows are padded by 16 bytes: threads that read the same columns of neighboring rows use different banks.
template <int padded, int rows, int keys>
struct flash_layout {
    static constexpr int stride = padded + 4, weight_stride = keys + 4;
    static constexpr int shared_bytes = (rows * stride + keys * stride + rows * weight_stride) * (int)sizeof(float);
};

// Rows [0, valid) of a strided matrix into shared memory, everything else zero.
template <int padded, int rows>
BW_DEVICE void fetch(float *to, const float *from, int64_t stride, int64_t valid, int head_dim, bool vectors) {
    constexpr int shared_stride = padded + 4, quads = padded / 4;
    for (int i = (int)threadIdx.x; i < rows * quads; i += threads) {
        const int row = i / quads, column = i % quads * 4;
        float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (row < valid && column < head_dim) {
            const float *at = from + row * stride + column;
            if (vectors) {
                value = *(const float4 *)at;
            } else {
                value.x = at[0];
                if (column + 1 < head_dim) value.y = at[1];
                if (column + 2 < head_dim) value.z = at[2];
                if (column + 3 < head_dim) value.w = at[3];
            }
        }
        *(float4 *)&to[row * shared_stride + column] = value;
    }
}

BW_DEVICE float dot(float4 a, float4 b, float sum) {
    return fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, fmaf(a.w, b.w, sum))));
}

template <int padded, int own_rows, int own_keys>
BW_DEVICE void multiply_scores(const float *queries, const float *keys, float (&scores)[own_rows][own_keys]) {
    constexpr int stride = padded + 4;
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
#pragma unroll 1  // 64 products a step: two steps at once do not fit into the registers
    for (int d = 0; d < padded; d += 4) {
        float4 left[own_rows], right[own_keys];
#pragma unroll
        for (int i = 0; i < own_rows; i++) left[i] = *(const float4 *)&queries[(ty + 16 * i) * stride + d];
#pragma unroll
        for (int j = 0; j < own_keys; j++) right[j] = *(const float4 *)&keys[(tx + 16 * j) * stride + d];
#pragma unroll
        for (int i = 0; i < own_rows; i++) {
#pragma unroll
            for (int j = 0; j < own_keys; j++) scores[i][j] = dot(left[i], right[j], scores[i][j]);
        }
    }
}

template <int padded, int key_rows, int own_rows>
BW_DEVICE void multiply_values(const float *weights, const float *values, float (&out)[own_rows][padded / 16]) {
    constexpr int stride = padded + 4, weight_stride = key_rows + 4;
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
#pragma unroll 4
    for (int key = 0; key < key_rows; key++) {
        float left[own_rows];
#pragma unroll
        for (int i = 0; i < own_rows; i++) left[i] = weights[(ty + 16 * i) * weight_stride + key];
#pragma unroll
        for (int c = 0; c < padded / 64; c++) {
            const float4 right = *(const float4 *)&values[key * stride + 4 * tx + 64 * c];
#pragma unroll
            for (int i = 0; i < own_rows; i++) {
                out[i][4 * c] = fmaf(left[i], right.x, out[i][4 * c]);
                out[i][4 * c + 1] = fmaf(left[i], right.y, out[i][4 * c + 1]);
                out[i][4 * c + 2] = fmaf(left[i], right.z, out[i][4 * c + 2]);
                out[i][4 * c + 3] = fmaf(left[i], right.w, out[i][4 * c + 3]);
            }
        }
    }
}

// Masks and exponentiates one tile of scores, leaves the weights in shared memory and rescales what was summed before.
// `last[i]` is the last key that row i attends.
template <int columns, int own_rows, int own_keys>
BW_DEVICE void update_softmax(float (&scores)[own_rows][own_keys], int key0, const int (&last)[own_rows], float scale,
                              float (&top)[own_rows], float (&sum)[own_rows], float (&out)[own_rows][columns],
                              float *weights) {
    constexpr int weight_stride = own_keys * 16 + 4;
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < own_rows; i++) {
        float best = top[i];
#pragma unroll
        for (int j = 0; j < own_keys; j++) {
            scores[i][j] = key0 + tx + 16 * j <= last[i] ? scores[i][j] * scale : -INFINITY;
            best = fmaxf(best, scores[i][j]);
        }
#pragma unroll
        for (int offset = 8; offset > 0; offset /= 2) {
            best = fmaxf(best, __shfl_xor_sync(bw_all_lanes, best, offset));
        }
        const float reference = bw_softmax_reference(best), shrink = bw_exp2(top[i] - reference);
        top[i] = best;
        sum[i] *= shrink;
#pragma unroll
        for (int c = 0; c < columns; c++) out[i][c] *= shrink;
#pragma unroll
        for (int j = 0; j < own_keys; j++) {
            const float weight = bw_exp2(scores[i][j] - reference);
            sum[i] += weight;
            weights[(ty + 16 * i) * weight_stride + tx + 16 * j] = weight;
        }
    }
    __syncwarp();  // a row's weights are written and read by the same half warp
}

// At once where rows allow it: parts of a sector that leave the L2 one by one are written to memory more than once.
BW_DEVICE void store_four(float *row, int column, const bw_attention_shape &shape, float x, float y, float z, float w) {
    if (shape.vectors) {
        if (column < shape.head_dim) *(float4 *)&row[column] = make_float4(x, y, z, w);
        return;
    }
    if (column < shape.head_dim) row[column] = x;
    if (column + 1 < shape.head_dim) row[column + 1] = y;
    if (column + 2 < shape.head_dim) row[column + 2] = z;
    if (column + 3 < shape.head_dim) row[column + 3] = w;
}

// Block: (batch, head) and tile of queries, in bw_flash_order.
template <int padded, int rows, int keys>
__global__ void __launch_bounds__(threads, padded <= 128 ? 2 : 1)
    attention_flash_kernel(const float *q, const float *k, const float *v, float *out, bw_attention_shape shape,
                           bw_flash_order order) {
    using layout = flash_layout<padded, rows, keys>;
    constexpr int own_rows = rows / 16, own_keys = keys / 16, columns = padded / 16;
    float *queries = (float *)bw_dynamic_shared();
    float *tile = queries + rows * layout::stride, *weights = tile + keys * layout::stride;
    int64_t pair, tile_index;
    bw_flash_place(shape, order, blockIdx.x, &pair, &tile_index);
    const int64_t query0 = tile_index * rows;
    const int64_t batch = pair / shape.heads, head = pair % shape.heads;
    const int64_t q_stride = shape.heads * shape.head_dim, kv_stride = shape.kv_heads * shape.head_dim;
    const int64_t q_at = (batch * shape.queries + query0) * q_stride + head * shape.head_dim;
    const int64_t kv_at = batch * shape.keys * kv_stride + head / shape.group * shape.head_dim;
    const int all_keys = (int)shape.keys, reach = (int)(shape.keys - shape.queries + query0);
    const int key_end = shape.causal ? min(all_keys, reach + rows) : all_keys;
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;

    float acc[own_rows][columns] = {}, top[own_rows], sum[own_rows] = {};
    int last[own_rows];
#pragma unroll
    for (int i = 0; i < own_rows; i++) {
        top[i] = -INFINITY;
        last[i] = shape.causal ? min(all_keys - 1, reach + ty + 16 * i) : all_keys - 1;
    }
    fetch<padded, rows>(queries, q + q_at, q_stride, shape.queries - query0, shape.head_dim, shape.vectors);
    for (int key0 = 0; key0 < key_end; key0 += keys) {
        float scores[own_rows][own_keys] = {};
        const int64_t at = kv_at + key0 * kv_stride;
        fetch<padded, keys>(tile, k + at, kv_stride, all_keys - key0, shape.head_dim, shape.vectors);
        __syncthreads();
        multiply_scores<padded>(queries, tile, scores);
        __syncthreads();
        fetch<padded, keys>(tile, v + at, kv_stride, all_keys - key0, shape.head_dim, shape.vectors);
        update_softmax(scores, key0, last, shape.scale, top, sum, acc, weights);
        __syncthreads();
        multiply_values<padded, keys>(weights, tile, acc);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < own_rows; i++) {
#pragma unroll
        for (int offset = 8; offset > 0; offset /= 2) sum[i] += __shfl_xor_sync(bw_all_lanes, sum[i], offset);
        if (query0 + ty + 16 * i >= shape.queries) continue;
        const float inverse = 1.0f / sum[i];
        float *to = out + q_at + (ty + 16 * i) * q_stride;
#pragma unroll
        for (int c = 0; c < columns; c += 4) {
            store_four(to, 4 * tx + c * 16, shape, acc[i][c] * inverse, acc[i][c + 1] * inverse,
                       acc[i][c + 2] * inverse, acc[i][c + 3] * inverse);
        }
    }
}

template <int padded, int rows, int keys>
bw_status choose(const bw_attention_shape &shape, const bw_device_facts *facts, bw_cuda_launch_spec *out) {
    const int64_t tiles = bw_ceil_div(shape.queries, rows);
    const bw_flash_order order =
        bw_flash_order_make(shape, tiles, sizeof(float), facts->cache_bytes, facts->units * (padded <= 128 ? 2 : 1));
    bw_choose(out, attention_flash_kernel<padded, rows, keys>, dim3((unsigned)(tiles * shape.batch * shape.heads)),
              dim3(threads), flash_layout<padded, rows, keys>::shared_bytes, bw_from_operand(BW_ATTENTION_Q),
              bw_from_operand(BW_ATTENTION_K), bw_from_operand(BW_ATTENTION_V), bw_from_operand(BW_ATTENTION_OUT),
              shape, order);
    return BW_OK;
}

}  // namespace

bw_status bw_flash_fp32_choose(const bw_attention_shape &shape, const bw_device_facts *facts,
                               bw_cuda_launch_spec *out) {
    // 64 x 64: 16 scores and 16 or 32 sums a thread, and two blocks of at most 83 KiB a multiprocessor. 256 columns:
    // half the rows, so that there are no more sums.
    if (shape.head_dim <= 64) return choose<64, 64, 64>(shape, facts, out);
    if (shape.head_dim <= 128) return choose<128, 64, 64>(shape, facts, out);
    return choose<256, 32, 32>(shape, facts, out);
}
