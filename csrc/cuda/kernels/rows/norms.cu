// rmsnorm, layernorm, residual_rmsnorm; the last one also as an addition, whose sum goes through memory, and a norm.
#include "cuda/kernels/rows/rows.cuh"
#include "cuda/kernels/rows/rows.h"

bw_status bw_rmsnorm_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                            bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->result, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return row_choose<row_work::RMSNORM, T>(row_launch_of(dims, facts, out), row_operands_of(false, true, false));
    });
}

bw_status bw_layernorm_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                              bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->result, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return row_choose<row_work::LAYERNORM, T>(row_launch_of(dims, facts, out), row_operands_of(false, true, true));
    });
}

bw_status bw_residual_rmsnorm_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                     bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->result, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return row_choose<row_work::RESIDUAL_RMSNORM, T>(row_launch_of(dims, facts, out),
                                                         row_operands_of(true, true, false));
    });
}

bw_status bw_residual_rmsnorm_unfused_choose(const bw_dims *dims, const bw_precision *precision,
                                             const bw_device_facts *facts, bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->result, [&](auto tag) {
        using T = typename decltype(tag)::type;
        row_operands norm = row_operands_of(false, true, false);
        norm.x = bw_from_operand(BW_ROWS_SUM);
        BW_TRY(
            (row_choose_step<row_work::ADD, T>(row_launch_of(dims, facts, out), row_operands_of(true, false, false))));
        return row_choose<row_work::RMSNORM, T>(row_launch_of(dims, facts, out), norm);
    });
}
