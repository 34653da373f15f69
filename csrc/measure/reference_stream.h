/* Reference streams reveal other programs that use the same memory, even from outside a virtual machine: a stream that
 * is always the same becomes slower. One runs before the samples, one after them, and some in between. */
#ifndef BW_MEASURE_REFERENCE_STREAM_H
#define BW_MEASURE_REFERENCE_STREAM_H

#include "measure/session.h"

enum { BW_REFERENCES_MOST = 64 };

typedef struct bw_reference_stream {
    bw_session *session;
    double ns[BW_REFERENCES_MOST];
    int64_t count;
    double next_s, interval_s; /* when the next one is due */
    bool over;                 /* there are none, or one failed: no more of it */
} bw_reference_stream;

/* None where the backend has none, or for samplings of less than 0.2 s: they would be a large part of it. */
void bw_reference_stream_begin(bw_reference_stream *self, bw_session *session, double max_seconds);

/* Takes one when it is due, or `always`, and says whether it did. Never fails. */
bool bw_reference_stream_take(bw_reference_stream *self, double now_s, bool always);

/* The summary of all reference streams. NaN = not known. */
typedef struct bw_references {
    double upper_ns; /* their upper quartile */
    double best_ns;  /* the lowest median that the session has seen, theirs among them */
    double slowed; /* by how much the upper quartile is above the lower one, or above the best, whichever is lower, as a
                    * share of that */
} bw_references;
bw_references bw_reference_stream_end(const bw_reference_stream *self);

#endif
