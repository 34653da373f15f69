// streamed.cuh's products of E4M3 with E4M3, compiled apart: it needs compute capability 8.9.
#include "cuda/kernels/gemm/experts/streamed.cuh"

bw_status bw_streamed_e4m3_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                  const bw_streamed_plan *plan, bw_cuda_launch_spec *out) {
    return bw_gemm_has_groups(precision)
               ? choose_rows<bw_e4m3, eight_weights<true>>(dims, precision, facts, *plan, out)
               : choose_rows<bw_e4m3, eight_weights<false>>(dims, precision, facts, *plan, out);
}
