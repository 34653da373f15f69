/* Named ranges of a running program: where they begin and end is marked on a stream, and read later.
 *
 * Starting and stopping a range costs one mark each and waits for nothing. The marks are used again once their range
 * has been read; when all are in use, the oldest ranges that the stream has passed are read on the way, a few at a
 * time, and more marks are made only where it has passed none. */
#pragma once

#include "measure/session.h"

typedef struct bw_ranges bw_ranges;

/* What one range moves. */
typedef struct bw_range_bytes {
    uint64_t bytes_read, bytes_written;
    bool known;
} bw_range_bytes;

/* Marks for `capacity` ranges are made at once. `stream` as in bw_work. */
bw_status bw_ranges_create(bw_session *session, void *stream, int64_t capacity, bw_ranges **out);
void bw_ranges_free(bw_ranges *ranges); /* NULL is fine */

/* How much it may hold, where that must not grow for ever; 0 = no limit. */
typedef struct bw_ranges_limits {
    int64_t ranges; /* that run or wait to be read: with more than that, starting and stopping one is BW_CODE_BUSY, and
                     * it is left out */
    int64_t times;  /* of a name: the latest ones are kept */
} bw_ranges_limits;
void bw_ranges_limit(bw_ranges *ranges, bw_ranges_limits limits);

/* A new name's number: 0, 1, 2, ... */
bw_status bw_ranges_add(bw_ranges *ranges, int64_t *id);

/* For profiling tools: whether ranges are shown to one; hide them, before the first range; and the name of an id, which
 * is copied. */
bool bw_ranges_are_watched(const bw_ranges *ranges);
void bw_ranges_hide(bw_ranges *ranges);
bw_status bw_ranges_set_name(bw_ranges *ranges, int64_t id, const char *name);

/* What the next ranges of a name move; and what the latest one that runs moves, if one does. */
void bw_ranges_set_bytes(bw_ranges *ranges, int64_t id, bw_range_bytes bytes);
void bw_ranges_set_running_bytes(bw_ranges *ranges, int64_t id, bw_range_bytes bytes);

/* Which thread starts and stops from now on, by any number: a range is stopped by the thread that started it. */
void bw_ranges_switch_thread(bw_ranges *ranges, uint64_t thread);

/* Ranges may nest, overlap and repeat; `stop` ends the latest one of its name, and is BW_CODE_INVALID where none runs.
 */
bw_status bw_ranges_start(bw_ranges *ranges, int64_t id);
bw_status bw_ranges_stop(bw_ranges *ranges, int64_t id);
int64_t bw_ranges_count_running(const bw_ranges *ranges, int64_t id);
void bw_ranges_drop(bw_ranges *ranges); /* those that run: they never were */

/* Waits until every stopped range has its time. A range that cannot be read is dropped, and the first such failure
 * returned. */
bw_status bw_ranges_read(bw_ranges *ranges);
/* Reads at most `most` of them, those that the stream has passed, and waits for nothing. */
bw_status bw_ranges_read_passed(bw_ranges *ranges, int64_t most);
/* How many were stopped so far, and how many of these have been read or dropped. */
int64_t bw_ranges_count_stopped(const bw_ranges *ranges);
int64_t bw_ranges_count_settled(const bw_ranges *ranges);

/* The times read so far, ns, in the order of their ends, or, where a limit left some out, in no order; valid until the
 * next call. */
const double *bw_ranges_times(const bw_ranges *ranges, int64_t id, int64_t *count);
const bw_range_bytes *bw_ranges_bytes(const bw_ranges *ranges, int64_t id, int64_t *count); /* by them */
/* When they began, ns since a moment that stays the same: the first one that was read. NaN unless they are kept from
 * before: on a GPU that is one more question to the driver for each range. */
void bw_ranges_keep_begins(bw_ranges *ranges);
const double *bw_ranges_begins(const bw_ranges *ranges, int64_t id, int64_t *count);
/* The times read so far, and the ranges that have ended and are not read: waits for nothing. */
void bw_ranges_forget(bw_ranges *ranges);

/* Of all times read so far, those that are not kept any more among them; NaN of none. */
typedef struct bw_range_totals {
    int64_t count;
    double sum_ns, least_ns, most_ns;
    int64_t known; /* whose bytes are */
    double bytes_read, bytes_written;
    bw_range_bytes bytes; /* the first of those that are known */
    bool varied;          /* not all of those moved the same */
} bw_range_totals;
void bw_range_totals_add(bw_range_totals *totals, const bw_range_totals *other);
bw_range_totals bw_ranges_totals(const bw_ranges *ranges, int64_t id);

/* Two marks with nothing between: no range is shorter. */
bw_status bw_marks_floor(bw_session *session, void *stream, double *ns);
