// What only Q4_0 has: the plain rungs of gemm's ladder, weights in tiles (ops/families/gemm.h) and their repacking.
//   strided    a thread an element of D: its neighbors read rows of B that lie apart, and each weight's scale anew
//   per_block  the same with a scale read once for its 32 weights
//   repacked   up to 8 rows of A; tiles of 16 rows of B by 128 weights go from memory to registers and on to tensor
//              cores (m16n8k16), 16 bytes a lane: its words of four blocks. A block has the tiles of 16 rows, which its
//              warps share; a lane asks for its warp's tile after the next as soon as it is done with one. A comes
//              through L1. `transform` repacks B into scratch, once.
#include "cuda/kernels/common/divide.cuh"
#include "cuda/kernels/gemm/narrow/weights.cuh"
#include "cuda/kernels/gemm/tiles.cuh"

namespace {

using format = bw_weights_q4_0;
constexpr int block_weights = 32, block_bytes = format::block, naive_threads = 64;
constexpr int tile_rows = BW_Q4_0_TILE_ROWS, tile_blocks = BW_Q4_0_TILE_BLOCKS;
constexpr int tile_weights = tile_blocks * block_weights, row_bytes = tile_blocks * block_bytes;  // of a tile's row
constexpr int most_a_rows = 8, most_warps = 8, most_k = 1 << 25;

template <bool is_per_block>
__global__ void __launch_bounds__(naive_threads) gemm_q4_0_kernel(const __half *a, bw_weights_stored b, const __half *c,
                                                                  __half *d, int64_t m, int64_t n, int64_t k) {
    const int64_t at = (int64_t)blockIdx.x * naive_threads + threadIdx.x, row = at % n;
    if (at >= m * n) return;
    a += at / n * k;
    float total = 0.0f;
    if constexpr (is_per_block) {
        const unsigned char *block = b.bytes + row * ((k + block_weights - 1) / block_weights) * block_bytes;
        for (int64_t k0 = 0; k0 < k; k0 += block_weights, block += block_bytes) {
            const int count = (int)min((int64_t)block_weights, k - k0);
            float sum = 0.0f;
            for (int i = 0; i < count; i++) {
                const int q = block[2 + i % 16] >> i / 16 * 4 & 15;
                sum = fmaf(bw_to_float(a[k0 + i]), (float)(q - 8), sum);
            }
            total = fmaf(sum, bw_half_at(block), total);
        }
    } else {
#pragma unroll 1  // a loop of several weights would read their scale once
        for (int64_t i = 0; i < k; i++) total = fmaf(bw_to_float(a[i]), format::element(b, row, i, k), total);
    }
    bw_gemm_store(c, d, at, total);
}

// A lane's part of a tile: of rows r and r + 8 the word `lane % 4` of four blocks, and their scales.
struct tile_part {
    uint4 words[2];
    uint2 scales[2];
};

BW_DEVICE uint32_t word_of(const uint4 &four, int i) {
    return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
}

// `single`: A has one row.
template <bool single, int depth>
__global__ void __launch_bounds__(most_warps * 32, depth <= 2 ? 4 : 3)
    gemm_repacked_kernel(const __half *a, const unsigned char *b, const __half *c, __half *d, int m, int k, int64_t n) {
    __shared__ float shared[most_warps * most_a_rows * tile_rows];
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int quad = lane / 4, in_quad = lane % 4, tiles = k / tile_weights;
    const int64_t row0 = (int64_t)blockIdx.x * tile_rows;
    const int rows = (int)min((int64_t)tile_rows, n - row0);
    // Of the lane's two rows, or behind the last one that again; everything else of a tile lies at these distances.
    const int row = min(quad, rows - 1), apart = min(quad + 8, rows - 1) - row;
    const unsigned char *next = b + (row0 * tiles + warp * rows) * row_bytes + (row * 4 + in_quad) * 16;
    const int to_scales = (rows - row) * 64 + row * 8 - in_quad * 16;
    int to_load = tiles - warp;
    tile_part parts[depth] = {};
    const auto load = [&](tile_part &part) {
        if (to_load > 0) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                part.words[i] = bw_load_streaming(next + i * apart * 64);
                part.scales[i] = bw_load_once((const uint2 *)(next + to_scales + i * apart * 8));
            }
        }
        next += warps * rows * row_bytes;
        to_load -= warps;
    };
#pragma unroll
    for (int i = 0; i < depth; i++) load(parts[i]);
    const __half *a_from = a + (single ? 0 : (int64_t)min(quad, m - 1) * k) + warp * tile_weights + in_quad * 4;
    float total[4] = {};
#pragma unroll 1
    for (int first = warp; first < tiles; first += depth * warps) {
#pragma unroll
        for (int turn = 0; turn < depth; turn++, a_from += warps * tile_weights) {
            tile_part &part = parts[turn];
            if (turn > 0 && first + turn * warps >= tiles) break;
#pragma unroll
            for (int g = 0; g < tile_blocks; g++) {
                const uint2 low = __ldg((const uint2 *)(a_from + g * block_weights));
                const uint2 high = __ldg((const uint2 *)(a_from + g * block_weights + block_weights / 2));
                uint32_t upper[4], lower[4];
                bw_unpack_nibbles(word_of(part.words[0], g), upper);
                bw_unpack_nibbles(word_of(part.words[1], g), lower);
                const uint32_t even[2] = {__byte_perm(low.x, low.y, 0x5410), __byte_perm(high.x, high.y, 0x5410)};
                const uint32_t odd[2] = {__byte_perm(low.x, low.y, 0x7632), __byte_perm(high.x, high.y, 0x7632)};
                float sum[2][4] = {};  // of lower halves, 2^-24 of themselves, and of upper ones, 2^-20
                constexpr uint32_t less[2] = {0x80088008u, 0x80808080u};  // -8 in the same terms
                bw_multiply(sum[0], {upper[0], lower[0], upper[1], lower[1]}, even[0], odd[0], __half());
                bw_multiply(sum[1], {upper[2], lower[2], upper[3], lower[3]}, even[1], odd[1], __half());
                bw_multiply(sum[0], {less[0], less[0], less[0], less[0]}, even[0], odd[0], __half());
                bw_multiply(sum[1], {less[1], less[1], less[1], less[1]}, even[1], odd[1], __half());
#pragma unroll
                for (int i = 0; i < 4; i += single ? 2 : 1) {
                    const __half2 pair = bw_half2(g / 2 ? part.scales[i / 2].y : part.scales[i / 2].x);
                    const float scale = g % 2 ? __high2float(pair) : __low2float(pair);
                    total[i] = fmaf(fmaf(sum[1][i], format::ratio, sum[0][i]), scale, total[i]);
                }
            }
            load(part);
        }
    }
    float *mine = shared + (warp * most_a_rows + in_quad * 2) * tile_rows + quad;
#pragma unroll
    for (int i = 0; i < 4; i++) mine[i % 2 * tile_rows + i / 2 * 8] = total[i];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < m * tile_rows; i += (int)blockDim.x) {
        if (i % tile_rows >= rows) continue;
        float sum = 0.0f;
        for (int other = 0; other < warps; other++) sum += shared[other * most_a_rows * tile_rows + i];
        bw_gemm_store(c, d, i / tile_rows * n + row0 + i % tile_rows, sum * format::unit);
    }
}

// A thread writes 16 bytes of a whole tile, the same word of four blocks, or a row's four scales.
constexpr int repack_threads = 256, tile_pieces = tile_rows * 5;

__global__ void __launch_bounds__(repack_threads) weight_repack_kernel(const uint16_t *b, uint16_t *d, bw_divider wide,
                                                                       int64_t tiles, int64_t n, int64_t row_blocks) {
    constexpr int halves = block_bytes / 2;
    const int64_t at = (int64_t)blockIdx.x * repack_threads + threadIdx.x, tile = at / tile_pieces;
    const int64_t high = wide.quotient(tile), row0 = high * tile_rows;
    if (tile >= tiles) return;
    const int64_t block0 = (tile - high * wide.divisor) * tile_blocks;
    const int rows = (int)min((int64_t)tile_rows, n - row0);
    const int blocks = (int)min((int64_t)tile_blocks, row_blocks - block0);
    const int index = (int)(at % tile_pieces), word = index % 4;
    const bool is_scales = index >= 4 * tile_rows;
    const int row = is_scales ? index - 4 * tile_rows : index / 4;
    if (row >= rows) return;
    const uint16_t *from = b + ((row0 + row) * row_blocks + block0) * halves + (is_scales ? 0 : 1 + 2 * word);
    uint16_t *to = d + (row0 * row_blocks + block0 * rows) * halves;
    to += is_scales ? (rows * 8 + row) * blocks : (row * 4 + word) * blocks * 2;
    uint16_t piece[2 * tile_blocks];
    const int each = is_scales ? 1 : 2;
#pragma unroll
    for (int i = 0; i < tile_blocks; i++) {
#pragma unroll
        for (int j = 0; j < 2; j++) piece[2 * i + j] = i < blocks && j < each ? __ldg(from + i * halves + j) : 0;
    }
    if (blocks == tile_blocks && !is_scales) {
        uint4 bits;
        memcpy(&bits, piece, sizeof bits);
        *(uint4 *)to = bits;
        return;
    }
#pragma unroll
    for (int i = 0; i < tile_blocks; i++) {
        if (i < blocks) to[i * each] = piece[2 * i];
        if (i < blocks && !is_scales) to[i * each + 1] = piece[2 * i + 1];
    }
}

int64_t row_blocks_of(int64_t k) {
    return bw_ceil_div(k, block_weights);
}
int64_t tiles_of(int64_t n, int64_t k) {
    return bw_ceil_div(n, tile_rows) * bw_ceil_div(row_blocks_of(k), tile_blocks);
}

void choose_repack(int64_t n, int64_t k, bw_address to, bw_cuda_launch_spec *out) {
    const int64_t tiles = tiles_of(n, k), wide = bw_ceil_div(row_blocks_of(k), tile_blocks);
    bw_choose(out, weight_repack_kernel, dim3((unsigned)bw_ceil_div(tiles * tile_pieces, repack_threads)),
              dim3(repack_threads), 0, bw_from_operand(BW_GEMM_B), to, bw_divider_make(wide), tiles, n,
              row_blocks_of(k));
}

const char *repack_refuses(int64_t n, int64_t k) {
    return bw_cuda_grid_fits(bw_ceil_div(tiles_of(n, k) * tile_pieces, repack_threads))
               ? nullptr
               : "16 bytes of a tile a thread: at most 2^31 - 1 blocks of 256";
}

template <bool is_per_block>
void choose_naive(const bw_dims *dims, bw_cuda_launch_spec *out) {
    const int64_t m = dims->value[BW_GEMM_M], n = dims->value[BW_GEMM_N], k = dims->value[BW_GEMM_K];
    bw_cuda_kernel *kernel =
        bw_choose(out, gemm_q4_0_kernel<is_per_block>, dim3((unsigned)bw_ceil_div(m * n, naive_threads)),
                  dim3(naive_threads), 0, bw_from_operand(BW_GEMM_A), bw_weights_stored{},
                  bw_from_operand_if(dims->value[BW_GEMM_BETA] != 0, BW_GEMM_C), bw_from_operand(BW_GEMM_D), m, n, k);
    bw_choose_weights(kernel, 1, bw_precision_get(BW_PRECISION_Q4_0)->weight_scales);
}

}  // namespace

const char *bw_q4_0_naive_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    return bw_cuda_grid_fits(bw_ceil_div(dims->value[BW_GEMM_M] * dims->value[BW_GEMM_N], naive_threads))
               ? nullptr
               : "more elements of D than 2^31 - 1 blocks of 64 threads";
}

bw_status bw_q4_0_strided_choose(const bw_dims *dims, const bw_precision *, const bw_device_facts *,
                                 bw_cuda_launch_spec *out) {
    choose_naive<false>(dims, out);
    return BW_OK;
}

bw_status bw_q4_0_per_block_choose(const bw_dims *dims, const bw_precision *, const bw_device_facts *,
                                   bw_cuda_launch_spec *out) {
    choose_naive<true>(dims, out);
    return BW_OK;
}

const char *bw_q4_0_repacked_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    const int64_t n = dims->value[BW_GEMM_N], k = dims->value[BW_GEMM_K];
    if (dims->value[BW_GEMM_M] > most_a_rows) return "repacked takes at most 8 rows of A";
    if (k % tile_weights != 0 || k > most_k) return "repacked takes rows of a multiple of 128 elements, at most 2^25";
    return repack_refuses(n, k);
}

int64_t bw_q4_0_repacked_scratch_bytes(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    return dims->value[BW_GEMM_N] * row_blocks_of(dims->value[BW_GEMM_K]) * block_bytes;
}

// A launch reads the tiles instead of B.
bw_status bw_q4_0_repacked_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                      bw_cost *cost) {
    cost->footprint_bytes -= bw_q4_0_repacked_scratch_bytes(dims, precision, facts);
    return BW_OK;
}

bw_status bw_q4_0_repacked_transform(const bw_launch *launch) {
    bw_cuda_launch_spec spec = {};
    bw_launch once = *launch;
    choose_repack(launch->dims->value[BW_GEMM_N], launch->dims->value[BW_GEMM_K], bw_from_scratch(0), &spec);
    once.state = &spec;
    return bw_cuda_prepared_launch(&once);
}

bw_status bw_q4_0_repacked_choose(const bw_dims *dims, const bw_precision *, const bw_device_facts *facts,
                                  bw_cuda_launch_spec *out) {
    const int64_t m = dims->value[BW_GEMM_M], n = dims->value[BW_GEMM_N], k = dims->value[BW_GEMM_K];
    int64_t warps = n > (int64_t)facts->units * 4 * tile_rows ? 4 : most_warps;
    if (getenv("REPACKED_WARPS")) warps = atoi(getenv("REPACKED_WARPS"));
    const char *deep = getenv("REPACKED_DEPTH");
    const int dp = deep ? atoi(deep) : 2;
    auto *function = m == 1    ? dp == 1   ? gemm_repacked_kernel<true, 1>
                                 : dp == 2 ? gemm_repacked_kernel<true, 2>
                                           : gemm_repacked_kernel<true, 3>
                        : dp == 1 ? gemm_repacked_kernel<false, 1>
                     : dp == 2 ? gemm_repacked_kernel<false, 2>
                               : gemm_repacked_kernel<false, 3>;
    bw_choose(out, function, dim3((unsigned)bw_ceil_div(n, tile_rows)),
              dim3((unsigned)bw_min64(warps, k / tile_weights) * 32), 0, bw_from_operand(BW_GEMM_A), bw_from_scratch(0),
              bw_from_operand_if(dims->value[BW_GEMM_BETA] != 0, BW_GEMM_C), bw_from_operand(BW_GEMM_D), m, k, n);
    return BW_OK;
}

const char *bw_repack_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    return repack_refuses(dims->value[BW_WEIGHT_N], dims->value[BW_WEIGHT_K]);
}

bw_status bw_repack_choose(const bw_dims *dims, const bw_precision *, const bw_device_facts *,
                           bw_cuda_launch_spec *out) {
    choose_repack(dims->value[BW_WEIGHT_N], dims->value[BW_WEIGHT_K], bw_from_operand(BW_GEMM_D), out);
    return BW_OK;
}
