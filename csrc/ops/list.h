/* The operation list, a line each: X(<name>, <on the CPU>, <on CUDA>), KERNELS where a backend has some for it, else
 * NONE. A line asks for definitions, and the linker names whichever is missing:
 * - bw_op_<name>: the descriptor, in csrc/ops/families/<family>.c;
 * - bw_cpu_<name>_<isa>, for KERNELS: the CPU's table, in csrc/cpu/simd/<family>.c (BW_CPU_TABLE(<name>));
 * - bw_cuda_<name>, for KERNELS: the GPU's table, under csrc/cuda/kernels/<family>. */
#pragma once

/* clang-format off */
#define BW_OPERATIONS(X) \
    X(stream_read, KERNELS, KERNELS) \
    X(stream_write, KERNELS, KERNELS) \
    X(stream_copy, KERNELS, KERNELS) \
    X(stream_triad, KERNELS, KERNELS) \
    X(gemm, KERNELS, KERNELS) \
    X(attention_prefill, KERNELS, KERNELS) \
    X(attention_decode, KERNELS, KERNELS) \
    X(kv_append, KERNELS, KERNELS) \
    X(kv_gather, KERNELS, KERNELS) \
    X(kv_copy, KERNELS, KERNELS) \
    X(rmsnorm, KERNELS, NONE)
/* clang-format on */

/* BW_IF_##cpu(table, none): the one or the other. */
#define BW_IF_KERNELS(table, none) table
#define BW_IF_NONE(table, none) none
