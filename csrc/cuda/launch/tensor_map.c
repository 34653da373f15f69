/* Encodes tensor maps through the driver and checks which matrices they can describe. */
#include "cuda/launch/tensor_map.h"

#include <assert.h>
#include <cuda.h>
#include <string.h>

typedef CUresult encode_tiled(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                              const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

const char *bw_tensor_view_refuses(const bw_tensor_view *view) {
    for (int i = 0; i < view->rank; i++) {
        if (view->extent[i] > INT32_MAX) return "a dimension of 2^31 elements or more (tensor maps)";
        if (i == 0) continue;
        if (view->stride[i] % 16 != 0) return "rows that are no multiple of 16 bytes (tensor maps)";
        if (view->stride[i] >= (int64_t)1 << 40) return "2^40 bytes or more between rows (tensor maps)";
    }
    return NULL;
}

static CUtensorMapDataType type_of(bw_dtype dtype) {
    switch (dtype) {
        case BW_FP16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
        case BW_BF16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
        case BW_INT8:
        case BW_FP8_E4M3: return CU_TENSOR_MAP_DATA_TYPE_UINT8;
        default: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    }
}

bw_status bw_tensor_map_make(const bw_tensor_view *view, void *address, unsigned char out[BW_TENSOR_MAP_BYTES]) {
    static_assert(sizeof(CUtensorMap) == BW_TENSOR_MAP_BYTES, "the driver's size of a map");
    encode_tiled *encode;
    CUtensorMap map; /* its type asks for the alignment */
    cuuint64_t extent[BW_TENSOR_RANK_MAX], stride[BW_TENSOR_RANK_MAX];
    cuuint32_t box[BW_TENSOR_RANK_MAX], step[BW_TENSOR_RANK_MAX];
    bw_cuda_driver_function("cuTensorMapEncodeTiled", &encode);
    if (!encode) {
        return bw_fail(BW_CODE_UNAVAILABLE, "the driver has no cuTensorMapEncodeTiled: update it to CUDA 12 or newer");
    }
    for (int i = 0; i < view->rank; i++) {
        extent[i] = (cuuint64_t)view->extent[i];
        box[i] = (cuuint32_t)view->box[i];
        step[i] = 1;
        if (i > 0) stride[i - 1] = (cuuint64_t)view->stride[i];
    }
    CUresult result = encode(&map, type_of(view->dtype), (cuuint32_t)view->rank, address, extent, stride, box, step,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        return bw_fail(BW_CODE_DEVICE, "cuTensorMapEncodeTiled failed with error %d on operand %d", (int)result,
                       view->operand);
    }
    memcpy(out, &map, sizeof map);
    return BW_OK;
}
