/* The four streams as plain loops, for stream.py: an independent witness, sharing nothing with bwprof.
 * stream ELEMENTS SECONDS: for each of read, write, copy, triad prints its name, the median and the shortest time of a
 * pass in seconds. Threads as OMP_NUM_THREADS says; each first touches the part that it will use. */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { PASSES = 1000 };

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int64_t pass(int which, int64_t count, float *restrict a, float *restrict b, float *restrict c) {
    int64_t sum = 0;
    const int32_t *words = (const int32_t *)a;
    switch (which) {
        case 0:
#pragma omp parallel for simd reduction(+ : sum) schedule(static)
            for (int64_t i = 0; i < count; i++) sum += words[i];
            break;
        case 1:
#pragma omp parallel for simd schedule(static)
            for (int64_t i = 0; i < count; i++) b[i] = 1.5f;
            break;
        case 2:
#pragma omp parallel for simd schedule(static)
            for (int64_t i = 0; i < count; i++) b[i] = a[i];
            break;
        default:
#pragma omp parallel for simd schedule(static)
            for (int64_t i = 0; i < count; i++) c[i] = a[i] + 0.5f * b[i];
    }
    return sum;
}

int main(int argc, char **argv) {
    static const char *const names[] = {"stream_read", "stream_write", "stream_copy", "stream_triad"};
    if (argc != 3) return 2;
    int64_t count = atoll(argv[1]), sink = 0;
    double budget = atof(argv[2]);
    size_t bytes = ((size_t)count * sizeof(float) + 4095) / 4096 * 4096;
    float *arrays[3];
    for (int i = 0; i < 3; i++) {
        arrays[i] = aligned_alloc(4096, bytes);
        if (!arrays[i]) return 3;
#pragma omp parallel for schedule(static)
        for (int64_t j = 0; j < count; j++) arrays[i][j] = (float)(j & 63);
    }
    for (int which = 0; which < 4; which++) {
        double times[PASSES], end = omp_get_wtime() + budget;
        int taken = 0;
        sink += pass(which, count, arrays[0], arrays[1], arrays[2]);
        while (taken < PASSES && (taken < 5 || omp_get_wtime() < end)) {
            double start = omp_get_wtime();
            sink += pass(which, count, arrays[0], arrays[1], arrays[2]);
            times[taken++] = omp_get_wtime() - start;
        }
        qsort(times, (size_t)taken, sizeof times[0], compare);
        printf("%s %.9f %.9f\n", names[which], times[taken / 2], times[0]);
    }
    return sink == 1; /* keeps the reads */
}
