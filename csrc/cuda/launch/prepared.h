/* Launches that are worked out once. A variant's `choose` says from sizes, precision and device alone which kernels it
 * launches and with what; its `prepare` keeps that, and `launch` only puts the buffer set's addresses in. */
#pragma once

#include "cuda/launch/tensor_map.h"
#include "cuda/runtime/device.h"

BW_C_BEGIN

enum {
    BW_CUDA_KERNELS_MAX = 4, /* of one launch */
    BW_CUDA_ARGUMENTS_MAX = 8,
    BW_CUDA_ARGUMENT_WORDS = 80, /* all of a kernel's arguments, in words of 8 bytes */
    BW_CUDA_PLACES_MAX = 10,
    BW_CUDA_VIEWS_MAX = 3,
    BW_CUDA_SCRATCH = -1 /* instead of an operand's number */
};

/* A word among the arguments that is an address: so many bytes into an operand, or into the set's scratch. */
typedef struct bw_cuda_place {
    int word, operand;
    int64_t offset;
} bw_cuda_place;

/* Words among the arguments that are a tensor map. */
typedef struct bw_cuda_view {
    int word;
    bw_tensor_view tensor;
} bw_cuda_view;

typedef struct bw_cuda_kernel {
    const void *function;
    dim3 grid, block;
    size_t shared_bytes; /* dynamic */
    bool wide_cluster;   /* of more than 8 blocks, which not all devices of a generation need have */
    int cluster;         /* blocks of a cluster, along y; 0 = none, or those that the kernel itself names */
    bool cooperative;    /* no block starts before all of them can run at once */
    int arguments, places, views, words;
    int starts[BW_CUDA_ARGUMENTS_MAX]; /* each argument's first word */
    bw_cuda_place place[BW_CUDA_PLACES_MAX];
    bw_cuda_view view[BW_CUDA_VIEWS_MAX];
    uint64_t word[BW_CUDA_ARGUMENT_WORDS];
} bw_cuda_kernel;

typedef struct bw_cuda_launch_spec {
    int kernels;
    bw_cuda_kernel kernel[BW_CUDA_KERNELS_MAX]; /* one after the other */
    unsigned char (*maps)[BW_TENSOR_MAP_BYTES]; /* of each buffer set: those of all kernels' views; NULL = none */
} bw_cuda_launch_spec;

typedef bw_status bw_cuda_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                 bw_cuda_launch_spec *out);

/* For a variant's `prepare` and `describe`, which where that is all BW_CUDA_PREPARE(<name>, <choose>) defines as
 * <name>_prepare and <name>_describe; and the hooks `release` and `launch`. */
bw_status bw_cuda_prepare(const bw_launch *sets, int64_t set_count, bw_cuda_choose *choose, void **state);
bw_status bw_cuda_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision,
                           bw_cuda_choose *choose, bw_kernels *out);
#define BW_CUDA_PREPARE(name, choose)                                                                       \
    static bw_status name##_prepare(const bw_launch *sets, int64_t set_count, void **state) {               \
        return bw_cuda_prepare(sets, set_count, choose, state);                                             \
    }                                                                                                       \
    static bw_status name##_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, \
                                     bw_kernels *out) {                                                     \
        return bw_cuda_describe(device, dims, precision, choose, out);                                      \
    }
/* Of a launch that is chosen already. */
bw_status bw_cuda_prepare_spec(const bw_launch *sets, int64_t set_count, bw_cuda_launch_spec *spec);
void bw_cuda_prepared_release(void *state);
bw_status bw_cuda_prepared_launch(const bw_launch *launch);
/* These, of a row of a table. */
#define BW_CUDA_HOOKS(name)                                                                            \
    .prepare = name##_prepare, .release = bw_cuda_prepared_release, .launch = bw_cuda_prepared_launch, \
    .describe = name##_describe

/* How many blocks of a prepared kernel run on a multiprocessor at once. */
bw_status bw_cuda_resident_blocks(bw_device *device, const bw_cuda_kernel *kernel, int *out);

BW_C_END
