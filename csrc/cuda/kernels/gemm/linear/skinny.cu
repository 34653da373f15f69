// linear_relu_dropout with up to 16 rows of A through skinny.cuh.
#include "cuda/kernels/gemm/linear/linear.h"
#include "cuda/kernels/gemm/skinny.cuh"

bw_status bw_linear_skinny_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                  bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const skinny_case<bw_linear_end<T>> of = {dims, precision, facts, bw_linear_end_of<T>(dims)};
        BW_TRY((choose_for<T, false>(of, out)));
        return bw_linear_place_bias(out, 2);
    });
}
