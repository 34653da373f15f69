/* weight_dequantize and weight_repack: one variant each, pieces and tiles shared among the threads. */
#include "cpu/simd/gemm/weights.h"

static product weights_of(const bw_launch *launch) {
    return (product){.launch = launch,
                     .n = launch->dims->value[BW_WEIGHT_N],
                     .k = launch->dims->value[BW_WEIGHT_K],
                     .b = launch->operand[BW_GEMM_B],
                     .d = launch->operand[BW_GEMM_D]};
}

static bw_status dequantize_launch(const bw_launch *launch) {
    product p = weights_of(launch);
    bw_pool_run(launch->device->pool, dequantize_share, &p);
    return BW_OK;
}

static const bw_variant dequantize_rows[] = {
    {.name = "rows",
     .text = "256 weights of a row after the other, all threads",
     .prediction = {.changes = "the only variant: 256 weights of a row after the other, all threads"},
     .precisions = BW_NARROW_WEIGHT_PRECISIONS,
     .rounds_once = true,
     .launch = dequantize_launch},
};
const bw_variant_table BW_CPU_TABLE(weight_dequantize) = {dequantize_rows, 1, NULL};

/* Word `word` of a tile's block, see ops/families/gemm.h: of lower halves of the block's bytes, or of upper ones. */
static uint32_t repack_word(const char *block, int word) {
    uint32_t first, second;
    memcpy(&first, block + 2 + word % 2 * 8, sizeof first);
    memcpy(&second, block + 6 + word % 2 * 8, sizeof second);
    const uint32_t pairs = (first >> word / 2 * 4 & 0x0f0f0f0fu) | (second >> word / 2 * 4 & 0x0f0f0f0fu) << 4;
    return (pairs & 0xff0000ffu) | (pairs & 0xff00u) << 8 | (pairs >> 8 & 0xff00u);
}

/* A tile: the words of its blocks, and their scales. */
static void repack_tile(const char *from, int64_t row_bytes, int64_t rows, int64_t blocks, char *words, char *scales) {
    for (int64_t r = 0; r < rows; r++, from += row_bytes) {
        for (int word = 0; word < BW_Q4_0_HALF / 4; word++) {
            for (int64_t g = 0; g < blocks; g++, words += 4) {
                const uint32_t repacked = repack_word(from + g * BW_Q4_0_BYTES, word);
                memcpy(words, &repacked, sizeof repacked);
            }
        }
        for (int64_t g = 0; g < blocks; g++, scales += 2) memcpy(scales, from + g * BW_Q4_0_BYTES, 2);
    }
}

static void repack_share(void *context, int rank, int ranks) {
    const product *p = context;
    const int64_t row_blocks = bw_ceil_div(p->k, BW_Q4_0_ELEMS), row_bytes = row_blocks * BW_Q4_0_BYTES;
    const int64_t wide = bw_ceil_div(row_blocks, BW_Q4_0_TILE_BLOCKS);
    int64_t first, last;
    bw_pool_share(bw_ceil_div(p->n, BW_Q4_0_TILE_ROWS) * wide, rank, ranks, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const int64_t row = i / wide * BW_Q4_0_TILE_ROWS, rows = bw_min64(BW_Q4_0_TILE_ROWS, p->n - row);
        const int64_t block = i % wide * BW_Q4_0_TILE_BLOCKS,
                      blocks = bw_min64(BW_Q4_0_TILE_BLOCKS, row_blocks - block);
        const char *from = (const char *)p->b + row * row_bytes + block * BW_Q4_0_BYTES;
        char *to = (char *)p->d + row * row_bytes;
        repack_tile(from, row_bytes, rows, blocks, to + block * rows * BW_Q4_0_HALF,
                    to + rows * (row_blocks * BW_Q4_0_HALF + block * 2));
    }
}

static bw_status repack_launch(const bw_launch *launch) {
    product p = weights_of(launch);
    bw_pool_run(launch->device->pool, repack_share, &p);
    return BW_OK;
}

static const bw_variant repack_rows[] = {
    {.name = "tiles",
     .text = "a tile after the other, all threads",
     .prediction = {.changes = "the only variant: a tile after the other, all threads"},
     .precisions = BW_MASK(Q4_0),
     .launch = repack_launch},
};
const bw_variant_table BW_CPU_TABLE(weight_repack) = {repack_rows, 1, NULL};
