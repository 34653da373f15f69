// skinny.cuh's products of E4M3, for devices that convert it.
#include "cuda/kernels/gemm/skinny.cuh"

bw_status bw_skinny_e4m3_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                bw_cuda_launch_spec *out) {
    const auto of = skinny_case_of(dims, precision, facts);
    return bw_gemm_has_groups(precision) ? choose_for<bw_e4m3, false, true>(of, out)
                                         : choose_for<bw_e4m3, false>(of, out);
}
