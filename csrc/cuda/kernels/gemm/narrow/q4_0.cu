// What only Q4_0 has: gemm's plain variants, weights in tiles (ops/families/gemm.h) and their repacking.
//   strided    a thread an element of D: its neighbors read rows of B that lie apart, and each weight's scale anew
//   per_block  the same with a scale read once for its 32 weights
//   repacked   up to 8 rows of A; tiles of 16 rows of B by 128 weights go from memory to registers and on to tensor
//              cores (m16n8k16), 16 bytes a lane: its words of four blocks. A block has the tiles of 16 rows, which its
//              warps share, two at once where it can. Words come in the order in which A lies in memory, through L1.
//              `transform` repacks B into scratch, once.
#include "cuda/kernels/gemm/narrow/operands.cuh"
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

// `single`: A has one row. `batch`: neighboring tiles that a warp has at once.
template <bool single, int batch>
__global__ void __launch_bounds__(most_warps * 32)
    gemm_repacked_kernel(const __half *a, const unsigned char *b, const __half *c, __half *d, int m, int k, int64_t n) {
    __shared__ float shared[most_warps * most_a_rows * tile_rows];
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int quad = lane / 4, in_quad = lane % 4, tiles = k / tile_weights;
    const int64_t row0 = (int64_t)blockIdx.x * tile_rows;
    const int rows = (int)min((int64_t)tile_rows, n - row0);
    // Of the lane's two rows, or behind the last one that again.
    const int row = min(quad, rows - 1), apart = min(quad + 8, rows - 1) - row;
    const unsigned char *words = b + row0 * tiles * row_bytes + (row * 4 + in_quad) * 16;
    const unsigned char *scales = b + (row0 * row_bytes + rows * 64) * tiles + row * 8;
    a += (single ? 0 : (int64_t)min(quad, m - 1) * k) + in_quad * 8;
    // -8 in the terms of lower halves, 2^-24 of themselves, and of upper ones, 2^-20: kept in registers, not made anew.
    uint32_t less[4], upper_less[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        asm volatile("mov.b32 %0, 0x80088008;" : "=r"(less[i]));
        asm volatile("mov.b32 %0, 0x80808080;" : "=r"(upper_less[i]));
    }
    float total[4] = {};
#pragma unroll 1
    for (int first = warp * batch; first < tiles; first += warps * batch) {
        tile_part parts[batch];
#pragma unroll
        for (int turn = 0; turn < batch; turn++) {
            const int tile = min(first + turn, tiles - 1) * rows;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                parts[turn].words[i] = bw_load_once((const uint4 *)(words + tile * 64 + i * apart * 64));
                parts[turn].scales[i] = bw_load_once((const uint2 *)(scales + tile * 8 + i * apart * 8));
            }
        }
#pragma unroll
        for (int turn = 0; turn < batch; turn++) {
            if (turn > 0 && first + turn >= tiles) break;
            const tile_part &part = parts[turn];
            const __half *a_from = a + (first + turn) * tile_weights;
            uint4 act[tile_blocks];
#pragma unroll
            for (int g = 0; g < tile_blocks; g++) act[g] = *(const uint4 *)(a_from + g * block_weights);
            __syncwarp();  // every load is issued before: the compiler would have some of them wait for others
#pragma unroll
            for (int g = 0; g < tile_blocks; g++) {
                uint32_t first_row[4], second_row[4];
                bw_unpack_nibbles(word_of(part.words[0], g), first_row);
                bw_unpack_nibbles(word_of(part.words[1], g), second_row);
                float sum[2][4] = {};
                bw_multiply(sum[0], {first_row[0], second_row[0], first_row[1], second_row[1]}, act[g].x, act[g].y,
                            __half());
                bw_multiply(sum[1], {first_row[2], second_row[2], first_row[3], second_row[3]}, act[g].z, act[g].w,
                            __half());
                bw_multiply(sum[0], less, act[g].x, act[g].y, __half());
                bw_multiply(sum[1], upper_less, act[g].z, act[g].w, __half());
#pragma unroll
                for (int i = 0; i < 4; i += single ? 2 : 1) {
                    const __half2 pair = bw_half2(g / 2 ? part.scales[i / 2].y : part.scales[i / 2].x);
                    const float scale = g % 2 ? __high2float(pair) : __low2float(pair);
                    total[i] = fmaf(fmaf(sum[1][i], format::ratio, sum[0][i]), scale, total[i]);
                }
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

// A block has eight tiles of 16 rows, staged in shared memory: 16 bytes at a time in and out, a word of four blocks or
// the scales of two rows, where rows and tiles are whole; single words and scales where they are not.
constexpr int repack_tiles = 8, repack_blocks = repack_tiles * tile_blocks, repack_threads = 288;
constexpr int block_halves = block_bytes / 2, repack_pitch = repack_blocks * block_halves + 8;  // halves
constexpr int repack_words = repack_tiles * tile_rows * 4, repack_pieces = repack_words + repack_words / 8;
static_assert(repack_pieces % repack_threads == 0, "as many pieces for each thread");

BW_DEVICE uint32_t staged_word(const uint16_t *from) {
    return from[0] | (uint32_t)from[1] << 16;
}
BW_DEVICE uint32_t repack_word(const uint16_t *block, int word) {
    const uint32_t first = staged_word(block + 1 + word % 2 * 4) >> word / 2 * 4;
    const uint32_t second = staged_word(block + 3 + word % 2 * 4) >> word / 2 * 4;
    return __byte_perm((first & 0x0f0f0f0fu) | (second & 0x0f0f0f0fu) << 4, 0, 0x3120);
}

__global__ void __launch_bounds__(repack_threads)
    weight_repack_kernel(const uint16_t *b, unsigned char *d, int64_t n, int64_t row_blocks) {
    __shared__ __align__(16) uint16_t staged[tile_rows * repack_pitch];
    const int64_t row0 = (int64_t)blockIdx.x * tile_rows, block0 = (int64_t)blockIdx.y * repack_blocks;
    const int rows = (int)min((int64_t)tile_rows, n - row0), thread = (int)threadIdx.x;
    const int blocks = (int)min((int64_t)repack_blocks, row_blocks - block0);
    b += (row0 * row_blocks + block0) * block_halves;
    unsigned char *words = d + row0 * row_blocks * block_bytes + block0 * rows * 16;
    unsigned char *scales = d + row0 * row_blocks * block_bytes + rows * row_blocks * 16 + block0 * rows * 2;
    if (rows == tile_rows && blocks == repack_blocks && row_blocks % 8 == 0) {
        constexpr int row_pieces = repack_blocks * block_halves / 8;
#pragma unroll
        for (int i = thread; i < repack_pieces; i += repack_threads) {
            const uint16_t *from = b + i / row_pieces * row_blocks * block_halves + i % row_pieces * 8;
            *(uint4 *)(staged + i / row_pieces * repack_pitch + i % row_pieces * 8) = bw_load_once((const uint4 *)from);
        }
        __syncthreads();
#pragma unroll
        for (int i = thread; i < repack_pieces; i += repack_threads) {
            uint32_t piece[4];
            if (i < repack_words) {
                const uint16_t *from = staged + i / 4 % tile_rows * repack_pitch;
                from += i / (4 * tile_rows) * tile_blocks * block_halves;
#pragma unroll
                for (int j = 0; j < 4; j++) piece[j] = repack_word(from + j * block_halves, i % 4);
            } else {
                const int at = i - repack_words;
                const uint16_t *from = staged + at % 8 * 2 * repack_pitch + at / 8 * tile_blocks * block_halves;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const uint16_t *two = from + j / 2 * repack_pitch + j % 2 * 2 * block_halves;
                    piece[j] = two[0] | (uint32_t)two[block_halves] << 16;
                }
            }
            unsigned char *to = i < repack_words ? words + i * 16 : scales + (i - repack_words) * 16;
            bw_store_once((uint4 *)to, make_uint4(piece[0], piece[1], piece[2], piece[3]));
        }
        return;
    }
    for (int i = thread; i < rows * blocks * block_halves; i += repack_threads) {
        const int row = i / (blocks * block_halves), at = i % (blocks * block_halves);
        staged[row * repack_pitch + at] = b[row * row_blocks * block_halves + at];
    }
    __syncthreads();
    for (int i = thread; i < rows * blocks * 4; i += repack_threads) {
        const int tile = i / (rows * tile_blocks * 4), wide = min(tile_blocks, blocks - tile * tile_blocks);
        const int in = i - tile * rows * tile_blocks * 4, block = tile * tile_blocks + in % wide, word = in / wide % 4;
        const int row = in / (wide * 4);
        const uint16_t *from = staged + row * repack_pitch + block * block_halves;
        ((uint32_t *)words)[i] = repack_word(from, word);
        if (word == 0) ((uint16_t *)scales)[tile * rows * tile_blocks + row * wide + in % wide] = from[0];
    }
}

int64_t row_blocks_of(int64_t k) {
    return bw_ceil_div(k, block_weights);
}

void choose_repack(int64_t n, int64_t k, bw_address to, bw_cuda_launch_spec *out) {
    const dim3 grid((unsigned)bw_ceil_div(n, tile_rows), (unsigned)bw_ceil_div(row_blocks_of(k), repack_blocks));
    bw_choose(out, weight_repack_kernel, grid, dim3(repack_threads), 0, bw_from_operand(BW_GEMM_B), to, n,
              row_blocks_of(k));
}

const char *repack_refuses(int64_t k) {
    return bw_ceil_div(row_blocks_of(k), repack_blocks) <= 65535 ? nullptr : "rows of at most 65535 times 512 weights";
}

template <bool is_per_block>
void choose_naive(const bw_dims *dims, bw_cuda_launch_spec *out) {
    const int64_t m = dims->value[BW_GEMM_M], n = dims->value[BW_GEMM_N], k = dims->value[BW_GEMM_K];
    bw_cuda_kernel *kernel =
        bw_choose(out, gemm_q4_0_kernel<is_per_block>, dim3((unsigned)bw_ceil_div(m * n, naive_threads)),
                  dim3(naive_threads), 0, bw_from_operand(BW_GEMM_A), bw_weights_stored{},
                  bw_from_operand_if(dims->value[BW_GEMM_BETA] != 0, BW_GEMM_C), bw_from_operand(BW_GEMM_D), m, n, k);
    place_weights(kernel, 1, bw_precision_get(BW_PRECISION_Q4_0)->weight_scales);
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
    const int64_t k = dims->value[BW_GEMM_K];
    if (dims->value[BW_GEMM_M] > most_a_rows) return "repacked takes at most 8 rows of A";
    if (k % tile_weights != 0 || k > most_k) return "repacked takes rows of a multiple of 128 elements, at most 2^25";
    return nullptr;
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
    // Two tiles at once where all there are come in pairs, of whole rows. Few warps a block where all blocks run at
    // once.
    const bool pairs = n % tile_rows == 0 && k % (2 * tile_weights) == 0;
    const int64_t high = bw_ceil_div(n, tile_rows), units = facts->units;
    const int64_t warps = 2 * high < 5 * units ? 8 : high < 5 * units || high > 10 * units ? 4 : 2;
    auto *function = m == 1  ? pairs ? gemm_repacked_kernel<true, 2> : gemm_repacked_kernel<true, 1>
                      : pairs ? gemm_repacked_kernel<false, 2>
                             : gemm_repacked_kernel<false, 1>;
    bw_choose(out, function, dim3((unsigned)bw_ceil_div(n, tile_rows)),
              dim3((unsigned)bw_min64(warps, k / tile_weights / (pairs ? 2 : 1)) * 32), 0, bw_from_operand(BW_GEMM_A),
              bw_from_scratch(0), bw_from_operand_if(dims->value[BW_GEMM_BETA] != 0, BW_GEMM_C),
              bw_from_operand(BW_GEMM_D), m, k, n);
    return BW_OK;
}

const char *bw_repack_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    return repack_refuses(dims->value[BW_WEIGHT_K]);
}

bw_status bw_repack_choose(const bw_dims *dims, const bw_precision *, const bw_device_facts *,
                           bw_cuda_launch_spec *out) {
    choose_repack(dims->value[BW_WEIGHT_N], dims->value[BW_WEIGHT_K], bw_from_operand(BW_GEMM_D), out);
    return BW_OK;
}
