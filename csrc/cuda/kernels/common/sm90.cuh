// Instructions of compute capability 9.0 (sm_90a), beside those of cluster.cuh: tiles copied by the tensor memory
// accelerator (TMA), products of a warpgroup (128 threads) that read shared memory by descriptors.
//
// A tile is made of panels: rows of 128 bytes, one behind the other, whose 16-byte chunks are permuted (chunk ^ row %
// 8). TMA writes them so, and the matrix unit expects them so; a panel starts at a multiple of 1024 bytes.
//
// Fragments, for thread 32 w + 4 r + c of a warpgroup:
//   D (64 x columns) d[n][0], d[n][1]: row 16 w + r, columns 8 n + 2c, 8 n + 2c + 1; d[n][2], d[n][3]: row + 8
//   A (64 x 16, in registers)        : of warp w's 16 rows that of mma m16n8k16 (sm80.cuh)
//   A (64 x 32, of 8-bit elements)   : a[0] row r, columns 4 c to 4 c + 3; a[1] row r + 8; a[2], a[3] the same rows,
//                                      columns + 16
#pragma once

#include <cuda.h>

#include "cuda/kernels/common/cluster.cuh"

constexpr int bw_panel_bytes = 128;  // of a row
constexpr int bw_warpgroup = 128;    // threads

// The first multiple of 1024 bytes in dynamic shared memory, for which bw_panels_spare more bytes are asked.
constexpr int bw_panels_spare = 1024;
BW_DEVICE uint32_t bw_panels_shared() {
    return (bw_shared_address(bw_dynamic_shared()) + 1023u) & ~1023u;
}

// ---- copies: one thread starts them, zeros come where the tensor ends ----

BW_DEVICE void bw_tensor_prefetch(const CUtensorMap &map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
BW_DEVICE void bw_tensor_load(uint32_t to, const CUtensorMap &map, uint32_t barrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            to),
        "l"(&map), "r"(barrier), "r"(x), "r"(y)
        : "memory");
}
BW_DEVICE void bw_tensor_load(uint32_t to, const CUtensorMap &map, uint32_t barrier, int x, int y, int z, int w) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
        "[%2];" ::"r"(to),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory");
}
// So many bytes that lie behind each other, a multiple of 16, from and to multiples of 16.
BW_DEVICE void bw_bulk_load(uint32_t to, const void *from, int bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}
// Between ordinary stores to shared memory and a barrier, after which copies or products see them.
BW_DEVICE void bw_shared_publish() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- a warpgroup's share of the registers ----

template <int count>
BW_DEVICE void bw_registers_fewer() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
BW_DEVICE void bw_registers_more() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

// ---- products ----

// Descriptors of operands in panels. Rows along M or N, K within a row: a step of K is 32 bytes, + 2.
BW_DEVICE uint64_t bw_describe_rows(uint32_t panels) {
    return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 16 | (panels & 0x3ffff) >> 4;
}
// Rows along K, N within a row (B transposed): each 64 columns are a panel of their own, `panel_bytes` behind the one
// before. A step of K is 16 rows, + 128.
BW_DEVICE uint64_t bw_describe_columns(uint32_t panels, int panel_bytes) {
    return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)(panel_bytes >> 4) << 16 |
           (panels & 0x3ffff) >> 4;
}

// A descriptor that all lanes of a warp have, in registers that they share: the matrix unit takes it from there, and a
// step is added there.
BW_DEVICE uint64_t bw_describe_once(uint64_t descriptor) {
    return descriptor >> 32 << 32 | __reduce_or_sync(bw_all_lanes, (uint32_t)descriptor);
}
// `steps` of 16 bytes further.
BW_DEVICE uint64_t bw_describe_step(uint64_t descriptor, uint32_t steps) {
    return descriptor >> 32 << 32 | (uint32_t)descriptor + steps;
}

// Before the first product after registers were written, and after the last of those that are waited for together.
BW_DEVICE void bw_products_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
BW_DEVICE void bw_products_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int pending>
BW_DEVICE void bw_products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
// The compiler keeps reads and writes of these registers on their side of this line.
template <int n, int m>
BW_DEVICE void bw_registers_hold(float (&registers)[n][m]) {
#pragma unroll
    for (int i = 0; i < n; i++) {
#pragma unroll
        for (int j = 0; j < m; j++) asm volatile("" : "+f"(registers[i][j])::"memory");
    }
}
template <int n, int m>
BW_DEVICE void bw_registers_hold(uint32_t (&registers)[n][m]) {
#pragma unroll
    for (int i = 0; i < n; i++) {
#pragma unroll
        for (int j = 0; j < m; j++) asm volatile("" : "+r"(registers[i][j])::"memory");
    }
}

#define BW_REGISTERS_32                                                      \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define BW_REGISTERS_48 \
    BW_REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define BW_REGISTERS_64                                                                \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define BW_REGISTERS_96                                                                  \
    BW_REGISTERS_64                                                                      \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define BW_REGISTERS_128                                                                           \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define BW_FLOATS_4(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define BW_FLOATS_16(d, i) BW_FLOATS_4(d, i), BW_FLOATS_4(d, i + 1), BW_FLOATS_4(d, i + 2), BW_FLOATS_4(d, i + 3)
#define BW_FLOATS_32(d, i) BW_FLOATS_16(d, i), BW_FLOATS_16(d, i + 4)
#define BW_FLOATS_48(d, i) BW_FLOATS_32(d, i), BW_FLOATS_16(d, i + 8)
#define BW_FLOATS_64(d, i) BW_FLOATS_32(d, i), BW_FLOATS_32(d, i + 8)
#define BW_FLOATS_96(d, i) BW_FLOATS_64(d, i), BW_FLOATS_32(d, i + 16)
#define BW_FLOATS_128(d, i) BW_FLOATS_64(d, i), BW_FLOATS_64(d, i + 16)

// d = a b (+ d where `more`): both from shared memory, K within their rows.
#define BW_PRODUCT(columns, floats, T, types, flags, a_at, b_at, more_at)                          \
    BW_DEVICE void bw_product(float(&d)[columns / 8][4], uint64_t a, uint64_t b, int more, T) {    \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #more_at                                 \
                     ", 0;\n"                                                                      \
                     "wgmma.mma_async.sync.aligned.m64n" #columns types " {" BW_REGISTERS_##floats \
                     "}, %" #a_at ", %" #b_at ", p, 1, 1" flags ";\n}"                             \
                     : BW_FLOATS_##floats(d, 0)                                                    \
                     : "l"(a), "l"(b), "r"(more));                                                 \
    }
BW_PRODUCT(64, 32, __half, "k16.f32.f16.f16", ", 0, 0", 32, 33, 34)
BW_PRODUCT(64, 32, __nv_bfloat16, "k16.f32.bf16.bf16", ", 0, 0", 32, 33, 34)
BW_PRODUCT(96, 48, __half, "k16.f32.f16.f16", ", 0, 0", 48, 49, 50)
BW_PRODUCT(96, 48, __nv_bfloat16, "k16.f32.bf16.bf16", ", 0, 0", 48, 49, 50)
BW_PRODUCT(128, 64, __half, "k16.f32.f16.f16", ", 0, 0", 64, 65, 66)
BW_PRODUCT(128, 64, __nv_bfloat16, "k16.f32.bf16.bf16", ", 0, 0", 64, 65, 66)
BW_PRODUCT(128, 64, float, "k8.f32.tf32.tf32", "", 64, 65, 66)
BW_PRODUCT(256, 128, __half, "k16.f32.f16.f16", ", 0, 0", 128, 129, 130)
BW_PRODUCT(256, 128, __nv_bfloat16, "k16.f32.bf16.bf16", ", 0, 0", 128, 129, 130)
BW_PRODUCT(256, 128, float, "k8.f32.tf32.tf32", "", 128, 129, 130)

// The same: a from registers.
#define BW_PRODUCT_OF_REGISTERS(name, columns, floats, T, types, flags, a0, a1, a2, a3, b_at, more_at) \
    BW_DEVICE void name(float(&d)[columns / 8][4], const uint32_t(&a)[4], uint64_t b, int more, T) {   \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #more_at                                     \
                     ", 0;\n"                                                                          \
                     "wgmma.mma_async.sync.aligned.m64n" #columns types " {" BW_REGISTERS_##floats     \
                     "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b_at ", p, 1, 1" flags ";\n}"   \
                     : BW_FLOATS_##floats(d, 0)                                                        \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more));                 \
    }
BW_PRODUCT_OF_REGISTERS(bw_product, 64, 32, bw_e4m3, "k32.f32.e4m3.e4m3", "", 32, 33, 34, 35, 36, 37)
BW_PRODUCT_OF_REGISTERS(bw_product, 128, 64, bw_e4m3, "k32.f32.e4m3.e4m3", "", 64, 65, 66, 67, 68, 69)

// Sums of FP16: d[n][0] holds both of row 16 w + r, d[n][1] those of row + 8.
#define BW_WORDS_4(d, i) "+r"(d[i][0]), "+r"(d[i][1]), "+r"(d[i + 1][0]), "+r"(d[i + 1][1])
#define BW_WORDS_16(d, i) BW_WORDS_4(d, i), BW_WORDS_4(d, i + 2), BW_WORDS_4(d, i + 4), BW_WORDS_4(d, i + 6)
BW_DEVICE void bw_product(uint32_t (&d)[16][2], const uint32_t (&a)[4], uint64_t b, int more, bw_e4m3) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n128k32.f16.e4m3.e4m3 "
        "{" BW_REGISTERS_32 "}, {%32, %33, %34, %35}, %36, p, 1, 1;\n}"
        : BW_WORDS_16(d, 0), BW_WORDS_16(d, 8)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more));
}

// And b with N within its rows.
#define BW_PRODUCT_TRANSPOSED(columns, floats, T, types, ...) \
    BW_PRODUCT_OF_REGISTERS(bw_product_transposed, columns, floats, T, types, ", 1", __VA_ARGS__)
BW_PRODUCT_TRANSPOSED(64, 32, __half, "k16.f32.f16.f16", 32, 33, 34, 35, 36, 37)
BW_PRODUCT_TRANSPOSED(64, 32, __nv_bfloat16, "k16.f32.bf16.bf16", 32, 33, 34, 35, 36, 37)
BW_PRODUCT_TRANSPOSED(128, 64, __half, "k16.f32.f16.f16", 64, 65, 66, 67, 68, 69)
BW_PRODUCT_TRANSPOSED(128, 64, __nv_bfloat16, "k16.f32.bf16.bf16", 64, 65, 66, 67, 68, 69)
BW_PRODUCT_TRANSPOSED(192, 96, __half, "k16.f32.f16.f16", 96, 97, 98, 99, 100, 101)
BW_PRODUCT_TRANSPOSED(192, 96, __nv_bfloat16, "k16.f32.bf16.bf16", 96, 97, 98, 99, 100, 101)
BW_PRODUCT_TRANSPOSED(256, 128, __half, "k16.f32.f16.f16", 128, 129, 130, 131, 132, 133)
BW_PRODUCT_TRANSPOSED(256, 128, __nv_bfloat16, "k16.f32.bf16.bf16", 128, 129, 130, 131, 132, 133)

// ---- results ----

// Among the four lanes of a quad: lane c gets word c of each lane, in their order.
BW_DEVICE void bw_quad_transpose(uint32_t (&word)[4]) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    const uint32_t give0 = odd ? word[0] : word[1], give1 = odd ? word[2] : word[3];
    const uint32_t got0 = __shfl_xor_sync(bw_all_lanes, give0, 1), got1 = __shfl_xor_sync(bw_all_lanes, give1, 1);
    uint32_t a = odd ? got0 : word[0], b = odd ? word[1] : got0, c = odd ? got1 : word[2], d = odd ? word[3] : got1;
    const uint32_t give2 = high ? a : c, give3 = high ? b : d;
    const uint32_t got2 = __shfl_xor_sync(bw_all_lanes, give2, 2), got3 = __shfl_xor_sync(bw_all_lanes, give3, 2);
    word[0] = high ? got2 : a;
    word[1] = high ? got3 : b;
    word[2] = high ? c : got2;
    word[3] = high ? d : got3;
}

// A lane's two rows (`row`, row + 8 of those that are there) of a D fragment, times `factor`: 16 bytes a store. `to` is
// the fragment's first row; so many of its columns, a multiple of 8, are there.
template <int eights, typename T>
BW_DEVICE void bw_store_fragment(float (&d)[eights][4], T *to, int64_t stride, int row, int rows, int columns,
                                 const float (&factor)[2]) {
    const int lane_column = (int)threadIdx.x % 4 * 8;
#pragma unroll
    for (int n = 0; n < eights; n += 4) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t word[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                word[i] = bw_pack_pair(d[n + i][2 * half] * factor[half], d[n + i][2 * half + 1] * factor[half], T());
            }
            bw_quad_transpose(word);
            const int column = 8 * n + lane_column;
            if (row + 8 * half >= rows || column >= columns) continue;
            *(uint4 *)&to[(row + 8 * half) * stride + column] = make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
}
