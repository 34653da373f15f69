/* A search has two rounds: all candidates for a short time each, then the best few for longer. The clock of a GPU that
 * had nothing to do rises first, or the first candidates would be timed worst. */
#include "cuda/launch/search.h"

#include <math.h>
#include <stdlib.h>

#include "cuda/launch/graph.h"
#include "cuda/launch/replay.h"

enum { FIRST_LAUNCHES = 4, LAUNCHES_MOST = 512, FINALISTS = 6, FINAL_TIMES = 3 };
static const double budget_ms = 40; /* beyond which the first round ends, but not before as many as FINALISTS */
static const double warm_least_ms = 20, warm_most_ms = 100, warm_graph_ms = 2;
static const double settled_share = 0.01; /* of two graphs' times, when the clock has stopped rising */
static const double first_round_ms = 0.2, last_round_ms = 0.7;
static const double slow_ms = 5;       /* a launch that takes longer is timed once in a round */
static const double near_share = 0.25; /* of the best: a first round may be off by so much */
static const double tie_share = 0.01;

typedef struct candidate {
    int index;
    double ms; /* per launch; infinite: it cannot be used */
} candidate;

typedef struct search {
    const bw_search_calls *calls;
    bw_replay replay;
    int64_t launched;
    double spent_ms;
} search;

typedef struct capture {
    search *search;
    int candidate, launches;
} capture;

static bw_status enqueue_launches(void *context) {
    const capture *self = context;
    const bw_search_calls *calls = self->search->calls;
    for (int i = 0; i < self->launches; i++) {
        BW_TRY(calls->enqueue(calls->context, self->candidate, self->search->launched + i));
    }
    return BW_OK;
}

/* Sets candidate->ms. An error is the device's: a candidate that is unavailable is none. */
static bw_status time_candidate(search *self, candidate *candidate, int launches) {
    bw_device *device = self->replay.device;
    capture capture = {self, candidate->index, launches};
    cudaGraph_t graph = NULL;
    cudaGraphExec_t replay = NULL;
    double ns = 0;
    candidate->ms = INFINITY;
    bw_status status = self->calls->ready(self->calls->context, candidate->index, self->launched, launches);
    if (!status) status = bw_cuda_graph_capture(device, device->stream, enqueue_launches, &capture, &graph);
    self->launched += launches;
    if (bw_status_code(status) == BW_CODE_UNAVAILABLE) {
        bw_status_free(status);
        return BW_OK;
    }
    BW_TRY(status);
    status = bw_cuda_graph_finish(device, device->stream, graph, &replay);
    if (!status) status = bw_replay_run(&self->replay, device->stream, replay, NULL, &ns);
    if (!status) candidate->ms = ns / 1e6 / launches;
    self->spent_ms += ns / 1e6;
    if (replay) BW_CUDA_IGNORE(&device->api, graph_exec_destroy(replay));
    return status;
}

/* As many as take so long. */
static int launches_for(const candidate *candidate, double ms, int least) {
    if (candidate->ms > slow_ms) return 1;
    return (int)fmax(least, fmin(LAUNCHES_MOST, ms / candidate->ms));
}

/* Replays of the first candidate that runs. */
static bw_status raise_clock(search *self, candidate *candidates, int count) {
    double before_ms = INFINITY;
    for (int i = 0; i < count; i++) {
        candidate *first = &candidates[i];
        BW_TRY(time_candidate(self, first, FIRST_LAUNCHES));
        if (!isfinite(first->ms)) continue;
        while (self->spent_ms < warm_most_ms &&
               (self->spent_ms < warm_least_ms || first->ms < before_ms * (1 - settled_share))) {
            before_ms = first->ms;
            BW_TRY(time_candidate(self, first, launches_for(first, warm_graph_ms, FIRST_LAUNCHES)));
        }
        break;
    }
    self->spent_ms = 0;
    return BW_OK;
}

static bw_status time_all(search *self, candidate *candidates, int count) {
    for (int i = 0; i < count; i++) {
        if (i >= FINALISTS && self->spent_ms > budget_ms) break;
        const int least = self->spent_ms > budget_ms / 4 ? 1 : FIRST_LAUNCHES;
        BW_TRY(time_candidate(self, &candidates[i], least));
        if (!isfinite(candidates[i].ms)) continue;
        const int launches = launches_for(&candidates[i], first_round_ms, least);
        if (launches > least) BW_TRY(time_candidate(self, &candidates[i], launches));
    }
    return BW_OK;
}

static int compare_candidates(const void *left, const void *right) {
    const candidate *a = left, *b = right;
    if (a->ms != b->ms) return a->ms > b->ms ? 1 : -1;
    return a->index - b->index;
}

/* The shortest of several times each, in turn. */
static bw_status time_finalists(search *self, candidate *sorted, int count) {
    double best_ms[FINALISTS];
    int field = 0;
    while (field < count && field < FINALISTS && sorted[field].ms <= sorted[0].ms * (1 + near_share)) field++;
    if (field < 2) return BW_OK;
    for (int i = 0; i < field; i++) best_ms[i] = INFINITY;
    for (int i = 0; i < FINAL_TIMES * field; i++) {
        candidate *one = &sorted[i % field];
        BW_TRY(time_candidate(self, one, launches_for(one, last_round_ms, 2 * FIRST_LAUNCHES)));
        one->ms = best_ms[i % field] = fmin(best_ms[i % field], one->ms);
    }
    qsort(sorted, (size_t)field, sizeof *sorted, compare_candidates);
    return BW_OK;
}

static bw_status run_rounds(search *self, candidate *candidates, int count) {
    BW_TRY(raise_clock(self, candidates, count));
    BW_TRY(time_all(self, candidates, count));
    qsort(candidates, (size_t)count, sizeof *candidates, compare_candidates);
    return isfinite(candidates[0].ms) ? time_finalists(self, candidates, count) : BW_OK;
}

bw_status bw_search_fastest(bw_device *device, const bw_search_calls *calls, int count, int *best) {
    search self = {.calls = calls};
    candidate candidates[BW_SEARCH_MOST];
    for (int i = 0; i < count; i++) candidates[i] = (candidate){i, INFINITY};
    *best = -1;
    bw_status status = bw_replay_open(device, &self.replay);
    if (!status) status = run_rounds(&self, candidates, count);
    bw_replay_close(&self.replay);
    if (status || !isfinite(candidates[0].ms)) return status;
    /* Where noise could have decided, the order does, so that the same case gets the same candidate the next time. */
    for (int i = 0; i < count && candidates[i].ms <= candidates[0].ms * (1 + tie_share); i++) {
        if (*best < 0 || candidates[i].index < *best) *best = candidates[i].index;
    }
    return BW_OK;
}
