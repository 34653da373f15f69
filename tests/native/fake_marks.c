/* The toy backend's marks of time, the calling thread's device, and what a tool that watches is told. */
#include <stdio.h>
#include <stdlib.h>

#include "fake.h"

/* ---- marks: the n-th one taken is n microseconds after the beginning ---- */

struct bw_marks {
    int64_t *order; /* which one of all that were taken; 0 = never */
};

static bw_status marks_create(bw_device *device, void *stream, bw_marks **out) {
    (void)device, (void)stream;
    BW_TRY(fake_called("marks_create"));
    bw_marks *marks = calloc(1, sizeof *marks);
    if (!marks) return bw_fail(BW_CODE_MEMORY, "no memory for marks");
    fake.live_marks++;
    *out = marks;
    return BW_OK;
}

static bw_status marks_reserve(bw_marks *marks, int64_t count) {
    BW_TRY(fake_called("marks_reserve"));
    int64_t *order = realloc(marks->order, (size_t)count * sizeof *order);
    if (!order) return bw_fail(BW_CODE_MEMORY, "no memory for %lld marks", (long long)count);
    marks->order = order;
    fake.marks_made = count;
    return BW_OK;
}

static bw_status mark(bw_marks *marks, int64_t index) {
    BW_TRY(fake_called("mark"));
    marks->order[index] = ++fake.marks_taken;
    return BW_OK;
}

static bool has_passed(const bw_marks *marks, int64_t index) {
    return fake.marks_passed < 0 || marks->order[index] <= fake.marks_passed;
}

static bw_status mark_passed(bw_marks *marks, int64_t index, bool *out) {
    *out = has_passed(marks, index);
    return fake_called("mark_passed");
}

static bw_status marks_elapsed(bw_marks *marks, int64_t from, int64_t to, double *ns) {
    BW_TRY(fake_called("marks_elapsed"));
    fake.waits += !has_passed(marks, to);
    *ns = 1000.0 * (double)(marks->order[to] - marks->order[from]);
    return BW_OK;
}

static void marks_free(bw_marks *marks) {
    if (!marks) return;
    free(marks->order);
    free(marks);
    fake.live_marks--;
}

const bw_mark_calls fake_mark_calls = {"toy",       marks_create,  marks_reserve, mark,
                                       mark_passed, marks_elapsed, marks_free};

/* ---- the thread's device: which of several there is no need to know ---- */

static bw_status current_device(int *index) {
    *index = fake.current;
    return BW_OK;
}

static bw_status make_current(int index) {
    fake.current = index;
    return BW_OK;
}

static void *device_stream(const bw_device *device) {
    (void)device;
    return NULL;
}

const bw_context_calls fake_context_calls = {current_device, make_current, device_stream};

/* ---- annotations: kept as text ---- */

static bool annotations_watched(bw_device *device) {
    (void)device;
    return fake.watched;
}

static void record_annotation(const char *what, const bw_annotation *annotation) {
    if (fake.annotation_count == sizeof fake.annotations / sizeof *fake.annotations) abort();
    snprintf(fake.annotations[fake.annotation_count++], sizeof *fake.annotations, "%s %s %s %lld", what,
             annotation->name, annotation->category ? annotation->category : "-", (long long)annotation->bytes);
}

static void annotation_push(bw_device *device, const bw_annotation *what) {
    (void)device;
    record_annotation("push", what);
}

static void annotation_pop(bw_device *device) {
    (void)device;
    snprintf(fake.annotations[fake.annotation_count++], sizeof *fake.annotations, "pop");
}

static uint64_t annotation_start(bw_device *device, const bw_annotation *what) {
    (void)device;
    record_annotation("start", what);
    return (uint64_t)fake.annotation_count;
}

static void annotation_end(bw_device *device, uint64_t range) {
    (void)device;
    snprintf(fake.annotations[fake.annotation_count++], sizeof *fake.annotations, "end %d", (int)range);
}

const bw_annotation_calls fake_annotation_calls = {annotations_watched, annotation_push, annotation_pop,
                                                   annotation_start, annotation_end};

void fake_annotate_replay(const bw_annotation_stack *annotation_stack) {
    if (!fake.watched || !annotation_stack || !annotation_stack->count) return;
    fake.annotated_replays++;
    fake.replay_annotations = *annotation_stack;
    snprintf(fake.replay_name, sizeof fake.replay_name, "%s", annotation_stack->range[0].name);
}
