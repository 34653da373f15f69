// attention_decode, FP16.
#include "cuda/kernels/attention/decode/staged_mma.cuh"

bw_status bw_decode_fp16_launch(const bw_launch *launch, const bw_attention_shape &shape, const bw_decode_plan &plan,
                                const bw_decode_work &work) {
    return bw_decode_tensor_launch_of<__half>(launch, shape, plan, work);
}
