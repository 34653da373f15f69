// gemm by 128 x 128 tiles and 8 x 8 sums a thread, float arithmetic: against `tiled`, four times the products for twice
// the loads from shared memory, and these are of 16 bytes, four to a step of K instead of eight.
//   - memory is read 16 bytes a thread; the next tiles are under way while this one's products are taken, and two pairs
//     of buffers leave one barrier a tile;
//   - tiles lie in shared memory as K x rows, so that a thread's four neighboring rows are one load;
//   - rows that start anywhere (K no multiple of 16 bytes) are read element by element.
#include "cuda/kernels/gemm/tiles.cuh"

namespace {

constexpr int edge = 128, threads = 256;
constexpr int stride = edge + 4;  // a step of K in shared memory, in floats: still a multiple of 16 bytes

// A matrix's tile, of which each thread has 16 bytes of a row: two threads a row.
template <typename T>
struct tile_part {
    static constexpr int elems = 16 / (int)sizeof(T), depth = threads / edge * elems;
    const T *at;  // in the tile that is next
    uint4 bits;
};

template <typename T>
BW_DEVICE int own_column() {
    return (int)threadIdx.x % (threads / edge) * tile_part<T>::elems;
}
BW_DEVICE int own_row() {
    return (int)threadIdx.x / (threads / edge);
}

// Rows past the end are clamped to the last one: their products are never stored.
template <typename T>
BW_DEVICE tile_part<T> start(const T *first, int64_t rows, int64_t k) {
    return {first + min((int64_t)own_row(), rows - 1) * k + own_column<T>(), make_uint4(0, 0, 0, 0)};
}

// The next tile, whose rows have `left` more elements; zeros behind them.
template <typename T>
BW_DEVICE void load(tile_part<T> &next, int64_t left, bool vectors) {
    left -= own_column<T>();
    next.bits = make_uint4(0, 0, 0, 0);
    if (left > 0) {
        next.bits =
            vectors ? bw_load_cached(next.at) : bw_gather_chunk(next.at, (int)min((int64_t)tile_part<T>::elems, left));
    }
    next.at += tile_part<T>::depth;
}

template <typename T>
BW_DEVICE void keep(float *to, const tile_part<T> &part) {
    float value[tile_part<T>::elems];
    bw_unpack(part.bits, value, T());
#pragma unroll
    for (int e = 0; e < tile_part<T>::elems; e++) to[(own_column<T>() + e) * stride + own_row()] = value[e];
}

// A thread's rows are 4 t .. + 3 and 64 + 4 t .. + 3, for its rows of A and for its rows of B.
BW_DEVICE void take(float (&out)[8], const float *step, int t) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float4 four = *(const float4 *)&step[64 * half + 4 * t];
        out[4 * half] = four.x;
        out[4 * half + 1] = four.y;
        out[4 * half + 2] = four.z;
        out[4 * half + 3] = four.w;
    }
}

template <typename T>
__global__ void __launch_bounds__(threads, 2)
    gemm_vector_kernel(const T *a, const T *b, const T *c, T *d, int64_t m, int64_t n, int64_t k, int64_t tiles_m) {
    constexpr int depth = tile_part<T>::depth;
    __shared__ __align__(16) float shared[2][2][depth * stride];
    const int64_t row0 = (int64_t)blockIdx.x % tiles_m * edge, column0 = (int64_t)blockIdx.x / tiles_m * edge;
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    const bool vectors = k * (int)sizeof(T) % 16 == 0;
    tile_part<T> a_next = start(a + row0 * k, m - row0, k), b_next = start(b + column0 * k, n - column0, k);
    float acc[8][8] = {};
    load(a_next, k, vectors);
    load(b_next, k, vectors);
    keep(shared[0][0], a_next);
    keep(shared[0][1], b_next);
    __syncthreads();
    int now = 0;
    for (int64_t k0 = 0; k0 < k; k0 += depth, now ^= 1) {
        load(a_next, k - k0 - depth, vectors);
        load(b_next, k - k0 - depth, vectors);
#pragma unroll
        for (int i = 0; i < depth; i++) {
            float left[8], right[8];
            take(left, &shared[now][0][i * stride], ty);
            take(right, &shared[now][1][i * stride], tx);
#pragma unroll
            for (int x = 0; x < 8; x++) {
#pragma unroll
                for (int y = 0; y < 8; y++) acc[x][y] = fmaf(left[x], right[y], acc[x][y]);
            }
        }
        keep(shared[now ^ 1][0], a_next);
        keep(shared[now ^ 1][1], b_next);
        __syncthreads();
    }
#pragma unroll
    for (int x = 0; x < 8; x++) {
        const int64_t row = row0 + 64 * (x / 4) + 4 * ty + x % 4;
        if (row >= m) continue;
#pragma unroll
        for (int y = 0; y < 8; y += 2) {
            bw_gemm_store_pair(c, d, row, column0 + 64 * (y / 4) + 4 * tx + y % 4, n, acc[x][y], acc[x][y + 1]);
        }
    }
}

}  // namespace

const char *bw_gemm_vector_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    return bw_gemm_tiles_refuse(dims, edge, edge);
}

bw_status bw_gemm_vector_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return bw_gemm_choose_tiles(dims, gemm_vector_kernel<T>, edge, edge, threads, 0, out);
    });
}
