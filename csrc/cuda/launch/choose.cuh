// How a variant's `choose` says what it launches: bw_choose(out, kernel<T>, grid, block, shared_bytes, arguments...).
// An argument that is an operand's address is bw_from_operand(number); one inside a structure is added by
// bw_choose_place; a tensor map (CUtensorMap) is a bw_tensor_view.
#pragma once

#include <assert.h>
#include <string.h>

#include <type_traits>

#include "cuda/launch/prepared.h"

// A grid's x dimension holds 2^31 - 1 blocks.
static inline bool bw_cuda_grid_fits(int64_t blocks) {
    return blocks >= 0 && blocks <= INT32_MAX;
}

constexpr int bw_nothing = -2;

struct bw_address {
    int operand;  // or BW_CUDA_SCRATCH; or bw_nothing: NULL
    int64_t offset;
};

static inline bw_address bw_from_operand(int number) {
    return {number, 0};
}
static inline bw_address bw_from_operand_if(bool present, int number) {
    return {present ? number : bw_nothing, 0};
}
static inline bw_address bw_from_scratch(int64_t offset) {
    return {BW_CUDA_SCRATCH, offset};
}

// The word at `offset` bytes of the kernel's argument `argument`.
static inline void bw_choose_place(bw_cuda_kernel *kernel, int argument, size_t offset, bw_address address) {
    if (address.operand == bw_nothing) return;
    assert(kernel->places < BW_CUDA_PLACES_MAX && offset % sizeof(uint64_t) == 0);
    kernel->place[kernel->places++] = {kernel->starts[argument] + (int)(offset / sizeof(uint64_t)), address.operand,
                                       address.offset};
}

template <typename Parameter>
constexpr int bw_words_of = (int)((sizeof(Parameter) + sizeof(uint64_t) - 1) / sizeof(uint64_t));

template <typename Parameter, typename Argument>
static void bw_choose_argument(bw_cuda_kernel *kernel, const Argument &argument) {
    constexpr bool is_map = std::is_same_v<Argument, bw_tensor_view>;
    static_assert(is_map || alignof(Parameter) <= sizeof(uint64_t), "arguments lie in words");
    const int index = kernel->arguments++;
    kernel->starts[index] = kernel->words;
    if constexpr (std::is_same_v<Argument, bw_address>) {
        static_assert(std::is_pointer_v<Parameter>, "an operand's address is a pointer");
        bw_choose_place(kernel, index, 0, argument);
    } else if constexpr (is_map) {
        static_assert(sizeof(Parameter) == BW_TENSOR_MAP_BYTES, "a view becomes a map");
        assert(kernel->views < BW_CUDA_VIEWS_MAX);
        kernel->view[kernel->views++] = {kernel->words, argument};
    } else {
        const Parameter converted = static_cast<Parameter>(argument);
        memcpy(&kernel->word[kernel->words], &converted, sizeof converted);
    }
    kernel->words += bw_words_of<Parameter>;
}

template <typename... Parameters, typename... Arguments>
static bw_cuda_kernel *bw_choose(bw_cuda_launch_spec *out, void (*function)(Parameters...), dim3 grid, dim3 block,
                                 size_t shared_bytes, Arguments... arguments) {
    static_assert(sizeof...(Parameters) == sizeof...(Arguments), "one argument per kernel parameter");
    static_assert(sizeof...(Parameters) <= BW_CUDA_ARGUMENTS_MAX, "room for the arguments");
    static_assert((bw_words_of<Parameters> + ...) <= BW_CUDA_ARGUMENT_WORDS, "room for their words");
    bw_cuda_kernel *kernel = &out->kernel[out->kernels++];
    kernel->function = (const void *)function;
    kernel->grid = grid;
    kernel->block = block;
    kernel->shared_bytes = shared_bytes;
    (bw_choose_argument<Parameters>(kernel, arguments), ...);
    return kernel;
}
