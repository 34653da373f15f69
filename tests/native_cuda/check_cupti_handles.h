/* A part of check_cupti.c: several handles of one device, of which one counts at a time, and what is attached to a
 * handle. */
#ifndef CHECK_CUPTI_HANDLES_H
#define CHECK_CUPTI_HANDLES_H

#include <pthread.h>
#include <time.h>

#include "toy_gpu.h"

/* Two handles of one device: the second one is told, and has its turn when the first is closed. */
static void check_one_counts_at_a_time(void) {
    bw_device first, second;
    bw_counters c;
    bw_metrics found;
    open_toy(&first);
    open_toy(&second);
    CHECK(counted(&first, &c));
    CHECK(!counted(&second, &c) && strstr(c.status, "another device handle of this process"));
    CHECK(!bw_cuda_metrics(&second, &once, TENSOR, &found) && strstr(found.status, "another device handle"));
    CHECK(counted(&first, &c));
    bw_cuda_attachments_close(&first);
    CHECK(counted(&second, &c) && c.dram_bytes_read == READ);
    close_toy(&second);
}

/* A handle that is not counting any more has its profiler up: whoever times takes it down, and may count then. */
static void check_quiet(void) {
    bw_device first, second;
    bw_counters c;
    open_toy(&first);
    open_toy(&second);
    CHECK(!bw_cuda_take_down_all_profilers(&second));
    CHECK(counted(&first, &c) && toy.books->profilers == 1);
    CHECK(!bw_cuda_take_down_all_profilers(&second) && toy.books->profilers == 0 && toy.books->initialized == 0);
    CHECK(counted(&second, &c) && c.dram_bytes_read == READ && toy.books->profilers == 1);
    CHECK(!bw_cuda_take_down_all_profilers(&second) && toy.books->profilers == 0);
    CHECK(counted(&first, &c) && c.dram_bytes_read == READ);
    bw_cuda_release_profilers(&second); /* has none up */
    CHECK(toy.books->profilers == 1);
    second.index = 1; /* another GPU's are none of its business */
    CHECK(!bw_cuda_take_down_all_profilers(&second) && toy.books->profilers == 1);
    bw_cuda_attachments_close(&first);
    close_toy(&second);
}

static void times_meanwhile(void *context) {
    bw_device *second = context;
    bw_counters c;
    bw_metrics found;
    bw_status status = bw_cuda_take_down_all_profilers(second);
    CHECK(bw_status_code(status) == BW_CODE_BUSY && strstr(bw_status_message(status), "is counting"));
    bw_status_free(status);
    CHECK(!counted(second, &c) && strstr(c.status, "is counting"));
    CHECK(!bw_cuda_metrics(second, &once, TENSOR, &found) && strstr(found.status, "is counting"));
    bw_cuda_release_profilers(second);
    CHECK(toy.books->profilers == 1);
}

static void times_itself(void *context) {
    bw_status status = bw_cuda_take_down_all_profilers(context);
    CHECK(bw_status_code(status) == BW_CODE_BUSY && toy.books->profilers == 1);
    bw_status_free(status);
}

/* From within the function that is counted: nothing can be taken down, and nothing is. */
static void check_quiet_while_counting(void) {
    bw_device first, second;
    bw_counters c;
    open_toy(&first);
    open_toy(&second);
    toy.meanwhile = times_itself;
    toy.meanwhile_context = &first;
    CHECK(counted(&first, &c) && c.dram_bytes_read == READ);
    toy.meanwhile = times_meanwhile;
    toy.meanwhile_context = &second;
    CHECK(counted(&first, &c) && c.dram_bytes_read == READ);
    toy.meanwhile = NULL;
    CHECK(!bw_cuda_take_down_all_profilers(&second) && toy.books->profilers == 0);
    bw_cuda_attachments_close(&first);
    close_toy(&second);
}

static void *gives_up(void *context) {
    const struct timespec a_while = {.tv_nsec = 20000000};
    nanosleep(&a_while, NULL);
    bw_cupti_count_release(context);
    return NULL;
}

/* A handle is closed while another one tries to count, and will be told that it cannot. */
static void check_closed_beside_a_try(void) {
    bw_device first, second;
    bw_counters c;
    pthread_t thread;
    open_toy(&first);
    open_toy(&second);
    CHECK(counted(&first, &c) && bw_cupti_count_owner(&second).device == &first);
    CHECK(bw_cupti_count_hold(&second, BW_CUPTI_COUNTS));
    CHECK(pthread_create(&thread, NULL, gives_up, &second) == 0);
    bw_cuda_attachments_close(&first);
    CHECK(pthread_join(thread, NULL) == 0 && !bw_cupti_count_owner(&second).device && toy.books->profilers == 0);
    close_toy(&second);
}

static int64_t part_calls, part_rests, closed_first, closed_second;

static void rest_first(bw_device *device, void *state) {
    (void)device;
    CHECK(*(int64_t *)state == 5 && !closed_first);
    part_rests++;
}

static void close_first(bw_device *device, void *state) {
    (void)device, (void)state;
    closed_first = ++part_calls;
}

static const bw_cuda_part first_part = {sizeof(int64_t), close_first, rest_first};

static void close_second(bw_device *device, void *state) {
    (void)state;
    CHECK(bw_cuda_find_attachment(device, &first_part)); /* it may stand on that one */
    closed_second = ++part_calls;
}

static const bw_cuda_part second_part = {1, close_second, NULL};

/* A part's state is made once, zeroed; all are brought to rest together, and closed at rest, the newest first. */
static void check_attachments(void) {
    bw_device device;
    void *state = NULL, *again = NULL, *other = NULL;
    open_toy(&device);
    CHECK(!bw_cuda_find_attachment(&device, &first_part));
    CHECK(!bw_cuda_attach(&device, &first_part, &state) && *(int64_t *)state == 0);
    *(int64_t *)state = 5;
    CHECK(!bw_cuda_attach(&device, &second_part, &other) && other != state);
    CHECK(!bw_cuda_attach(&device, &first_part, &again) && again == state);
    CHECK(bw_cuda_find_attachment(&device, &second_part) == other);
    bw_cuda_release_profilers(&device);
    CHECK(part_rests == 1 && part_calls == 0);
    close_toy(&device);
    CHECK(part_rests == 2 && closed_second == 1 && closed_first == 2 && !device.attachments);
}

#endif
