// The lower variants of gemm, each slower than `tiled` and simpler. One float sum an element of D in all of them.
//   naive      a thread an element of D: its neighbors read rows of B that lie K elements apart, a memory line each
//   coalesced  a warp an element of D: its lanes read neighboring elements of the same two rows
//   shared     32 x 32 tiles through shared memory, read from memory once for 32 products; lanes read the same column
//              of 32 rows, which all lie in one bank
//   padded     rows of 33 floats: the same column of 32 rows lies in 32 banks
//   swizzled   rows of 32 floats whose pieces of 16 bytes change places, another way in each of 8 rows: the same piece
//              of 8 rows lies in all banks, and rows stay aligned, so that a load brings four elements (such loads take
//              registers: one block runs on a multiprocessor, not two, which takes most of the gain back)
#include "cuda/kernels/gemm/eight/types.cuh"
#include "cuda/kernels/gemm/tiles.cuh"

namespace {

constexpr int naive_threads = 256;
constexpr int coalesced_rows = 4, coalesced_columns = 4;  // of D, a warp each: a block reads 8 rows for 16 elements
constexpr int edge = 32;                                  // of a tile, a thread each

template <typename T>
BW_DEVICE float dot(const T *a, const T *b, int64_t k) {
    float sum = 0.0f;
    for (int64_t i = 0; i < k; i++) sum = fmaf(bw_to_float(a[i]), bw_to_float(b[i]), sum);
    return sum;
}

template <typename T>
__global__ void __launch_bounds__(naive_threads)
    gemm_naive_kernel(const T *a, const T *b, const T *c, T *d, int64_t m, int64_t n, int64_t k) {
    const int64_t at = (int64_t)blockIdx.x * naive_threads + threadIdx.x;
    if (at < m * n) bw_gemm_store(c, d, at, dot(a + at / n * k, b + at % n * k, k));
}

struct coalesced_shape {
    int64_t m, n, k, tiles_m;
};

template <typename T, typename TD>
__global__ void __launch_bounds__(coalesced_rows *coalesced_columns * 32)
    gemm_coalesced_kernel(const T *a, const T *b, const TD *c, TD *d, bw_gemm_scales scales, coalesced_shape shape) {
    const int64_t n = shape.n, k = shape.k, tiles_m = shape.tiles_m;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x % tiles_m * coalesced_rows + warp / coalesced_columns;
    const int64_t column = (int64_t)blockIdx.x / tiles_m * coalesced_columns + warp % coalesced_columns;
    if (row >= shape.m || column >= n) return;
    const T *left = a + row * k, *right = b + column * k;
    float sum = 0.0f;
#pragma unroll 4
    for (int64_t i = lane; i < k; i += 32) {
        float factor = bw_to_float(right[i]);
        if (bw_gemm_types<T>::scaled && scales.groups) {
            const int group = (int)(i / bw_scaled_block);
            factor *= bw_gemm_scale_of_row(scales, row, group) * bw_gemm_scale_of_column(scales, column, group);
        }
        sum = fmaf(bw_to_float(left[i]), factor, sum);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(bw_all_lanes, sum, offset);
    if (lane != 0) return;
    if (bw_gemm_types<T>::scaled) sum *= bw_gemm_scale_of_row(scales, row) * bw_gemm_scale_of_column(scales, column);
    bw_gemm_store(c, d, row * n + column, sum);
}

// A row of a tile in shared memory is `stride` floats; element i of row r lies in piece (i / 4) ^ (r & swizzle) of
// four.
template <int stride, int swizzle, typename T>
__global__ void __launch_bounds__(edge *edge)
    gemm_shared_kernel(const T *a, const T *b, const T *c, T *d, int64_t m, int64_t n, int64_t k, int64_t tiles_m) {
    __shared__ __align__(16) float left[edge * stride], right[edge * stride];
    const auto place = [](unsigned row, unsigned i) { return row * stride + (i / 4 ^ (row & swizzle)) * 4 + i % 4; };
    const int tx = (int)threadIdx.x % edge, ty = (int)threadIdx.x / edge;
    const int64_t row0 = (int64_t)blockIdx.x % tiles_m * edge, column0 = (int64_t)blockIdx.x / tiles_m * edge;
    const bool left_there = row0 + ty < m, right_there = column0 + ty < n;
    const T *left_from = a + (row0 + ty) * k, *right_from = b + (column0 + ty) * k;
    float sum = 0.0f;
    for (int64_t k0 = 0; k0 < k; k0 += edge) {
        const bool inside = k0 + tx < k;
        left[place(ty, tx)] = left_there && inside ? bw_to_float(left_from[k0 + tx]) : 0.0f;
        right[place(ty, tx)] = right_there && inside ? bw_to_float(right_from[k0 + tx]) : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < edge; i++) sum = fmaf(left[place(ty, i)], right[place(tx, i)], sum);
        __syncthreads();
    }
    if (row0 + ty < m && column0 + tx < n) bw_gemm_store(c, d, (row0 + ty) * n + column0 + tx, sum);
}

}  // namespace

const char *bw_gemm_naive_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    const bw_checked_int elements = bw_mul(bw_num(dims->value[BW_GEMM_M]), bw_num(dims->value[BW_GEMM_N]));
    return elements.overflow || !bw_cuda_grid_fits(bw_ceil_div(elements.value, naive_threads))
               ? "more elements of D than 2^31 - 1 blocks of 256 threads"
               : nullptr;
}

bw_status bw_gemm_naive_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                               bw_cuda_launch_spec *out) {
    const int64_t m = dims->value[BW_GEMM_M], n = dims->value[BW_GEMM_N], k = dims->value[BW_GEMM_K];
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        bw_choose(out, gemm_naive_kernel<T>, dim3((unsigned)bw_ceil_div(m * n, naive_threads)), dim3(naive_threads), 0,
                  bw_from_operand(BW_GEMM_A), bw_from_operand(BW_GEMM_B),
                  bw_from_operand_if(dims->value[BW_GEMM_BETA] != 0, BW_GEMM_C), bw_from_operand(BW_GEMM_D), m, n, k);
        return BW_OK;
    });
}

const char *bw_gemm_coalesced_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    return bw_gemm_tiles_refuse(dims, coalesced_rows, coalesced_columns);
}

bw_status bw_gemm_coalesced_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                   bw_cuda_launch_spec *out) {
    const int64_t *value = dims->value;
    const coalesced_shape shape = {value[BW_GEMM_M], value[BW_GEMM_N], value[BW_GEMM_K],
                                   bw_ceil_div(value[BW_GEMM_M], coalesced_rows)};
    const int64_t blocks = shape.tiles_m * bw_ceil_div(shape.n, coalesced_columns);
    return bw_gemm_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        bw_cuda_kernel *chosen =
            bw_choose(out, gemm_coalesced_kernel<T, typename bw_gemm_types<T>::result>, dim3((unsigned)blocks),
                      dim3(coalesced_rows * coalesced_columns * 32), 0, bw_from_operand(BW_GEMM_A),
                      bw_from_operand(BW_GEMM_B), bw_from_operand_if(value[BW_GEMM_BETA] != 0, BW_GEMM_C),
                      bw_from_operand(BW_GEMM_D), bw_gemm_scales_of(dims, precision), shape);
        bw_gemm_place_scales(chosen, 4, precision);
        return BW_OK;
    });
}

const char *bw_gemm_shared_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    return bw_gemm_tiles_refuse(dims, edge, edge);
}

bw_status bw_gemm_shared_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return bw_gemm_choose_tiles(dims, gemm_shared_kernel<edge, 0, T>, edge, edge, edge * edge, 0, out);
    });
}

bw_status bw_gemm_padded_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return bw_gemm_choose_tiles(dims, gemm_shared_kernel<edge + 1, 0, T>, edge, edge, edge * edge, 0, out);
    });
}

bw_status bw_gemm_swizzled_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                  bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return bw_gemm_choose_tiles(dims, gemm_shared_kernel<edge, 7, T>, edge, edge, edge * edge, 0, out);
    });
}
