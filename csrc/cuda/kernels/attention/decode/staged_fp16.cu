// attention_decode with staged keys in FP16: the instances of staged_mma.cuh.
#include "cuda/kernels/attention/decode/staged_mma.cuh"

bw_status bw_decode_fp16_choose(const bw_attention_shape &shape, const bw_decode_plan &plan, const bw_decode_work &work,
                                bw_cuda_launch_spec *out) {
    return bw_decode_choose_mma<__half>(shape, plan, work, out);
}
