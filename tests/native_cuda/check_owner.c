/* Two handles in two threads, one of which traces again and again: what csrc/cuda/libraries/cupti.c keeps for the whole
 * process, for a build that watches for data races. */
#include <pthread.h>

#include "toy.h"

enum { ROUNDS = 2000 };

static void *end_what_others_trace(void *context) {
    for (int i = 0; i < ROUNDS; i++) bw_cupti_trace_end(context);
    return NULL;
}

int main(void) {
    bw_device first, second;
    bw_cupti *library = NULL;
    pthread_t thread;
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    fake_cupti *books = open_books("BWPROF_TEST_CUPTI", "fake_cupti_books");
    CHECK(books && !bw_cupti_get(&first, &library) && !bw_cupti_get(&second, &library));
    CHECK(pthread_create(&thread, NULL, end_what_others_trace, &second) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(!bw_cupti_trace_begin(&first) && books->tracing);
        bw_cupti_trace_end(&first);
        CHECK(!books->tracing);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    bw_cuda_attachments_close(&second);
    bw_cuda_attachments_close(&first);
    return 0;
}
