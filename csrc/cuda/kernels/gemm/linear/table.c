/* linear_relu_dropout on a GPU:
 *   unfused  cuBLASLt's product, then a kernel for bias and relu, then one for dropout (steps.cu), all in D
 *   fused    gemm's own kernels, which end so while sums are in registers: gemv for one row of A,
 *            skinny up to 16, wgmma, tensor */
#include <stdlib.h>

#include "cuda/kernels/gemm/gemm.h"
#include "cuda/kernels/gemm/linear/linear.h"
#include "ops/families/gemm.h"

enum { TENSOR_PRECISIONS = BW_MASK(TF32) | BW_MASK(FP16) | BW_MASK(BF16) };

static bw_dims product_dims(const bw_dims *dims) {
    bw_dims product = *dims;
    product.value[BW_GEMM_BETA] = 0;
    return product;
}

typedef struct unfused_case {
    bw_dims dims; /* the product's */
    void *product, *steps;
} unfused_case;

static void unfused_release(void *state) {
    unfused_case *self = state;
    if (!self) return;
    bw_cublaslt_release(self->product);
    bw_cuda_prepared_release(self->steps);
    free(self);
}

static bw_status unfused_prepare(const bw_launch *sets, int64_t set_count, void **state) {
    bw_launch *products = calloc((size_t)set_count, sizeof *products);
    unfused_case *self = calloc(1, sizeof *self);
    bw_status status = BW_OK;
    if (!products || !self) BW_GOTO(bw_fail(BW_CODE_MEMORY, "out of host memory for a product and what follows it"));
    self->dims = product_dims(sets[0].dims);
    for (int64_t i = 0; i < set_count; i++) {
        products[i] = sets[i];
        products[i].dims = &self->dims;
    }
    BW_GOTO(bw_cublaslt_prepare(products, set_count, &self->product));
    BW_GOTO(bw_cuda_prepare(sets, 1, bw_linear_steps_choose, &self->steps));
    free(products);
    *state = self;
    return BW_OK;
cleanup:
    free(products);
    unfused_release(self);
    return status;
}

static bw_status unfused_launch(const bw_launch *launch) {
    const unfused_case *self = launch->state;
    bw_launch product = *launch, steps = *launch;
    product.dims = &self->dims;
    product.state = self->product;
    steps.state = self->steps;
    BW_TRY(bw_cublaslt_launch(&product));
    return bw_cuda_prepared_launch(&steps);
}

static const char *unfused_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const bw_dims product = product_dims(dims);
    const char *reason = bw_cublaslt_refuses(&product, precision, facts);
    return reason ? reason : bw_linear_steps_refuse(dims);
}

typedef const char *refuses_call(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);

/* The kernel for more than one row of A takes any shape. */
static const char *fused_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    refuses_call *refuses = dims->value[BW_LINEAR_M] == 1 ? bw_gemv_refuses : bw_gemm_tensor_refuses;
    return refuses(dims, precision, facts);
}

/* Rows of D that are no multiple of eight elements begin within a call of the random numbers. */
static bw_status fused_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                              bw_cuda_launch_spec *out) {
    if (dims->value[BW_LINEAR_M] == 1) return bw_linear_gemv_choose(dims, precision, facts, out);
    if (!bw_skinny_refuses(dims, precision, facts)) return bw_linear_skinny_choose(dims, precision, facts, out);
    const bool wgmma = dims->value[BW_LINEAR_N] % 8 == 0 && !bw_wgmma_refuses(dims, precision, facts);
    return (wgmma ? bw_linear_wgmma_choose : bw_linear_tensor_choose)(dims, precision, facts, out);
}

BW_CUDA_PREPARE(fused, fused_choose)

static const bw_variant rows[] = {
    {.name = "unfused",
     .text = "cuBLASLt's product, then a kernel for bias and relu, then one for dropout",
     .prediction = {.changes = "the baseline: three kernels, each of which writes D"},
     .precisions = BW_MASK(FP32) | TENSOR_PRECISIONS,
     .rounds_once = false,
     .refuses = unfused_refuses,
     .workspace_bytes = bw_cublaslt_workspace_bytes,
     .extra_cost = bw_linear_unfused_cost,
     .prepare = unfused_prepare,
     .release = unfused_release,
     .launch = unfused_launch},
    {.name = "fused",
     .text = "one kernel: bias, relu and dropout while sums are in registers (gemv, wgmma or mma.sync)",
     .prediction = {.changes = "bias, relu and dropout where the product's sums are: D is written once",
                    .predicted = 1.12,
                    .because = "the two kernels go through 134 MB in about 35 us, where the product takes 190; the "
                               "random numbers of a tile take 4 % of its time"},
     .precisions = TENSOR_PRECISIONS,
     .rounds_once = true,
     .refuses = fused_refuses,
     BW_CUDA_HOOKS(fused)},
};

const bw_variant_table bw_cuda_linear_relu_dropout = {rows, sizeof rows / sizeof rows[0], "fp16 M=4096 N=4096 K=4096"};
