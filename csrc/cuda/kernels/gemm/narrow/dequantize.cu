// Narrow weights as FP16 or BF16 in memory: weight_dequantize, and gemm's variant `separate`, which multiplies what
// that wrote into scratch. A thread has 8 neighbors of a row twice; the compiler reads what they share once. Stores
// decide: 2 to 4 times the bytes of loads. In 4 bits the arithmetic takes nearly as long.
#include "cuda/kernels/gemm/gemm.h"
#include "cuda/kernels/gemm/narrow/operands.cuh"

namespace {

constexpr int most_threads = 256, piece = 8, turns = 2;
constexpr int64_t most_parts = 65535;  // of a grid's y

template <typename Weights>
__global__ void __launch_bounds__(most_threads)
    weight_dequantize_kernel(bw_weights_stored b, typename Weights::activation *d, int64_t k) {
    const int64_t row = blockIdx.x;
    d += row * k;
#pragma unroll
    for (int turn = 0; turn < turns; turn++) {
        const uint32_t first = ((blockIdx.y * turns + turn) * blockDim.x + threadIdx.x) * piece;
        if (first >= k) return;
        if (k % piece == 0) {
            float value[piece];
#pragma unroll
            for (int j = 0; j < piece; j++) value[j] = Weights::element(b, row, bw_eighth{first, j}, k);
            bw_store_once((uint4 *)(d + first), bw_pack(value, typename Weights::activation()));
        } else {
#pragma unroll 1
            for (int64_t at = first; at < first + piece && at < k; at++) {
                bw_from_float(Weights::element(b, row, at, k), d + at);
            }
        }
    }
}

int threads_for(int64_t k) {
    const int64_t wanted = bw_ceil_div(bw_ceil_div(k, piece * turns), 32) * 32;
    return (int)bw_min64(most_threads, wanted);
}

int64_t parts_of(int64_t k) {
    return bw_ceil_div(k, (int64_t)threads_for(k) * piece * turns);
}

bw_status choose_dequantize(int64_t n, int64_t k, const bw_precision *precision, bw_address to,
                            bw_cuda_launch_spec *out) {
    return by_weights(precision, [&](auto tag) {
        using Weights = typename decltype(tag)::type;
        bw_cuda_kernel *kernel =
            bw_choose(out, weight_dequantize_kernel<Weights>, dim3((unsigned)n, (unsigned)parts_of(k)),
                      dim3((unsigned)threads_for(k)), 0, bw_weights_stored{}, to, k);
        place_weights(kernel, 0, precision->weight_scales);
        return BW_OK;
    });
}

// Products of 16 bits: the fastest of our own that takes the shape.
using product_refuses = const char *(const bw_dims *, const bw_precision *, const bw_device_facts *);
constexpr struct {
    product_refuses *refuses;
    bw_cuda_choose *choose;
} products[] = {{bw_gemv_refuses, bw_gemv_choose},
                {bw_skinny_refuses, bw_skinny_choose},
                {bw_wgmma_refuses, bw_wgmma_choose},
                {bw_gemm_tensor_refuses, bw_gemm_tensor_choose}};

}  // namespace

const char *bw_dequantize_refuses_rows(int64_t n, int64_t k) {
    return bw_cuda_grid_fits(n) && parts_of(k) <= most_parts ? nullptr : "rows of at most 2^28 weights";
}

const char *bw_dequantize_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    return bw_dequantize_refuses_rows(dims->value[BW_WEIGHT_N], dims->value[BW_WEIGHT_K]);
}

bw_status bw_dequantize_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                               bw_cuda_launch_spec *out) {
    return choose_dequantize(dims->value[BW_WEIGHT_N], dims->value[BW_WEIGHT_K], precision, bw_from_operand(BW_GEMM_D),
                             out);
}

bw_status bw_dequantize_into_scratch(int64_t n, int64_t k, const bw_precision *precision, int64_t offset,
                                     bw_cuda_launch_spec *out) {
    return choose_dequantize(n, k, precision, bw_from_scratch(offset), out);
}

const char *bw_separate_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const char *reason = bw_dequantize_refuses_rows(dims->value[BW_GEMM_N], dims->value[BW_GEMM_K]);
    return reason ? reason : bw_gemm_tensor_refuses(dims, precision, facts);
}

int64_t bw_separate_scratch_bytes(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    const bw_checked_int bytes = bw_mul3(dims->value[BW_GEMM_N], dims->value[BW_GEMM_K], sizeof(__half));
    return bytes.overflow ? -1 : bytes.value;
}

bw_status bw_separate_extra_cost(const bw_dims *dims, const bw_precision *, const bw_device_facts *, bw_cost *cost) {
    return bw_cost_add_intermediates(bw_mul3(dims->value[BW_GEMM_N], dims->value[BW_GEMM_K], sizeof(__half)), cost);
}

// What it takes to unpack B, once, is then less than to do so for every 16 rows of A.
bool bw_separate_prefers(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    return dims->value[BW_GEMM_M] > 64;
}

bw_status bw_separate_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                             bw_cuda_launch_spec *out) {
    const bw_precision *plain = bw_precision_of_activations(precision);
    BW_TRY(choose_dequantize(dims->value[BW_GEMM_N], dims->value[BW_GEMM_K], precision, bw_from_scratch(0), out));
    const int first = out->kernels;
    for (const auto &product : products) {
        if (product.refuses(dims, plain, facts)) continue;
        BW_TRY(product.choose(dims, plain, facts, out));
        break;
    }
    for (int i = first; i < out->kernels; i++) {
        bw_cuda_kernel *kernel = &out->kernel[i];
        for (int j = 0; j < kernel->places; j++) {
            if (kernel->place[j].operand == BW_GEMM_B) kernel->place[j].operand = BW_CUDA_SCRATCH;
        }
        for (int j = 0; j < kernel->views; j++) {
            if (kernel->view[j].tensor.operand == BW_GEMM_B) kernel->view[j].tensor.operand = BW_CUDA_SCRATCH;
        }
    }
    return BW_OK;
}
