// attention_decode with staged keys in BF16: the instances of staged_mma.cuh.
#include "cuda/kernels/attention/decode/staged_mma.cuh"

bw_status bw_decode_bf16_choose(const bw_attention_shape &shape, const bw_decode_plan &plan, const bw_decode_work &work,
                                bw_cuda_launch_spec *out) {
    return bw_decode_choose_mma<__nv_bfloat16>(shape, plan, work, out);
}
