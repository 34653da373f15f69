// The kernels of service.h: inputs, the empty launch, the hold, the flush by reading, memory brought together.
#include "cuda/launch/service.h"

#include "base/types/blocks.h"
#include "base/types/convert.h"
#include "base/types/input.h"

namespace {

constexpr int FILL_THREADS = 256;
constexpr int FILL_BLOCKS_PER_UNIT = 8;
constexpr int FLUSH_UNROLL = 4;

// Stores a value by the conversions of base/types/convert.h, so that host and device agree on every bit.
template <bw_dtype DTYPE>
struct stored;

#define BW_STORED(dtype, stored_bits, converted)   \
    template <>                                    \
    struct stored<dtype> {                         \
        using bits = stored_bits;                  \
        static __device__ bits from(float value) { \
            return converted;                      \
        }                                          \
    };
BW_STORED(BW_FP32, uint32_t, bw_float_bits(value))
BW_STORED(BW_TF32, uint32_t, bw_float_bits(bw_float_to_tf32(value)))
BW_STORED(BW_FP16, uint16_t, bw_float_to_fp16(value))
BW_STORED(BW_BF16, uint16_t, bw_float_to_bf16(value))
#undef BW_STORED

// Four bytes of elements starting at `index`, the first in the low bits.
template <bw_dtype DTYPE>
__device__ uint32_t fill_word(bw_input_key key, uint64_t index) {
    uint32_t word = stored<DTYPE>::from(bw_input_value(key, index));
    if constexpr (sizeof(typename stored<DTYPE>::bits) == 2) {
        word |= (uint32_t)stored<DTYPE>::from(bw_input_value(key, index + 1)) << 16;
    }
    return word;
}

template <bw_dtype DTYPE>
__global__ void fill_kernel(bw_input_key key, int64_t count, void *out) {
    using bits = typename stored<DTYPE>::bits;
    constexpr int per_word = 4 / sizeof(bits);
    constexpr int per_vector = 4 * per_word;
    const int64_t vectors = count / per_vector;
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = thread; i < vectors; i += stride) {
        const uint64_t index = (uint64_t)i * per_vector;
        ((uint4 *)out)[i] =
            make_uint4(fill_word<DTYPE>(key, index), fill_word<DTYPE>(key, index + per_word),
                       fill_word<DTYPE>(key, index + 2 * per_word), fill_word<DTYPE>(key, index + 3 * per_word));
    }
    const int64_t last = vectors * per_vector + thread;
    if (last < count) ((bits *)out)[last] = stored<DTYPE>::from(bw_input_value(key, (uint64_t)last));
}

// Types of one byte or two elements in it: `mask` has the bits of a word's four bytes that are kept.
template <uint32_t mask>
__global__ void byte_fill_kernel(bw_input_key key, int64_t count, void *out) {
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t word = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; word * 4 < count; word += stride) {
        const uint32_t bits = bw_input_bits(key, (uint64_t)word) & mask;
        if (word * 4 + 4 <= count) {
            ((uint32_t *)out)[word] = bits;
        } else {
            for (int64_t i = 0; word * 4 + i < count; i++) ((uint8_t *)out)[word * 4 + i] = (uint8_t)(bits >> 8 * i);
        }
    }
}

template <void (*fill)(bw_input_key, uint64_t, void *), int bytes>
__global__ void block_fill_kernel(bw_input_key key, int64_t count, void *out) {
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t block = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; block < count; block += stride) {
        fill(key, (uint64_t)block, (char *)out + block * bytes);
    }
}

__global__ void empty_kernel() {
}

__device__ uint64_t global_ns() {
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

// One thread that looks at the clock: it takes no memory traffic, and the cache stays as it is.
__global__ void hold_kernel(uint64_t ns) {
    const uint64_t began = global_ns();
    while (global_ns() - began < ns) {}
}

// The compiler cannot know that the store is never made: the sum of words of one repeated byte is not odd.
__global__ void flush_kernel(uint4 *memory, int64_t vectors) {
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    uint32_t sum = 0;
#pragma unroll 1
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += FLUSH_UNROLL * stride) {
        uint4 words[FLUSH_UNROLL];
#pragma unroll
        for (int u = 0; u < FLUSH_UNROLL; u++) {
            const int64_t at = i + u * stride;
            words[u] = at < vectors ? memory[at] : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int u = 0; u < FLUSH_UNROLL; u++) sum += words[u].x + words[u].y + words[u].z + words[u].w;
    }
    if (sum & 1) memory[0] = make_uint4(sum, sum, sum, sum);
}

// A block per piece; pieces are rows of an output, aligned to nothing but their elements.
__global__ void gather_kernel(const bw_cuda_piece *pieces, char *packed) {
    const bw_cuda_piece piece = pieces[blockIdx.x];
    for (int64_t i = threadIdx.x; i < piece.bytes; i += blockDim.x) {
        packed[piece.to + i] = ((const char *)piece.from)[i];
    }
}

// Arguments convert to the kernel's parameter types.
template <typename... Parameters, typename... Arguments>
bw_status launch(bw_device *device, cudaStream_t stream, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                 Arguments... arguments) {
    static_assert(sizeof...(Parameters) == sizeof...(Arguments), "one argument per kernel parameter");
    return [&](Parameters... converted) -> bw_status {
        void *pointers[sizeof...(Parameters) + 1] = {(void *)&converted...};
        const void *function = (const void *)kernel;
        BW_TRY(BW_CUDA(&device->api, launch_kernel(function, grid, block, pointers, 0, stream)));
        return BW_CUDA(&device->api, last_error());
    }(static_cast<Parameters>(arguments)...);
}

int fill_blocks(const bw_device *device, int64_t threads) {
    const int64_t blocks = bw_ceil_div(threads, FILL_THREADS);
    return (int)bw_max64(1, bw_min64(blocks, (int64_t)device->facts.units * FILL_BLOCKS_PER_UNIT));
}

}  // namespace

bw_status bw_cuda_fill(bw_device *device, bw_dtype dtype, bw_input_key key, int64_t count, void *out) {
    void (*kernel)(bw_input_key, int64_t, void *) = nullptr;
    switch (dtype) {
        case BW_FP32: kernel = fill_kernel<BW_FP32>; break;
        case BW_TF32: kernel = fill_kernel<BW_TF32>; break;
        case BW_FP16: kernel = fill_kernel<BW_FP16>; break;
        case BW_BF16: kernel = fill_kernel<BW_BF16>; break;
        case BW_FP8_E4M3:
        case BW_FP8_E5M2: kernel = byte_fill_kernel<0xbfbfbfbfu>; break; /* the masks of base/types/dtype.c */
        case BW_INT8:
        case BW_UINT4:
        case BW_FP4_E2M1: kernel = byte_fill_kernel<0xffffffffu>; break;
        case BW_Q4_0: kernel = block_fill_kernel<bw_q4_0_fill, BW_Q4_0_BYTES>; break;
        case BW_Q8_0: kernel = block_fill_kernel<bw_q8_0_fill, BW_Q8_0_BYTES>; break;
        case BW_Q4_K: kernel = block_fill_kernel<bw_q4_k_fill, BW_Q4_K_BYTES>; break;
        default: return bw_fail(BW_CODE_INVALID, "%s operands are not filled from a seed", bw_dtype_get(dtype)->name);
    }
    if (count <= 0) return BW_OK;
    const int elems_per_vector = (int)bw_max64(1, 16 / bw_dtype_get(dtype)->block_bytes);
    const dim3 grid(fill_blocks(device, bw_ceil_div(count, elems_per_vector)));
    return launch(device, device->stream, kernel, grid, dim3(FILL_THREADS), key, count, out);
}

bw_status bw_cuda_launch_empty(bw_device *device) {
    return launch(device, device->stream, empty_kernel, dim3(1), dim3(32));
}

bw_status bw_cuda_launch_hold(bw_device *device, cudaStream_t stream, int64_t ns) {
    return launch(device, stream, hold_kernel, dim3(1), dim3(1), ns);
}

bw_status bw_cuda_launch_flush(bw_device *device, cudaStream_t stream, void *memory, int64_t bytes) {
    const int64_t vectors = bytes / 16;
    const dim3 grid(fill_blocks(device, bw_ceil_div(vectors, FLUSH_UNROLL)));
    return launch(device, stream, flush_kernel, grid, dim3(FILL_THREADS), (uint4 *)memory, vectors);
}

bw_status bw_cuda_gather(bw_device *device, const void *pieces, int64_t count, void *packed) {
    return launch(device, device->stream, gather_kernel, dim3((unsigned)count), dim3(FILL_THREADS),
                  (const bw_cuda_piece *)pieces, (char *)packed);
}
