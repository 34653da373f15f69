/* Tensor maps: what the tensor memory accelerator of compute capability 9.0 must know of a matrix in memory to copy a
 * box of it. A map holds an address, so that each buffer set has its own. */
#pragma once

#include "cuda/runtime/device.h"

BW_C_BEGIN

enum { BW_TENSOR_RANK_MAX = 5, BW_TENSOR_MAP_BYTES = 128, BW_TENSOR_ROW_BYTES = 128 };

/* An operand and the boxes that are copied of it, the innermost dimension first. A box's rows have
 * BW_TENSOR_ROW_BYTES; what lies beyond the extents is zeros. */
typedef struct bw_tensor_view {
    int operand;    /* or BW_CUDA_SCRATCH (prepared.h) */
    int64_t offset; /* bytes, of its first element */
    bw_dtype dtype;
    int rank;
    int64_t extent[BW_TENSOR_RANK_MAX]; /* elements */
    int64_t stride[BW_TENSOR_RANK_MAX]; /* bytes; of the innermost dimension not used */
    int box[BW_TENSOR_RANK_MAX];        /* elements, at most 256 */
} bw_tensor_view;

/* NULL, or why no map can hold it. */
const char *bw_tensor_view_refuses(const bw_tensor_view *view);

/* The map of a view that is not refused, at an address that is a multiple of 16. */
bw_status bw_tensor_map_make(const bw_tensor_view *view, void *address, unsigned char out[BW_TENSOR_MAP_BYTES]);

BW_C_END
