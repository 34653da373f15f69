// The second kernel of mla_decode on Hopper: adds up the parts of entries that several blocks had. A block a query
// head, four neighboring elements a thread.
#include "cuda/kernels/attention/latent/walk.cuh"
#include "cuda/kernels/common/softmax.cuh"

namespace {

constexpr int threads = bw_latent_dim / 4, warps = threads / 32;

// Of the block: a power of 2 of threads each give a number; all get the sum, or the largest.
template <typename Value, typename Join>
BW_DEVICE Value join_all(Value own, Value *cells, Join join) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) own = join(own, __shfl_xor_sync(bw_all_lanes, own, offset));
    if (threadIdx.x % 32 == 0) cells[threadIdx.x / 32] = own;
    __syncthreads();
    own = cells[0];
    for (int i = 1; i < warps; i++) own = join(own, cells[i]);
    __syncthreads();
    return own;
}

template <typename T>
__global__ void __launch_bounds__(threads) attention_latent_combine_kernel(T *out, bw_latent_work work) {
    __shared__ float factor[threads], floats[warps];
    __shared__ int integers[warps];
    const int64_t row = blockIdx.x;
    const int entry = (int)(row / work.heads), head = (int)(row - (int64_t)entry * work.heads);
    int first = entry * bw_latent_extent(work, work.entry_tiles);
    if (work.kv_lens) {
        first = 0;
        for (int i = (int)threadIdx.x; i < entry; i += threads) first += bw_latent_extent_of(work, i);
        first = join_all(first, integers, [](int a, int b) { return a + b; });
    }
    const int each = work.each * work.cluster, block = first / each;
    const int count = (first + bw_latent_extent_of(work, entry) - 1) / each - block + 1;
    if (count == 1) return;
    // The entry's first tile is its first block's.
    const auto row_of = [&](int part) {
        return (int64_t)bw_latent_slot(work, (block + part) * work.cluster, part) * work.heads + head;
    };
    float top = -INFINITY, weight = 0.0f, value[4] = {};
    for (int i = (int)threadIdx.x; i < count; i += threads) top = fmaxf(top, work.stands[row_of(i)].x);
    top = join_all(top, floats, [](float a, float b) { return fmaxf(a, b); });
    for (int base = 0; base < count; base += threads) {
        const int own = base + (int)threadIdx.x;
        float2 stand = make_float2(-INFINITY, 0.0f);
        if (own < count) stand = work.stands[row_of(own)];
        const float scale = bw_exp2(stand.x - bw_softmax_reference(top));
        __syncthreads();
        factor[threadIdx.x] = scale;
        weight += join_all(stand.y * scale, floats, [](float a, float b) { return a + b; });
#pragma unroll 8
        for (int i = 0; i < min(threads, count - base); i++) {
            const float4 part = ((const float4 *)(work.values + row_of(base + i) * bw_latent_dim))[threadIdx.x];
            value[0] = fmaf(part.x, factor[i], value[0]);
            value[1] = fmaf(part.y, factor[i], value[1]);
            value[2] = fmaf(part.z, factor[i], value[2]);
            value[3] = fmaf(part.w, factor[i], value[3]);
        }
    }
    const float inverse = 1.0f / weight;
    *(uint2 *)&out[row * bw_latent_dim + 4 * threadIdx.x] =
        make_uint2(bw_pack_pair(value[0] * inverse, value[1] * inverse, T()),
                   bw_pack_pair(value[2] * inverse, value[3] * inverse, T()));
}

}  // namespace

bw_status bw_latent_choose_combine(const bw_precision *precision, const bw_latent_plan &plan,
                                   const bw_latent_work &work, bw_cuda_launch_spec *out) {
    return bw_cuda_by_half_type(precision->result, [&](auto tag) {
        using T = typename decltype(tag)::type;
        bw_cuda_kernel *kernel =
            bw_choose(out, attention_latent_combine_kernel<T>, dim3((unsigned)((int64_t)work.batch * work.heads)),
                      dim3(threads), 0, bw_from_operand(BW_ATTENTION_OUT), work);
        bw_latent_place(kernel, 1, plan, work.heads);
        return BW_OK;
    });
}
