/* linear_relu_dropout: gemm's gemv and blocked, which end so (`fused`), or passes over D behind them (`unfused`). A
 * part of gemm.c, whose variants it calls. */
#pragma once

BW_INLINE void pass_stretch(bw_dtype dtype, const product *p, bool drops, int64_t first, int64_t last) {
    int64_t column = first % p->n;
    for (int64_t at = first, count; at < last; at += count) {
        count = bw_min64(BW_SIMD_FLOATS, bw_min64(last - at, p->n - column));
        bw_vf x = bw_vf_load_as_upto(dtype, p->d, at, count);
        x = drops ? drop(&p->end, x, at, count) : relu(add_c(dtype, p, x, column, count));
        bw_vf_store_as_upto(dtype, p->d, at, x, count);
        column = column + count < p->n ? column + count : 0;
    }
}

BW_INLINE void pass_share(const product *p, bool drops, int rank, int ranks) {
    int64_t first, last;
    bw_pool_share(p->m * p->n, rank, ranks, &first, &last);
    BW_DTYPE_SWITCH(p->launch->precision->result, pass_stretch, p, drops, first, last);
}

static void relu_share(void *context, int rank, int ranks) {
    pass_share(context, false, rank, ranks);
}

static void drop_share(void *context, int rank, int ranks) {
    pass_share(context, true, rank, ranks);
}

static bw_status unfused_launch(const bw_launch *launch) {
    const int64_t *v = launch->dims->value;
    const bw_dims dims = {
        .value = {[BW_GEMM_M] = v[BW_LINEAR_M], [BW_GEMM_N] = v[BW_LINEAR_N], [BW_GEMM_K] = v[BW_LINEAR_K]}};
    bw_launch of_gemm = *launch;
    of_gemm.dims = &dims;
    BW_TRY(plain_launch(&of_gemm));
    product p = product_of(launch);
    bw_pool_run(launch->device->pool, relu_share, &p);
    bw_pool_run(launch->device->pool, drop_share, &p);
    return BW_OK;
}

static const bw_variant linear_rows[] = {
    {.name = "unfused",
     .text = "gemv or blocked, then a pass for bias and relu, then one for dropout",
     .prediction = {.changes = "the baseline: gemm, and two passes over D"},
     .precisions = BW_CPU_PRECISIONS,
     .rounds_once = false,
     .workspace_bytes = plain_workspace,
     .extra_cost = bw_linear_unfused_cost,
     .launch = unfused_launch},
    BW_CPU_ROW("fused", plain, .text = "gemv or blocked, with bias, relu and dropout where sums are in registers",
               .prediction = {.changes = "bias, relu and dropout where the product's sums are: D is written once",
                              .predicted = 1.02,
                              .because = "the passes find D in the caches; random numbers are made either way"},
               .workspace_bytes = plain_workspace),
};

const bw_variant_table BW_CPU_TABLE(linear_relu_dropout) = {linear_rows, sizeof linear_rows / sizeof linear_rows[0],
                                                            "fp32 M=512 N=512 K=512"};
