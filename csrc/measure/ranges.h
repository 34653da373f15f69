/* Named ranges of a running program: where they begin and end is marked on a stream, and read later.
 *
 * Starting and stopping a range costs one mark each and waits for nothing. The marks are used again once their range
 * has been read; when all are in use, the oldest ranges that the stream has passed are read on the way, a few at a
 * time, and more marks are made only where it has passed none. */
#pragma once

#include "measure/session.h"

typedef struct bw_range_bytes {
    uint64_t bytes_read, bytes_written;
    bool known;
} bw_range_bytes;

typedef struct bw_range_time {
    double ns;
    double begin_ns; /* since a moment that stays the same: the first start that was read. NaN: not recorded */
    bw_range_bytes bytes;
} bw_range_time;

/* Of all ranges read so far, those whose times are overwritten among them; NaN of none. */
typedef struct bw_range_totals {
    int64_t count;
    double sum_ns, least_ns, most_ns;
    int64_t known; /* whose bytes are */
    double bytes_read, bytes_written;
    bw_range_bytes bytes; /* the first of those that are known */
    bool varied;          /* not all of those moved the same */
} bw_range_totals;

typedef struct bw_range_name {
    char *text;           /* for a tool that watches; NULL: none does, or there is none */
    bw_range_bytes next;  /* what its next ranges move: the caller's to set */
    bw_range_time *times; /* in the order of their ends, or, once a limit overwrites some, in no order */
    int64_t count, capacity;
    int64_t oldest; /* of a limit's times: the next one takes its place */
    bw_range_totals totals;
} bw_range_name;

/* A range that has started; one that has ended as well waits to be read. */
typedef struct bw_range {
    int64_t id, start, stop; /* marks */
    int64_t number;          /* of all ranges, in the order of their starts */
    uint64_t thread;
    bw_range_bytes bytes;
    uint64_t annotation; /* for a tool that watches */
} bw_range;

typedef struct bw_ranges {
    /* The caller sets these. */
    int64_t waiting_limit; /* ranges that run or wait to be read: with more than that, starting and stopping one is
                            * BW_CODE_BUSY, and it is left out; 0 = no limit */
    int64_t time_limit;    /* times of a name: the latest ones stay; 0 = no limit */
    bool records_begins;   /* on a GPU that is one more question to the driver for each range */
    uint64_t thread;       /* that starts and stops, any number: a range is stopped by the thread that started it */
    const bw_annotation_calls *annotations; /* NULL: no tool watches. Set it to NULL before the first range to hide */

    bw_session *session;
    bw_marks *marks;
    int64_t mark_count;
    int64_t *unused; /* marks; space for all there are */
    int64_t unused_count;
    bw_range *running; /* space for mark_count */
    int64_t running_count;
    bw_range *ended; /* a ring with space for mark_count */
    int64_t first, ended_count, started;
    /* What beginnings are counted from: the start of a range whose mark is not reused. An event's distance to another
     * is a float, so that a later one takes its place before its steps become visible. */
    struct {
        int64_t mark, number; /* mark < 0: none yet */
        double ns;            /* since the first one */
    } origin;
    bw_range_name *names; /* by id */
    int64_t name_count, name_capacity;
    int64_t stopped; /* so far ... */
    int64_t settled; /* ... of which so many have been read or dropped */
} bw_ranges;

/* Marks for `capacity` ranges are made at once. `stream` as in bw_work. */
bw_status bw_ranges_create(bw_session *session, void *stream, int64_t capacity, bw_ranges **out);
void bw_ranges_free(bw_ranges *ranges); /* NULL is fine */

/* A new name's number: 0, 1, 2, ...; and its name for a tool that watches, which is copied. */
bw_status bw_ranges_add(bw_ranges *ranges, int64_t *id);
bw_status bw_ranges_set_name(bw_ranges *ranges, int64_t id, const char *name);

/* What the latest range of a name that runs moves, if one does. */
void bw_ranges_set_running_bytes(bw_ranges *ranges, int64_t id, bw_range_bytes bytes);

/* Ranges may nest, overlap and repeat; `stop` ends the latest one of its name: BW_CODE_INVALID where none runs. */
bw_status bw_ranges_start(bw_ranges *ranges, int64_t id);
bw_status bw_ranges_stop(bw_ranges *ranges, int64_t id);
int64_t bw_ranges_count_running(const bw_ranges *ranges, int64_t id);
void bw_ranges_drop(bw_ranges *ranges); /* those that run: they never were */

/* Waits until every stopped range has its time. A range that cannot be read is dropped, and the first such failure
 * returned. */
bw_status bw_ranges_read(bw_ranges *ranges);
/* Reads at most `most` of them, those that the stream has passed, and waits for nothing. */
bw_status bw_ranges_read_passed(bw_ranges *ranges, int64_t most);
/* The times read so far, and the ranges that have ended and are not read: waits for nothing. */
void bw_ranges_forget(bw_ranges *ranges);

void bw_range_totals_add(bw_range_totals *totals, const bw_range_totals *other);

/* Two marks with nothing between: no range is shorter. */
bw_status bw_marks_floor(bw_session *session, void *stream, double *ns);
