/* The operation list. A line here asks for three definitions, and the linker names whichever is missing:
 *   bw_op_<name>               the descriptor, in csrc/ops/<family>.c
 *   bw_cpu_<name>_<isa>        the CPU's kernel table, in csrc/cpu/<family>.c (BW_CPU_TABLE(<name>))
 *   bw_cuda_<name>             the GPU's kernel table, under csrc/cuda/kernels/<family>
 * An operation that a backend has no kernel for gets an empty table there. */
#ifndef BW_OPS_LIST_H
#define BW_OPS_LIST_H

#define BW_OPERATIONS(X) \
    X(stream_read)       \
    X(stream_write)      \
    X(stream_copy)       \
    X(stream_triad)      \
    X(gemm)              \
    X(attention_prefill) \
    X(attention_decode)  \
    X(kv_append)         \
    X(kv_gather)         \
    X(kv_copy)

#endif
