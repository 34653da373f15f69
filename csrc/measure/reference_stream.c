/* Takes reference streams between samples, and compares their times. */
#include "measure/reference_stream.h"

#include <math.h>
#include <string.h>

#include "base/order.h"

static const double sampling_least_s = 0.2;
static const double interval_least_s = 0.02;
static const double intervals_per_reference = 15.0; /* of one's own length: under a fifteenth of the time */

void bw_reference_stream_begin(bw_reference_stream *self, bw_session *session, double max_seconds) {
    *self = (bw_reference_stream){.session = session, .interval_s = interval_least_s};
    self->over = !session->backend->disturbance || max_seconds < sampling_least_s;
}

/* Full: every second one goes, and from here on they are taken half as often. */
static void keep(bw_reference_stream *self, double ns) {
    if (self->count == BW_REFERENCES_MOST) {
        self->count /= 2;
        for (int64_t i = 1; i < self->count; i++) self->ns[i] = self->ns[2 * i];
        self->interval_s *= 2.0;
    }
    self->ns[self->count++] = ns;
}

bool bw_reference_stream_take(bw_reference_stream *self, double now_s, bool always) {
    double ns;
    if (self->over || (!always && now_s < self->next_s)) return false;
    bw_status status = self->session->backend->disturbance->reference(self->session->device, &ns);
    if (status) {
        bw_status_free(status);
        self->over = true;
        return false;
    }
    keep(self, ns);
    self->next_s = now_s + fmax(self->interval_s, intervals_per_reference * ns * 1e-9);
    return true;
}

bw_references bw_reference_stream_end(const bw_reference_stream *self) {
    double sorted[BW_REFERENCES_MOST];
    if (self->count == 0) return (bw_references){NAN, NAN, NAN};
    memcpy(sorted, self->ns, sizeof sorted);
    bw_sort(sorted, self->count);
    double *best = &self->session->reference_ns; /* a median: the lowest of many quartiles would be luck */
    *best = fmin(*best, bw_quantile(sorted, self->count, 0.5)); /* fmin passes NaN over */
    double upper = bw_quantile(sorted, self->count, 0.75), lower = bw_quantile(sorted, self->count, 0.25);
    return (bw_references){.upper_ns = upper, .best_ns = *best, .slowed = upper / fmin(*best, lower) - 1.0};
}
