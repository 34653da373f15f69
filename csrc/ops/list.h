/* The operation list, family by family. Each family's header has a line for each operation: X(<name>, <on the CPU>,
 * <on CUDA>), KERNELS where a backend has some for it, else NONE. A line asks for definitions, and the linker names
 * whichever is missing:
 * - bw_op_<name>: the descriptor, in csrc/ops/families/<family>.c;
 * - bw_cpu_<name>_<isa>, for KERNELS: the CPU's table, in csrc/cpu/simd (BW_CPU_TABLE(<name>));
 * - bw_cuda_<name>, for KERNELS: the GPU's table, under csrc/cuda/kernels/<family>. */
#pragma once

#include "ops/families/attention.h"
#include "ops/families/elementwise.h"
#include "ops/families/gemm.h"
#include "ops/families/kv.h"
#include "ops/families/memory/access.h"
#include "ops/families/memory/layout.h"
#include "ops/families/memory/stream.h"
#include "ops/families/quantize.h"
#include "ops/families/rows.h"

/* clang-format off */
#define BW_OPERATIONS(X) \
    BW_STREAM_OPERATIONS(X) \
    BW_GEMM_OPERATIONS(X) \
    BW_ATTENTION_OPERATIONS(X) \
    BW_KV_OPERATIONS(X) \
    BW_ROWS_OPERATIONS(X) \
    BW_ELEMENTWISE_OPERATIONS(X) \
    BW_LAYOUT_OPERATIONS(X) \
    BW_ACCESS_OPERATIONS(X) \
    BW_QUANTIZE_OPERATIONS(X)
/* clang-format on */

/* BW_IF_##cpu(table, none): the one or the other. */
#define BW_IF_KERNELS(table, none) table
#define BW_IF_NONE(table, none) none
