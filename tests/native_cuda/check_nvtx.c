/* What a tool is told by the annotation calls, and what they cost where there is none; no GPU. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cuda/runtime/attachments.h"
#include "cuda/runtime/nvtx.h"

enum { CALLS = 2000000, ROUNDS = 5, THREADS = 4, NAMES = 40, TURNS = 50 };

static void annotate_all(bw_device *device) {
    const bw_annotation_calls *calls = &bw_cuda_annotation_calls;
    const bw_annotation measure = {.name = "measure", .category = "gemm", .bytes = 123456789012};
    const bw_annotation named = {.name = "a \"b\" \xc3\xa9", .category = "range", .bytes = -1};
    const bw_annotation bare = {.name = "", .category = NULL, .bytes = 0};
    printf("watched %d\n", calls->watched(device));
    calls->push(device, &measure);
    calls->push(device, &bare);
    calls->pop(device);
    calls->pop(device);
    uint64_t first = calls->start(device, &named), second = calls->start(device, &measure);
    calls->end(device, first);
    calls->end(device, second);
}

/* The same names, in each thread's own order. */
static void *use_categories(void *device) {
    char name[16];
    for (int i = 0; i < TURNS * NAMES; i++) {
        snprintf(name, sizeof name, "category %d", i % NAMES);
        bw_cuda_annotation_calls.push(device, &(bw_annotation){.name = "a", .category = name, .bytes = -1});
        bw_cuda_annotation_calls.pop(device);
    }
    return NULL;
}

static void use_categories_at_once(bw_device *device) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, use_categories, device)) abort();
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

/* ns for a pair, the best of some rounds. */
static void time_pairs(bw_device *device) {
    const bw_annotation what = {.name = "measure", .category = "gemm", .bytes = 1};
    int64_t best = INT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t began = bw_now_ns();
        for (int i = 0; i < CALLS; i++) {
            bw_cuda_annotation_calls.push(device, &what);
            bw_cuda_annotation_calls.pop(device);
        }
        int64_t took = bw_now_ns() - began;
        if (took < best) best = took;
    }
    printf("pair_ns %.2f\n", (double)best / CALLS);
}

int main(int count, char **arguments) {
    bw_device *device = calloc(1, sizeof *device);
    if (!device || bw_cuda_nvtx_open(device)) return 2;
    if (count > 1 && strcmp(arguments[1], "time") == 0) {
        time_pairs(device);
    } else if (count > 1 && strcmp(arguments[1], "threads") == 0) {
        use_categories_at_once(device);
    } else {
        annotate_all(device);
    }
    bw_cuda_attachments_close(device);
    free(device);
    return 0;
}
