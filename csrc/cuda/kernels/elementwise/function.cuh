// What several functions of an element have.
#pragma once

#include "cuda/kernels/common/element.cuh"

// max(x, 0); a NaN stays one.
BW_DEVICE float positive_part(float x) {
    float result;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(result) : "f"(x));
    return result;
}
