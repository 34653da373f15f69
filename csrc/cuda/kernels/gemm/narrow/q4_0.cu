// What only Q4_0 has: the plain rungs of gemm's ladder, weights in tiles (ops/families/gemm.h) and their repacking.
//   strided    a thread an element of D: its neighbors read rows of B that lie apart, and each weight's scale anew
//   per_block  the same with a scale read once for its 32 weights
//   repacked   up to 8 rows of A; tiles of 16 rows of B by 256 weights go from memory to registers and on to tensor
//              cores (m16n8k16), 16 bytes a lane: its words of four blocks. A block has the tiles of 16 rows, which its
//              warps share; each lane has asked for its warp's next tile before it works on the present one. A comes
//              through L1. `transform` repacks B into scratch, once.
#include "cuda/kernels/common/divide.cuh"
#include "cuda/kernels/gemm/narrow/weights.cuh"
#include "cuda/kernels/gemm/tiles.cuh"

namespace {

using format = bw_weights_q4_0;
constexpr int block_weights = 32, block_bytes = format::block, naive_threads = 64;
constexpr int tile_rows = BW_Q4_0_TILE_ROWS, tile_blocks = BW_Q4_0_TILE_BLOCKS, piece_blocks = BW_Q4_0_TILE_PIECE;
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

// A lane's part of a tile: of rows r and r + 8 the word `lane % 4` of blocks 0 to 3 and 4 to 7, and all scales.
struct tile_part {
    uint4 words[2][2], scales[2];
};

BW_DEVICE uint32_t word_of(const uint4 &four, int i) {
    return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
}

__global__ void __launch_bounds__(most_warps * 32)
    gemm_repacked_kernel(const __half *a, const unsigned char *b, const __half *c, __half *d, int m, int k, int64_t n) {
    __shared__ float shared[most_warps * most_a_rows * tile_rows];
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int quad = lane / 4, in_quad = lane % 4, tiles = k / tile_weights;
    const int64_t row0 = (int64_t)blockIdx.x * tile_rows;
    const int rows = (int)min((int64_t)tile_rows, n - row0);
    const int row[2] = {min(quad, rows - 1), min(quad + 8, rows - 1)};  // behind the last one: that again
    const unsigned char *next = b + (row0 * tiles + warp * rows) * row_bytes;
    const auto load = [&] {
        tile_part part;
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int half = 0; half < 2; half++)
                part.words[i][half] = bw_load_streaming(next + ((half * rows + row[i]) * 4 + in_quad) * 16);
            part.scales[i] = bw_load_streaming(next + rows * tile_weights / 2 + row[i] * 16);
        }
        next += (int64_t)warps * rows * row_bytes;
        return part;
    };
    tile_part coming = {};
    if (warp < tiles) coming = load();
    const __half *a_from = a + (int64_t)min(quad, m - 1) * k + warp * tile_weights + in_quad * 4;
    float total[4] = {};
#pragma unroll 1
    for (int tile = warp; tile < tiles; tile += warps, a_from += warps * tile_weights) {
        const tile_part part = coming;
        if (tile + warps < tiles) coming = load();
#pragma unroll
        for (int g = 0; g < tile_blocks; g++) {
            const uint2 low = __ldg((const uint2 *)(a_from + g * block_weights));
            const uint2 high = __ldg((const uint2 *)(a_from + g * block_weights + block_weights / 2));
            uint32_t first[4], second[4];
            bw_unpack_nibbles(word_of(part.words[0][g / piece_blocks], g % piece_blocks), first);
            bw_unpack_nibbles(word_of(part.words[1][g / piece_blocks], g % piece_blocks), second);
            const uint32_t even[2] = {__byte_perm(low.x, low.y, 0x5410), __byte_perm(high.x, high.y, 0x5410)};
            const uint32_t odd[2] = {__byte_perm(low.x, low.y, 0x7632), __byte_perm(high.x, high.y, 0x7632)};
            float sum[2][4] = {};  // of lower halves, 2^-24 of themselves, and of upper ones, 2^-20
            constexpr uint32_t less[2] = {0x80088008u, 0x80808080u};  // -8 in the same terms
            bw_multiply(sum[0], {first[0], second[0], first[1], second[1]}, even[0], odd[0], __half());
            bw_multiply(sum[1], {first[2], second[2], first[3], second[3]}, even[1], odd[1], __half());
            bw_multiply(sum[0], {less[0], less[0], less[0], less[0]}, even[0], odd[0], __half());
            bw_multiply(sum[1], {less[1], less[1], less[1], less[1]}, even[1], odd[1], __half());
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const __half2 pair = bw_half2(word_of(part.scales[i / 2], g / 2));
                const float scale = g % 2 ? __high2float(pair) : __low2float(pair);
                total[i] = fmaf(fmaf(sum[1][i], format::ratio, sum[0][i]), scale, total[i]);
            }
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

// A thread writes 16 bytes of a tile where it is a whole one: four words, or a row's scales.
constexpr int repack_threads = 256, tile_pieces = tile_rows * (2 * 4 + 1);

__global__ void __launch_bounds__(repack_threads) weight_repack_kernel(const uint16_t *b, uint16_t *d, bw_divider wide,
                                                                       int64_t tiles, int64_t n, int64_t row_blocks) {
    constexpr int halves = block_bytes / 2;
    const int64_t at = (int64_t)blockIdx.x * repack_threads + threadIdx.x, tile = at / tile_pieces;
    const int64_t high = wide.quotient(tile), row0 = high * tile_rows;
    if (tile >= tiles) return;
    const int64_t block0 = (tile - high * wide.divisor) * tile_blocks;
    const int rows = (int)min((int64_t)tile_rows, n - row0);
    const int blocks = (int)min((int64_t)tile_blocks, row_blocks - block0);
    const int index = (int)(at % tile_pieces);
    const bool is_scales = index >= 8 * tile_rows;
    const int row = is_scales ? index - 8 * tile_rows : index / 4 % tile_rows;
    const int first = is_scales ? 0 : index / (4 * tile_rows) * piece_blocks, word = index % 4;
    const int count = min(is_scales ? tile_blocks : piece_blocks, blocks - first);
    if (row >= rows || count <= 0) return;
    const uint16_t *from = b + ((row0 + row) * row_blocks + block0 + first) * halves;
    uint16_t *to = d + (row0 * row_blocks + block0 * rows) * halves;
    uint16_t piece[8];
    if (is_scales) {
        to += rows * blocks * 8 + row * blocks;
#pragma unroll
        for (int i = 0; i < 8; i++) piece[i] = i < count ? __ldg(from + i * halves) : 0;
    } else {
        to += first * rows * 8 + (row * 4 + word) * count * 2;
        from += 1 + 2 * word;
#pragma unroll
        for (int i = 0; i < 8; i++) piece[i] = i / 2 < count ? __ldg(from + i / 2 * halves + i % 2) : 0;
    }
    if (is_scales ? count == 8 && blocks == 8 : count == 4) {
        uint4 bits;
        memcpy(&bits, piece, sizeof bits);
        *(uint4 *)to = bits;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (i < (is_scales ? count : 2 * count)) to[i] = piece[i];
        }
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
    if (k % tile_weights != 0 || k > most_k) return "repacked takes rows of a multiple of 256 elements, at most 2^25";
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
    bw_choose(out, gemm_repacked_kernel, dim3((unsigned)bw_ceil_div(n, tile_rows)),
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
