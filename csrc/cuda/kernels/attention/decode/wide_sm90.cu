// attention_decode on Hopper, FP16 and BF16, 9 to 16 query heads per K/V head: an entry's splits are a cluster.
#include "cuda/kernels/attention/decode/staged_mma.cuh"

bw_status bw_decode_wide_cluster_choose(bw_dtype dtype, const bw_attention_shape &shape, const bw_decode_plan &plan,
                                        const bw_decode_work &work, bw_cuda_launch_spec *out) {
    return bw_cuda_by_half_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        auto *function = shape.head_dim <= 64 ? attention_decode_tensor_kernel<64, true, 1, true, T>
                                              : attention_decode_tensor_kernel<128, true, 1, true, T>;
        return bw_decode_choose_staged(function, shape, plan, work, out);
    });
}
