// Barriers that count bytes, and access to the shared memory of other blocks in a cluster (compute capability 9.0).
// They are templates, so that files for older devices compile as well.
#pragma once

#include "cuda/kernels/common/sm80.cuh"

// ---- barriers in shared memory: a phase ends when all arrivals and all bytes are there ----

BW_DEVICE void bw_barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// After the inits, before anybody else uses the barriers (and a block barrier in between).
BW_DEVICE void bw_barrier_publish() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
BW_DEVICE void bw_barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
BW_DEVICE void bw_barrier_expect(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Until the phase of this parity has ended; that of parity 1 has before the first begins.
BW_DEVICE void bw_barrier_wait(uint32_t barrier, uint32_t parity) {
    uint32_t done = 0;
    while (!done) {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    }
}

// The same, without waiting.
BW_DEVICE bool bw_barrier_done(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done != 0;
}

// ---- a cluster's shared memory ----

// Releases nothing: bw_barrier_publish did what is needed, and keys are on their way.
BW_DEVICE void bw_cluster_arrive() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
BW_DEVICE void bw_cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// All threads of the cluster that have not ended: each sees what the others wrote.
BW_DEVICE void bw_cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
BW_DEVICE float2 bw_cluster_load(uint32_t address) {
    float2 part;
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(part.x), "=f"(part.y) : "r"(address) : "memory");
    return part;
}
BW_DEVICE uint32_t bw_cluster_address(uint32_t shared, int block) {
    uint32_t address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(block));
    return address;
}
// Four numbers to another block's shared memory; and from one's own, added to sums.
template <typename T>
BW_DEVICE void bw_cluster_store(uint32_t to, const T (&part)[4]) {
    uint32_t word[4];
    memcpy(word, part, sizeof word);
    asm volatile("st.shared::cluster.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(word[0]), "r"(word[1]),
                 "r"(word[2]), "r"(word[3])
                 : "memory");
}
template <typename T>
BW_DEVICE void bw_shared_add(T (&sums)[4], uint32_t from) {
    uint32_t word[4];
    T part[4];
    asm volatile("ld.shared::cta.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "r"(from)
                 : "memory");
    memcpy(part, word, sizeof part);
#pragma unroll
    for (int i = 0; i < 4; i++) sums[i] += part[i];
}
BW_DEVICE void bw_cluster_push(uint32_t to, float4 part, uint32_t barrier) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
        "f"(part.x), "f"(part.y), "f"(part.z), "f"(part.w), "r"(barrier)
        : "memory");
}
BW_DEVICE void bw_cluster_push(uint32_t to, float2 part, uint32_t barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
                 "f"(part.x), "f"(part.y), "r"(barrier)
                 : "memory");
}
// Until the barrier's first phase has ended: all pushes have come.
BW_DEVICE void bw_cluster_wait_for_pushes(uint32_t barrier) {
    uint32_t done = 0;
    while (!done) {
        asm volatile(
            "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\n"
            "selp.u32 %0, 1, 0, p;\n}"
            : "=r"(done)
            : "r"(barrier)
            : "memory");
    }
}
