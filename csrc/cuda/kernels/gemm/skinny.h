/* Declarations that skinny.cu and skinny_fp32.cu share. */
#pragma once

#include "cuda/launch/prepared.h"

struct bw_skinny_shape {
    int m, chunks; /* of K, 16 bytes each */
    int64_t n;
};

/* eight/skinny_fp8.cu */
bw_cuda_choose bw_skinny_e4m3_choose;

/* skinny_fp32.cu */
bw_status bw_skinny_float_choose(const bw_skinny_shape &shape, bool adds, const bw_device_facts *facts,
                                 bw_cuda_launch_spec *out);
