// gemm in FP32 with 9 to 32 rows of A, on tensor cores: the time is still about that of reading B, of which cuBLASLt's
// FP32, on CUDA cores, takes two and a half from 17 rows on.
//   - an element is a sum of two TF32 numbers (common/split_tf32.cuh); B's rows are a product's 16, A's its 8 columns:
//     all of its sums count, where skinny.cu's way of loading leaves every second one out;
//   - a block takes 32 rows of B, so that A, read again by every block, is no more than what is read of B; its warps
//     share out K;
//   - both come by asynchronous copies through a ring that each warp has for itself, 128 bytes of every row at a time.
// 14336 x 4096 on an H200: M = 16 62 us (skinny.cu 77; three blocks a multiprocessor 82), M = 17 70 (cuBLASLt 185).
#include "cuda/kernels/common/split_tf32.cuh"
#include "cuda/kernels/gemm/gemm.h"
#include "cuda/kernels/gemm/skinny.h"
#include "cuda/kernels/gemm/tiles.cuh"
#include "cuda/launch/choose.cuh"

namespace {

constexpr int row_chunks = 8, row_floats = 4 * row_chunks;

// `rows` rows of 128 bytes from `from` on; what is not there becomes zeros.
template <int rows>
BW_DEVICE void fetch(float *tile, const float *from, int64_t stride, int64_t rows_left, bool there) {
    const int row = (int)threadIdx.x % 32 / row_chunks, chunk = (int)threadIdx.x % row_chunks;
#pragma unroll
    for (int i = 0; i < rows; i += 32 / row_chunks, from += 32 / row_chunks * stride) {
        float *to = tile + (row + i) * row_floats + (chunk ^ bw_row_turn(row + i)) * 4;
        bw_copy_async(to, from, there && row + i < rows_left);
    }
}

BW_DEVICE uint4 read_row(const float *tile, int row, int step) {
    const int lane = (int)threadIdx.x % 32, chunk = lane % 4 ^ bw_row_turn(lane / 4);
    return *(const uint4 *)(tile + (lane / 4 + row) * row_floats + (chunk ^ step * 4) * 4);
}

// Sums of 16 rows of B each and 8 of A, of 32 elements of both.
template <int eights, int b_rows>
BW_DEVICE void add_tile(const float *b, const float *a, bw_sums_of<true> (&sums)[b_rows / 16][eights]) {
#pragma unroll
    for (int step = 0; step < 2; step++) {
        bw_factors<4, true> left[b_rows / 16][2];
#pragma unroll
        for (int i = 0; i < b_rows / 16; i++) {
            const uint4 upper = read_row(b, 16 * i, step), lower = read_row(b, 16 * i + 8, step);
            left[i][0].set(make_uint4(upper.x, lower.x, upper.y, lower.y));
            left[i][1].set(make_uint4(upper.z, lower.z, upper.w, lower.w));
        }
#pragma unroll
        for (int t = 0; t < eights; t++) {
            bw_factors<4, true> right;
            right.set(read_row(a, 8 * t, step));
#pragma unroll
            for (int half = 0; half < 2; half++) {
#pragma unroll
                for (int i = 0; i < b_rows / 16; i++) sums[i][t].multiply_add(left[i][half], right, half * 2);
            }
        }
    }
}

// Up to `eights` times 8 rows of A.
template <int eights, int b_rows, int warps, int stages>
__global__ void __launch_bounds__(warps * 32, 2)
    gemm_skinny_float_kernel(const float *a, const float *b, const float *c, float *d, bw_skinny_shape shape) {
    constexpr int stage_floats = (b_rows + 8 * eights) * row_floats;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int64_t column0 = (int64_t)blockIdx.x * b_rows, columns = shape.n - column0, stride = shape.chunks * 4;
    float *shared = (float *)bw_dynamic_shared(), *ring = shared + warp * stages * stage_floats;
    int chunk = warp * row_chunks + lane % row_chunks;
    const int row = lane / row_chunks;
    const float *from_b = b + (column0 + row) * stride + chunk * 4, *from_a = a + row * stride + chunk * 4;
    const auto fetch_next = [&](float *stage) {
        fetch<b_rows>(stage, from_b, stride, columns, chunk < shape.chunks);
        fetch<8 * eights>(stage + b_rows * row_floats, from_a, stride, shape.m, chunk < shape.chunks);
        bw_copy_commit();
        chunk += warps * row_chunks;
        from_b += warps * row_floats;
        from_a += warps * row_floats;
    };
#pragma unroll 1
    for (int s = 0; s + 1 < stages; s++) fetch_next(ring + s * stage_floats);
    bw_sums_of<true> sums[b_rows / 16][eights] = {};
    int at = 0, used = (stages - 1) * stage_floats;
#pragma unroll 1
    for (int left = shape.chunks - warp * row_chunks; left > 0; left -= warps * row_chunks) {
        bw_copy_wait<stages - 2>();
        __syncwarp();  // this stage is there, and all lanes have used what is fetched over
        fetch_next(ring + used);
        add_tile<eights, b_rows>(ring + at, ring + at + b_rows * row_floats, sums);
        used = at;
        at = at == (stages - 1) * stage_floats ? 0 : at + stage_floats;
    }
    bw_copy_wait<0>();
    __syncthreads();  // the rings become the sums of all warps: [warp][row of A][row of B]
    float *own = shared + warp * 8 * eights * b_rows + lane % 4 * 2 * b_rows + lane / 4;
#pragma unroll
    for (int i = 0; i < b_rows / 16; i++) {
#pragma unroll
        for (int t = 0; t < eights; t++) {
#pragma unroll
            for (int e = 0; e < 4; e++) own[(8 * t + e % 2) * b_rows + 16 * i + e / 2 * 8] = sums[i][t].total(e);
        }
    }
    __syncthreads();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < shape.m * b_rows; i += warps * 32) {
        if (i % b_rows >= columns) continue;
        float total = 0.0f;
#pragma unroll
        for (int other = 0; other < warps; other++) total += shared[other * 8 * eights * b_rows + i];
        bw_gemm_store(c, d, i / b_rows * shape.n + column0 + i % b_rows, total);
    }
}

template <int eights, int b_rows, int warps, int stages>
bw_status choose(const bw_skinny_shape &shape, bool adds, bw_cuda_launch_spec *out) {
    bw_choose(out, gemm_skinny_float_kernel<eights, b_rows, warps, stages>,
              dim3((unsigned)bw_ceil_div(shape.n, b_rows)), dim3(warps * 32),
              (size_t)(warps * stages * (b_rows + 8 * eights) * row_floats) * sizeof(float), bw_from_operand(BW_GEMM_A),
              bw_from_operand(BW_GEMM_B), bw_from_operand_if(adds, BW_GEMM_C), bw_from_operand(BW_GEMM_D), shape);
    return BW_OK;
}

// Two blocks a multiprocessor, and where that leaves some without any, half as many rows and twice the warps for each.
template <int eights, int stages>
bw_status choose_for(const bw_skinny_shape &shape, bool adds, const bw_device_facts *facts, bw_cuda_launch_spec *out) {
    if (shape.n <= (int64_t)facts->units * 16) return choose<eights, 16, 8, stages>(shape, adds, out);
    return choose<eights, 32, 4, stages>(shape, adds, out);
}

}  // namespace

bw_status bw_skinny_float_choose(const bw_skinny_shape &shape, bool adds, const bw_device_facts *facts,
                                 bw_cuda_launch_spec *out) {
    if (shape.m <= 16) return choose_for<2, 4>(shape, adds, facts, out);
    if (shape.m <= 24) return choose_for<3, 3>(shape, adds, facts, out);
    return choose_for<4, 3>(shape, adds, facts, out);
}
