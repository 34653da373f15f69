// Instructions that CUDA C++ has no plain word for: streaming loads, asynchronous copies to shared memory, matrix
// fragments. Everything here exists from compute capability 8.0 on.
//
// Fragments of mma m16n8k16, for lane = 4 r + c:
//   A (16 x 16): a[0] row r, columns 2c, 2c+1; a[1] row r + 8; a[2], a[3] the same rows, columns + 8
//   B (16 x 8):  b[0] rows 2c, 2c+1 of column r; b[1] rows + 8
//   C (16 x 8):  c[0], c[1] row r, columns 2c, 2c+1; c[2], c[3] row r + 8
#pragma once

#include "cuda/kernels/common/element.cuh"

constexpr unsigned bw_all_lanes = 0xffffffffu;

BW_DEVICE unsigned char *bw_dynamic_shared() {
    extern __shared__ __align__(1024) unsigned char bw_shared_bytes[];
    return bw_shared_bytes;
}

// 16 bytes that will not be read again: not kept in L1.
BW_DEVICE uint4 bw_load_streaming(const void *from) {
    uint4 bits;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                 : "l"(from));
    return bits;
}

// A unit that will not be touched again soon: the caches may drop it first.
template <typename Unit>
BW_DEVICE Unit bw_load_once(const Unit *from) {
    return __ldcs(from);
}
template <typename Unit>
BW_DEVICE void bw_store_once(Unit *to, Unit value) {
    __stcs(to, value);
}

BW_DEVICE uint4 bw_load_cached(const void *from) {
    return __ldg((const uint4 *)from);
}

BW_DEVICE uint32_t bw_shared_address(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}

// 16 bytes of shared memory that a thread keeps there because registers are short: they are read again, not kept.
BW_DEVICE void bw_spare_store(uint32_t shared, uint4 bits) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(bits.x), "r"(bits.y), "r"(bits.z),
                 "r"(bits.w)
                 : "memory");
}
BW_DEVICE uint4 bw_spare_load(uint32_t shared) {
    uint4 bits;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                 : "r"(shared));
    return bits;
}

// 16 bytes from global to shared memory; zeros when `there` is false (`from` is then not read).
BW_DEVICE void bw_copy_async(void *to_shared, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(bw_shared_address(to_shared)),
                 "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

// 4, 8 or 16 bytes, through L1, for data that other warps read, too.
template <int bytes>
BW_DEVICE void bw_copy_async_shared(void *to_shared, const void *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(bw_shared_address(to_shared)), "l"(from), "n"(bytes)
                 : "memory");
}

// 4, 8 or 16 bytes, aligned to their size.
template <int bytes>
BW_DEVICE void bw_copy_async_some(void *to_shared, const void *from) {
    if constexpr (bytes == 16) {
        bw_copy_async(to_shared, from, true);
    } else {
        asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2;" ::"r"(bw_shared_address(to_shared)),
                     "l"(from), "n"(bytes)
                     : "memory");
    }
}

BW_DEVICE void bw_copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most `pending` of this thread's latest groups are under way.
template <int pending>
BW_DEVICE void bw_copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// What is worked out from it is not kept over a whole loop: that would take more registers than there are.
BW_DEVICE uint32_t bw_forget(uint32_t address) {
    asm volatile("" : "+r"(address));
    return address;
}

// Four 8 x 8 blocks of 16-bit elements; lane l gives the address of row l % 8 of block l / 8.
BW_DEVICE void bw_load_matrix(uint32_t (&out)[4], uint32_t row_shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row_shared)
                 : "memory");
}
BW_DEVICE void bw_load_matrix(uint32_t (&out)[4], const void *row_shared) {
    bw_load_matrix(out, bw_shared_address(row_shared));
}

BW_DEVICE void bw_load_matrix_transposed(uint32_t (&out)[4], uint32_t row_shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row_shared)
                 : "memory");
}
BW_DEVICE void bw_load_matrix_transposed(uint32_t (&out)[4], const void *row_shared) {
    bw_load_matrix_transposed(out, bw_shared_address(row_shared));
}

// c += a b, accumulated in float.
BW_DEVICE void bw_multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __half) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
BW_DEVICE void bw_multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __nv_bfloat16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// m16n8k8 of TF32: a fragment's registers are those of 16-bit elements, one element each.
BW_DEVICE void bw_multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
