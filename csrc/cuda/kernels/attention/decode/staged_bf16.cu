// attention_decode, BF16.
#include "cuda/kernels/attention/decode/staged_mma.cuh"

bw_status bw_decode_bf16_launch(const bw_launch *launch, const bw_attention_shape &shape, const bw_decode_plan &plan,
                                const bw_decode_work &work) {
    return bw_decode_tensor_launch_of<__nv_bfloat16>(launch, shape, plan, work);
}
