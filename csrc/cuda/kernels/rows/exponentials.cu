// softmax and logsumexp; the latter also in three kernels, whose exponentials go through memory: maximum, exponentials
// relative to it, sum.
#include "cuda/kernels/rows/rows.cuh"
#include "cuda/kernels/rows/rows.h"

bw_status bw_softmax_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                            bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->result, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return row_choose<row_work::SOFTMAX, T>(row_launch_of(dims, facts, out), row_operands_of(false, false, false));
    });
}

bw_status bw_logsumexp_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                              bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->result, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return row_choose<row_work::LOGSUMEXP, T>(row_launch_of(dims, facts, out),
                                                  row_operands_of(false, false, false));
    });
}

bw_status bw_logsumexp_unfused_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                      bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->result, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const bw_address tops = bw_from_scratch(0), exponentials = bw_from_scratch(bw_logsumexp_exponentials(dims));
        row_operands top = row_operands_of(false, false, false), exponential = top, total = top;
        top.tops = exponential.tops = total.tops = tops;
        exponential.out = total.x = exponentials;
        BW_TRY((row_choose_step<row_work::TOP, T>(row_launch_of(dims, facts, out), top)));
        BW_TRY((row_choose_step<row_work::EXPONENTIALS, T>(row_launch_of(dims, facts, out), exponential)));
        return row_choose_step<row_work::TOTAL, T>(row_launch_of(dims, facts, out), total);
    });
}
