// gemm by 128 x 128 tiles and 8 x 8 sums a thread, float arithmetic: against `tiled`, four times the products for twice
// the loads from shared memory, and these are of 16 bytes, four to a step of K instead of eight.
//   - memory is read 16 bytes a thread; the next tiles are under way while this one's products are taken, and two pairs
//     of buffers leave one barrier a tile;
//   - tiles lie in shared memory as K x rows, so that a thread's four neighbouring rows are one load;
//   - rows that start anywhere (K no multiple of 16 bytes) are read element by element.
#include "cuda/kernels/gemm/tiles.cuh"

namespace {

constexpr int edge = 128, depth = 16, threads = 256;
constexpr int stride = edge + 4;  // a step of K in shared memory, in floats: still a multiple of 16 bytes

// A matrix's tile, as one thread loads it: the same 16 bytes of every so many rows.
template <typename T>
struct tile_loads {
    static constexpr int elems = 16 / (int)sizeof(T);
    static constexpr int in_row = depth / elems, rows = threads / in_row, count = edge / rows;
    static_assert(count * rows == edge, "every thread has as much to load");
    const T *at[count];  // in the tile that is next
    int64_t k;           // elements from there to the row's end
    uint4 bits[count];
};

// Rows past the end are clamped to the last one: their products are never stored.
template <typename T>
BW_DEVICE void start(tile_loads<T> &out, const T *first, int64_t rows, int64_t k) {
    const int row = (int)threadIdx.x / tile_loads<T>::in_row;
    const int column = (int)threadIdx.x % tile_loads<T>::in_row * tile_loads<T>::elems;
#pragma unroll
    for (int i = 0; i < tile_loads<T>::count; i++) {
        out.at[i] = first + min((int64_t)row + i * tile_loads<T>::rows, rows - 1) * k + column;
    }
    out.k = k - column;
}

// The next tile; zeros behind the last column.
template <typename T>
BW_DEVICE void load(tile_loads<T> &next, bool vectors) {
    constexpr int elems = tile_loads<T>::elems;
#pragma unroll
    for (int i = 0; i < tile_loads<T>::count; i++) {
        next.bits[i] = make_uint4(0, 0, 0, 0);
        if (next.k > 0) {
            next.bits[i] =
                vectors ? bw_load_cached(next.at[i]) : bw_gather_chunk(next.at[i], (int)min((int64_t)elems, next.k));
        }
        next.at[i] += depth;
    }
    next.k -= depth;
}

template <typename T>
BW_DEVICE void keep(float (&to)[depth * stride], const tile_loads<T> &loads) {
    constexpr int elems = tile_loads<T>::elems;
#pragma unroll
    for (int i = 0; i < tile_loads<T>::count; i++) {
        const int row = (int)threadIdx.x / tile_loads<T>::in_row + i * tile_loads<T>::rows;
        const int k = (int)threadIdx.x % tile_loads<T>::in_row * elems;
        float value[elems];
        bw_unpack(loads.bits[i], value, T());
#pragma unroll
        for (int e = 0; e < elems; e++) to[(k + e) * stride + row] = value[e];
    }
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
    __shared__ __align__(16) float shared[2][2][depth * stride];
    const int64_t row0 = (int64_t)blockIdx.x % tiles_m * edge, column0 = (int64_t)blockIdx.x / tiles_m * edge;
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    const bool vectors = k * (int)sizeof(T) % 16 == 0;
    tile_loads<T> a_next, b_next;
    start(a_next, a + row0 * k, m - row0, k);
    start(b_next, b + column0 * k, n - column0, k);
    float acc[8][8] = {};
    load(a_next, vectors);
    load(b_next, vectors);
    keep(shared[0][0], a_next);
    keep(shared[0][1], b_next);
    __syncthreads();
    int now = 0;
    for (int64_t k0 = 0; k0 < k; k0 += depth, now ^= 1) {
        load(a_next, vectors);
        load(b_next, vectors);
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
                                bw_cuda_prepared *out) {
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return bw_gemm_choose_tiles(dims, gemm_vector_kernel<T>, edge, edge, threads, 0, out);
    });
}
