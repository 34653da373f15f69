/* The four streams, for stream.py: an independent witness, sharing nothing with bwprof.
 *
 * stream ELEMENTS SETS SECONDS STREAM WALK: passes over STREAM (read, write, copy or triad) for so long, each on the
 * next of SETS sets of arrays of ELEMENTS floats. WALK is linear (plain loops) or pages (a few pages interleaved);
 * prints the median and the shortest time of a pass in seconds. Stores do not pass through the cache where the compiler
 * has non-temporal ones (x86). Threads as OMP_NUM_THREADS says; each first touches the part that it will use. */
#include <omp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__AVX512F__) || defined(__AVX__) || defined(__SSE2__)
#include <immintrin.h>
#endif

enum { PASSES = 4096, ARRAYS = 3, ALIGNMENT = 1 << 21 };
enum { BLOCK = 64, AHEAD = 512 }; /* elements: threads share whole blocks; a read asks for what is so far ahead */

#if defined(__AVX512F__)
typedef __m512 vector;
enum { LANES = 16 };
#define LOAD(p) _mm512_load_ps(p)
#define SET(x) _mm512_set1_ps(x)
#define MULTIPLY_ADD(a, b, c) _mm512_fmadd_ps(a, b, c)
#define STORE(p, v) _mm512_stream_ps(p, v)
#define FENCE() _mm_sfence()
#elif defined(__AVX__)
typedef __m256 vector;
enum { LANES = 8 };
#define LOAD(p) _mm256_load_ps(p)
#define SET(x) _mm256_set1_ps(x)
#define MULTIPLY_ADD(a, b, c) _mm256_add_ps(_mm256_mul_ps(a, b), c)
#define STORE(p, v) _mm256_stream_ps(p, v)
#define FENCE() _mm_sfence()
#elif defined(__SSE2__)
typedef __m128 vector;
enum { LANES = 4 };
#define LOAD(p) _mm_load_ps(p)
#define SET(x) _mm_set1_ps(x)
#define MULTIPLY_ADD(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c)
#define STORE(p, v) _mm_stream_ps(p, v)
#define FENCE() _mm_sfence()
#else
typedef float vector;
enum { LANES = 1 };
#define LOAD(p) (*(p))
#define SET(x) (x)
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#define STORE(p, v) (*(p) = (v))
#define FENCE()
#endif

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One thread's share [first, last) of a pass, from its beginning to its end. */
static uint32_t linear_share(char which, int64_t first, int64_t last, const float *a, float *b, float *c) {
    uint32_t sum = 0;
    const uint32_t *words = (const uint32_t *)a;
    switch (which) {
        case 'r': /* without the prefetch a Xeon's cores read a third less: their own ones do not look far enough */
            for (int64_t i = first; i < last; i += BLOCK) {
                for (int line = 0; line < BLOCK; line += 16) __builtin_prefetch(words + i + AHEAD + line);
#pragma omp simd reduction(+ : sum)
                for (int j = 0; j < BLOCK; j++) sum += words[i + j];
            }
            break;
        case 'w':
            for (int64_t i = first; i < last; i += LANES) STORE(b + i, SET(1.5f));
            break;
        case 'c':
            for (int64_t i = first; i < last; i += LANES) {
                __builtin_prefetch(a + i + AHEAD);
                STORE(b + i, LOAD(a + i));
            }
            break;
        default:
            for (int64_t i = first; i < last; i += LANES) {
                __builtin_prefetch(a + i + AHEAD);
                __builtin_prefetch(b + i + AHEAD);
                STORE(c + i, MULTIPLY_ADD(SET(0.5f), LOAD(b + i), LOAD(a + i)));
            }
    }
    FENCE();
    return sum;
}

enum { LINE = 16, PAGE = 1024, READ_PAGES = 8, STORE_PAGES = 4 }; /* elements; pages that are interleaved */

/* The same share with one line of each of several pages in turn, the next group of pages asked for meanwhile. What is
 * left of the share, and writes, go as above. */
static uint32_t paged_share(char which, int64_t first, int64_t last, const float *a, float *b, float *c) {
    uint32_t sum = 0;
    int64_t pages = which == 'r' ? READ_PAGES : STORE_PAGES, group = which == 'w' ? INT64_MAX : pages * PAGE,
            at = first;
    for (; last - at >= group; at += group) {
        int64_t ahead = last - at >= 2 * group ? group : 0;
        for (int64_t step = 0; step < pages * PAGE / LINE; step++) {
            int64_t i = at + step % pages * PAGE + step / pages * LINE;
            __builtin_prefetch(a + i + ahead);
            if (which == 't') __builtin_prefetch(b + i + ahead);
            for (int64_t j = i; j < i + LINE; j += LANES) {
                if (which == 'c') STORE(b + j, LOAD(a + j));
                if (which == 't') STORE(c + j, MULTIPLY_ADD(SET(0.5f), LOAD(b + j), LOAD(a + j)));
            }
            for (int64_t j = i; which == 'r' && j < i + LINE; j++) sum += ((const uint32_t *)a)[j];
        }
    }
    return sum + linear_share(which, at, last, a, b, c);
}

static uint32_t pass(char which, bool paged, int64_t count, float *const *arrays) {
    uint32_t sum = 0;
    uint32_t (*share)(char, int64_t, int64_t, const float *, float *, float *) = paged ? paged_share : linear_share;
#pragma omp parallel reduction(+ : sum)
    {
        int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads(), blocks = count / BLOCK;
        sum += share(which, blocks * thread / threads * BLOCK, blocks * (thread + 1) / threads * BLOCK, arrays[0],
                     arrays[1], arrays[2]);
    }
    return sum;
}

static float *array_of(int64_t count) {
    size_t bytes = ((size_t)count * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    float *array = aligned_alloc(ALIGNMENT, bytes);
    if (!array) exit(3);
    madvise(array, bytes, MADV_HUGEPAGE);
    int64_t blocks = count / BLOCK;
#pragma omp parallel
    {
        int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
        for (int64_t i = blocks * thread / threads * BLOCK; i < blocks * (thread + 1) / threads * BLOCK; i++) {
            array[i] = (float)(i & 63);
        }
    }
    return array;
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    bool paged = strcmp(argv[5], "pages") == 0;
    int64_t count = atoll(argv[1]) / BLOCK * BLOCK;
    uint32_t sink = 0;
    int sets = atoi(argv[2]), taken = 0;
    double budget = atof(argv[3]), times[PASSES];
    char which = argv[4][0];
    int used = which == 't' ? 3 : which == 'c' ? 2 : 1;
    float *(*arrays)[ARRAYS] = calloc((size_t)sets, sizeof *arrays);
    if (!arrays || sets < 1 || !strchr("rwct", which)) return 2;
    for (int set = 0; set < sets; set++) {
        for (int i = 0; i < used; i++) arrays[set][i == 0 && which == 'w' ? 1 : i] = array_of(count);
    }
    for (int set = 0; set < sets; set++) sink += pass(which, paged, count, arrays[set]);
    double end = omp_get_wtime() + budget;
    while (taken < PASSES && (taken < 5 || omp_get_wtime() < end)) {
        double start = omp_get_wtime();
        sink += pass(which, paged, count, arrays[taken % sets]);
        times[taken++] = omp_get_wtime() - start;
    }
    qsort(times, (size_t)taken, sizeof times[0], compare);
    printf("%.9f %.9f\n", times[taken / 2], times[0]);
    return sink == 1; /* keeps the reads */
}
